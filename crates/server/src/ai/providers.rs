//! AI key API, for administrators: the providers of inference.

use crate::app::AppState;
use crate::auth::Auth;
use crate::body::Body;
use crate::conditional::{ETag, IfMatch};
use crate::error::KeysError;
use crate::extract::Params;
use crate::listing::{self, Paged, Window};
use crate::paging::{Frame, Paging};
use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use estrade_gateway::Gateway;
use estrade_model::id::kind;
use estrade_model::provider::{
    CreateProvider, ProviderBody, ProviderId, ProviderInfo, UpdateProvider,
};
use estrade_service::ai::providers;

/// `GET /v1/providers`.
#[derive(serde::Serialize, utoipa::ToSchema)]
pub struct ProviderList {
    providers: Vec<ProviderInfo>,
}

/// List providers
///
/// Newest first, without their keys; those of the configuration file are not among them.
#[utoipa::path(get, path = "/v1/providers", tag = "providers", params(Paged), responses((status = 200, body = ProviderList)))]
pub async fn list_providers(
    State(app): State<AppState>,
    Auth(caller): Auth<KeysError>,
    paging: Paging<KeysError>,
) -> Result<Response, KeysError> {
    let fetch = move |window: Window<kind::Provider>| {
        let (app, caller) = (AppState::clone(&app), caller.clone());
        async move {
            let (before, count, skip) = (window.before, window.count, window.skip);
            providers::list_providers(&app.core, &caller, before, count, skip).await
        }
    };
    let frame = Frame::new(r#"{"providers":["#, "]}");
    Ok(listing::respond(frame, &paging, fetch, |found: &ProviderInfo| found.id).await?)
}

/// Add a provider
///
/// Its key is sealed and never shown again.
#[utoipa::path(post, path = "/v1/providers", tag = "providers", request_body = CreateProvider, responses(
    (status = 201, body = ProviderBody), (status = 409, description = "A provider with this name exists"),
))]
pub async fn create_provider(
    State(app): State<AppState>,
    Auth(caller): Auth<KeysError>,
    Body(new): Body<CreateProvider, KeysError>,
) -> Result<(StatusCode, Json<ProviderBody>), KeysError> {
    let check = Gateway::check_provider;
    let provider = providers::create_provider(&app.core, &caller, new, &check).await?;
    app.providers.refresh().await;
    Ok((StatusCode::CREATED, Json(ProviderBody { provider })))
}

/// Read a provider
#[utoipa::path(get, path = "/v1/providers/{id}", tag = "providers", params(("id" = ProviderId, Path)), responses(
    (status = 200, body = ProviderBody), (status = 304), (status = 404),
))]
pub async fn read_provider(
    State(app): State<AppState>,
    Auth(caller): Auth<KeysError>,
    Params(id): Params<ProviderId, KeysError>,
    headers: HeaderMap,
) -> Result<Response, KeysError> {
    let (provider, version) = providers::read_provider(&app.core, &caller, id).await?;
    Ok(ETag::of(version).respond(&headers, || Json(ProviderBody { provider })))
}

/// Change a provider
///
/// What is absent stays as it is; in force for the next call.
#[utoipa::path(put, path = "/v1/providers/{id}", tag = "providers", params(("id" = ProviderId, Path)), request_body = UpdateProvider, responses(
    (status = 200, body = ProviderBody), (status = 404),
    (status = 409, description = "Another provider has this name"), (status = 412),
))]
pub async fn update_provider(
    State(app): State<AppState>,
    Auth(caller): Auth<KeysError>,
    Params(id): Params<ProviderId, KeysError>,
    headers: HeaderMap,
    Body(update): Body<UpdateProvider, KeysError>,
) -> Result<Json<ProviderBody>, KeysError> {
    let expected = IfMatch::from_headers(&headers)?.expected();
    let check = Gateway::check_provider;
    let updated = providers::update_provider(&app.core, &caller, id, update, expected, &check);
    let provider = updated.await?;
    app.providers.refresh().await;
    Ok(Json(ProviderBody { provider }))
}

/// Remove a provider
#[utoipa::path(delete, path = "/v1/providers/{id}", tag = "providers", params(("id" = ProviderId, Path)), responses(
    (status = 204), (status = 404), (status = 412),
))]
pub async fn delete_provider(
    State(app): State<AppState>,
    Auth(caller): Auth<KeysError>,
    Params(id): Params<ProviderId, KeysError>,
    headers: HeaderMap,
) -> Result<StatusCode, KeysError> {
    let expected = IfMatch::from_headers(&headers)?.expected();
    providers::delete_provider(&app.core, &caller, id, expected).await?;
    app.providers.refresh().await;
    Ok(StatusCode::NO_CONTENT)
}
