//! Platform API: private networks.

use crate::app::AppState;
use crate::auth::Scoped;
use crate::body::Body;
use crate::error::PlatformError;
use crate::extract::Params;
use crate::listing::{self, Paged, Window};
use crate::paging::{Frame, Paging};
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use estrade_model::id::kind;
use estrade_model::project::{CreateNetwork, Network, NetworkBody, NetworkId};
use estrade_service::platform::networks;

/// `GET /v1/networks`.
#[derive(serde::Serialize, utoipa::ToSchema)]
pub struct NetworkList {
    networks: Vec<Network>,
}

/// List networks
///
/// Newest first; every owner has one named `default`.
#[utoipa::path(get, path = "/v1/networks", tag = "networks", params(Paged), responses((status = 200, body = NetworkList)))]
pub async fn list_networks(
    State(app): State<AppState>,
    Scoped(scope): Scoped<PlatformError>,
    paging: Paging<PlatformError>,
) -> Result<Response, PlatformError> {
    let fetch = move |window: Window<kind::Network>| {
        let (app, scope) = (AppState::clone(&app), scope.clone());
        async move {
            let (before, count, skip) = (window.before, window.count, window.skip);
            networks::list_networks(&app.core, &scope, before, count, skip).await
        }
    };
    let frame = Frame::new(r#"{"networks":["#, "]}");
    Ok(listing::respond(frame, &paging, fetch, |network| network.id).await?)
}

/// Create a network
#[utoipa::path(post, path = "/v1/networks", tag = "networks", request_body = CreateNetwork, responses(
    (status = 200, body = NetworkBody), (status = 409, description = "The name is taken"),
))]
pub async fn create_network(
    State(app): State<AppState>,
    Scoped(scope): Scoped<PlatformError>,
    Body(new): Body<CreateNetwork, PlatformError>,
) -> Result<Json<NetworkBody>, PlatformError> {
    let network = networks::create_network(&app.core, &scope, new.name).await?;
    Ok(Json(NetworkBody { network }))
}

/// Read a network
#[utoipa::path(get, path = "/v1/networks/{id}", tag = "networks", params(("id" = NetworkId, Path)), responses(
    (status = 200, body = NetworkBody), (status = 404),
))]
pub async fn read_network(
    State(app): State<AppState>,
    Scoped(scope): Scoped<PlatformError>,
    Params(id): Params<NetworkId, PlatformError>,
) -> Result<Json<NetworkBody>, PlatformError> {
    let network = networks::read_network(&app.core, &scope, id).await?;
    Ok(Json(NetworkBody { network }))
}

/// Delete a network
///
/// The one named `default` stays.
#[utoipa::path(delete, path = "/v1/networks/{id}", tag = "networks", params(("id" = NetworkId, Path)), responses(
    (status = 204), (status = 404),
    (status = 409, description = "It is the default one, or a project is in it"),
))]
pub async fn delete_network(
    State(app): State<AppState>,
    Scoped(scope): Scoped<PlatformError>,
    Params(id): Params<NetworkId, PlatformError>,
) -> Result<StatusCode, PlatformError> {
    networks::delete_network(&app.core, &scope, id).await?;
    Ok(StatusCode::NO_CONTENT)
}
