//! Platform API: what a client has to know of a server before it has a credential.
//!
//! Public, so nothing in it may help a stranger: addresses that are public anyway, limits that every refusal names, and
//! the version of the API.

use crate::app::AppState;
use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, Uri, header, uri::Authority};
use axum::response::IntoResponse;

/// What a server is.
#[derive(Debug, serde::Serialize, utoipa::ToSchema)]
pub struct ServerInfo {
    /// Always `estrade`.
    #[schema(example = "estrade")]
    name: &'static str,
    /// The version of the server.
    #[schema(example = "0.1.0")]
    version: &'static str,
    /// Where the AI API is.
    ai: ServerAddress,
    /// Where a project is served; `{project}` stands for its name.
    edge: ServerAddress,
    /// How a client gets a token of its person.
    login: ServerLogin,
    /// What is refused.
    limits: ServerLimits,
}

/// How a client gets a token of its person.
#[derive(Debug, serde::Serialize, utoipa::ToSchema)]
pub struct ServerLogin {
    /// Whether `POST /v1/device/code` begins a login through a browser (RFC 8628).
    device: bool,
}

/// Where something is reached.
#[derive(Debug, serde::Serialize, utoipa::ToSchema)]
pub struct ServerAddress {
    /// Without a slash at its end.
    #[schema(example = "http://127.0.0.1:3100")]
    url: String,
}

/// What is refused because it is too much.
#[derive(Debug, serde::Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ServerLimits {
    /// Most bytes of the files of a release; the project's plan may grant less.
    release_bytes: u64,
    /// Most files of a release.
    release_files: usize,
    /// Most instances of a project.
    scale: u32,
}

/// Describe the server
///
/// Where its other listeners are, and its limits: what a client needs to begin.
#[utoipa::path(get, path = "/.well-known/estrade.json", tag = "health", responses((status = 200, body = ServerInfo)), security(()))]
pub async fn read_server_info(
    State(app): State<AppState>,
    uri: Uri,
    headers: HeaderMap,
) -> impl IntoResponse {
    let settings = &app.core.settings;
    let info = ServerInfo {
        name: "estrade",
        version: env!("CARGO_PKG_VERSION"),
        ai: ServerAddress {
            url: ai_url(&app, &uri, &headers),
        },
        edge: ServerAddress {
            url: settings.project_url("{project}"),
        },
        login: ServerLogin { device: true },
        limits: ServerLimits {
            release_bytes: settings.max_release_bytes,
            release_files: settings.max_files,
            scale: settings.max_instances,
        },
    };
    // It depends on the host that the client named: no cache may give it to others.
    ([(header::CACHE_CONTROL, "no-store")], Json(info))
}

/// The AI API as this client reaches it: at the configured address, else at the host by which it reached this listener.
fn ai_url(app: &AppState, uri: &Uri, headers: &HeaderMap) -> String {
    let settings = &app.core.settings;
    if let Some(url) = &settings.ai_public_url {
        return url.clone();
    }
    let host = headers
        .get(header::HOST)
        .and_then(|host| host.to_str().ok()?.parse::<Authority>().ok())
        .or_else(|| uri.authority().cloned());
    match host {
        Some(host) => {
            let scheme = if app.ai_listener.tls { "https" } else { "http" };
            format!("{scheme}://{}:{}", host.host(), app.ai_listener.port)
        }
        None => settings.ai_url.clone(),
    }
}
