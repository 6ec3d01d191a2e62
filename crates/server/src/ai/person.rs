//! Calls of signed-in people: with a key's models, limits, budget and call log, without its secret.

use crate::app::App;
use axum::body::{Body, Bytes};
use axum::http::HeaderMap;
use axum::response::Response;
use estrade_gateway::{CallBody, CallRequest, Relay};
use estrade_model::call::Operation;
use estrade_model::{KeyId, WorkspaceId};
use estrade_service::{Result, Scope};
use tokio_util::sync::CancellationToken;

/// Sends a chat request in a workspace for a person who may use the key. The response is the one that the key itself
/// would get, errors included; dropping its body is the client's disconnect.
pub async fn chat(
    app: &App,
    scope: &Scope,
    key: KeyId,
    workspace: WorkspaceId,
    body: Bytes,
) -> Result<Response> {
    let keys = &app.services.keys;
    let auth = keys.authorize_person(scope, key, workspace).await?;
    let request = Box::new(CallRequest {
        key: None,
        headers: HeaderMap::new(),
        body: CallBody::Whole(body),
        cancel: None,
    });
    let response = app.relay.handle_authorized(Operation::Chat, auth, request);
    Ok(response.await.map(Body::new))
}

/// Keeps the relay of these calls in order until `stop` is cancelled.
pub(crate) async fn maintain(relay: Relay, stop: CancellationToken) {
    tokio::select! {
        () = relay.maintain() => {}
        () = stop.cancelled() => {}
    }
    relay.shutdown().await;
}
