//! Platform API: a shell in a running instance, over a WebSocket.

mod close_reason;
mod frames;
mod session;

use crate::app::AppState;
use crate::auth::{SUBPROTOCOL, SocketScoped};
use crate::error::PlatformError;
use crate::extract::Queries;
use axum::extract::State;
use axum::extract::ws::WebSocketUpgrade;
use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::response::Response;
use estrade_service::Error;
use estrade_service::platform::containers::shell;

/// Most bytes of one frame of the client.
const MAX_FRAME_BYTES: usize = 64 * 1024;

/// The subprotocol without a terminal: standard input, output and error apart.
const STREAMS_SUBPROTOCOL: &str = "estrade.streams";

/// The query of a shell.
#[derive(serde::Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub struct ShellQuery {
    /// The project, by name or `_id`.
    #[param(required, value_type = String)]
    project_id: Option<String>,
    /// What to run: a line for `sh`, or a single word such as `bash`. Without it, `sh`.
    cmd: Option<String>,
    /// An account token. Deprecated, because addresses are written to logs: send `Authorization: Bearer …`, or where a
    /// client cannot, the subprotocols `estrade` and `estrade.token.<token>`.
    #[serde(rename = "token")]
    #[param(rename = "token")]
    #[deprecated]
    _token: Option<String>,
}

/// Open a shell
///
/// A WebSocket. The client begins with `{"action":"start","cols":80,"rows":24}`, then sends
/// `{"type":"input","data":"ls\n"}` and `{"type":"resize","cols":120,"rows":40}`; what the terminal shows comes back as
/// binary frames. When the command ends, the socket is closed with 1000 and `exit code N`. Other codes: 4400 for a frame
/// that makes no sense, 4401 when you may not use it any more, 4404 when nothing runs, 4408 after 8 hours, 4429 when too
/// many are open.
///
/// A client that offers the subprotocol `estrade.streams` gets no terminal: its binary frames are standard input, which
/// `{"type":"eof"}` ends; binary frames that come begin with a byte, 1 for standard output and 2 for standard error.
///
/// The token comes in `Authorization`. A browser, which cannot send that, offers two subprotocols:
/// `new WebSocket(url, ["estrade", "estrade.token." + token])`; the answer names the first.
#[utoipa::path(get, path = "/v1/exec", tag = "shell", params(ShellQuery,
    ("sec-websocket-protocol" = Option<String>, Header, description = "`estrade, estrade.token.<token>`: the token of a client that cannot send `Authorization`"),
), responses(
    (status = 101, description = "The connection is a WebSocket from now on"), (status = 404, description = "There is no such project"),
))]
pub async fn open_shell(
    State(app): State<AppState>,
    SocketScoped(scope): SocketScoped<PlatformError>,
    Queries(query): Queries<ShellQuery, PlatformError>,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Result<Response, PlatformError> {
    let project = query.project_id.as_deref().unwrap_or_default();
    if project.is_empty() {
        return Err(Error::invalid("project_id: names the project, and is missing").into());
    }
    let command = query.cmd.as_deref().filter(|cmd| !cmd.is_empty());
    let request = shell::request_shell(&app.core, scope, project, command).await?;
    let upgrade = upgrade
        .map_err(|rejection| Error::invalid(format!("connect with a WebSocket: {rejection}")))?;
    // Until the session has ended, the server waits for it when it stops.
    let token = app.tasks.token();
    let upgrade = upgrade
        .max_message_size(MAX_FRAME_BYTES)
        .max_frame_size(MAX_FRAME_BYTES)
        .protocols([STREAMS_SUBPROTOCOL, SUBPROTOCOL])
        .on_failed_upgrade(|error| tracing::debug!(%error, "a shell was not opened"));
    let agreed = upgrade.selected_protocol();
    let has_terminal = agreed.is_none_or(|protocol| protocol != STREAMS_SUBPROTOCOL);
    Ok(upgrade.on_upgrade(move |socket| async move {
        session::serve(app, request, socket, has_terminal).await;
        drop(token);
    }))
}
