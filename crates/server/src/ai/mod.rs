//! The AI API: keys, workspaces, what they used, and the question whether a key is good.

pub mod audit;
pub mod authorize;
pub mod cors;
pub mod inference;
pub mod keys;
mod metrics;
pub mod models;
pub mod person;
pub mod providers;
pub mod traces;
pub mod usage;
pub mod workspaces;

pub(crate) use metrics::{GatewayMetrics, LedgerMetrics};

use crate::app::AppState;
use crate::document;
use crate::endpoints::{self, Endpoints, endpoints};
use crate::health;
use axum::extract::State;
use axum::http::header;
use axum::response::IntoResponse;
use axum::routing::get;
use utoipa::openapi::OpenApi;

/// Every route of the AI API's management.
pub fn routes() -> axum::Router<AppState> {
    // The document names the two methods that proxies use; every other one works as well.
    endpoints::serve(all())
        .route(authorize::PATH, axum::routing::any(authorize::authorize))
        // Ids of models have slashes in them.
        .route("/v1/models/{id}/{*name}", get(models::read_named_model))
}

/// The document that describes them.
pub fn document() -> OpenApi {
    let mut openapi = endpoints::describe(&all());
    document::complete(&mut openapi, &document::AI);
    openapi.merge_from(inference())
}

/// The part of the document that no handler describes, because the gateway serves it.
#[expect(
    clippy::expect_used,
    reason = "embedded text, read by every test of the document"
)]
fn inference() -> OpenApi {
    serde_json::from_str(include_str!("inference.json")).expect("a document")
}

fn all() -> Vec<Endpoints> {
    vec![
        endpoints!(keys::list_keys, keys::create_key),
        endpoints!(keys::read_key, keys::update_key, keys::delete_key),
        endpoints!(keys::rotate_key),
        endpoints!(keys::verify_key),
        endpoints!(authorize::authorize),
        endpoints!(workspaces::list_workspaces, workspaces::create_workspace),
        endpoints!(
            workspaces::read_workspace,
            workspaces::update_workspace,
            workspaces::delete_workspace
        ),
        endpoints!(usage::read_activity),
        endpoints!(usage::list_calls),
        endpoints!(usage::read_call),
        endpoints!(audit::list_audit),
        endpoints!(providers::list_providers, providers::create_provider),
        endpoints!(
            providers::read_provider,
            providers::update_provider,
            providers::delete_provider
        ),
        endpoints!(models::list_models),
        endpoints!(models::read_model),
        endpoints!(jwks),
        endpoints!(health::healthz),
        endpoints!(health::ai_readyz),
    ]
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
