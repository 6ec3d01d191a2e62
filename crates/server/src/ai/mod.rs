//! The AI API: keys, workspaces, what they used, and the question whether a key is good.

pub mod audit;
pub mod authorize;
pub mod inference;
pub mod keys;
mod metrics;
pub mod models;
pub mod providers;
pub mod usage;
pub mod workspaces;

pub(crate) use metrics::{GatewayMetrics, LedgerMetrics};

use crate::app::AppState;
use crate::document;
use crate::health;
use axum::extract::State;
use axum::http::header;
use axum::response::IntoResponse;
use utoipa::openapi::OpenApi;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// Every route of the AI API, and the document that describes them.
pub fn routes() -> (axum::Router<AppState>, OpenApi) {
    let (router, mut openapi) = OpenApiRouter::new()
        .routes(routes!(keys::list_keys, keys::create_key))
        .routes(routes!(keys::read_key, keys::update_key, keys::delete_key))
        .routes(routes!(keys::rotate_key))
        .routes(routes!(keys::verify_key))
        .routes(routes!(authorize::authorize))
        .routes(routes!(
            workspaces::list_workspaces,
            workspaces::create_workspace
        ))
        .routes(routes!(
            workspaces::read_workspace,
            workspaces::update_workspace,
            workspaces::delete_workspace
        ))
        .routes(routes!(usage::read_activity))
        .routes(routes!(usage::list_calls))
        .routes(routes!(usage::read_call))
        .routes(routes!(audit::list_audit))
        .routes(routes!(
            providers::list_providers,
            providers::create_provider
        ))
        .routes(routes!(
            providers::read_provider,
            providers::update_provider,
            providers::delete_provider
        ))
        .routes(routes!(models::list_models))
        .routes(routes!(jwks))
        .routes(routes!(health::healthz))
        .routes(routes!(health::ai_readyz))
        .split_for_parts();
    // The document names the two methods that proxies use; every other one works as well.
    let router = router.route(authorize::PATH, axum::routing::any(authorize::authorize));
    document::complete(&mut openapi, &document::AI);
    (router, openapi)
}

/// Public keys
///
/// With these anyone can check the signature of a key without asking us.
#[utoipa::path(get, path = "/.well-known/jwks.json", tag = "keys", responses((status = 200, body = serde_json::Value)), security(()))]
async fn jwks(State(app): State<AppState>) -> impl IntoResponse {
    (
        [(header::CACHE_CONTROL, "public, max-age=300")],
        axum::Json(app.core.jwks()),
    )
}
