//! Platform API: custom domains of projects.

use crate::app::AppState;
use crate::auth::Scoped;
use crate::body::Body;
use crate::conditional::{ETag, IfMatch};
use crate::error::PlatformError;
use crate::extract::{Params, Queries};
use crate::listing::{self, Paged, Window};
use crate::paging::{Frame, Paging};
use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use estrade_model::domain::{CreateDomain, Domain, DomainBody, DomainId};
use estrade_model::id::kind;
use estrade_service::platform::domains;

/// `GET /v1/domains`.
#[derive(serde::Serialize, utoipa::ToSchema)]
pub struct DomainList {
    total: u64,
    domains: Vec<Domain>,
}

/// Which domains are listed.
#[derive(serde::Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub struct OfProject {
    /// Only those of this project, by name or `_id`.
    project: Option<String>,
}

/// List domains
///
/// Newest first.
#[utoipa::path(get, path = "/v1/domains", tag = "domains", params(OfProject, Paged), responses(
    (status = 200, body = DomainList), (status = 404, description = "There is no such project"),
))]
pub async fn list_domains(
    State(app): State<AppState>,
    Scoped(scope): Scoped<PlatformError>,
    Queries(query): Queries<OfProject, PlatformError>,
    paging: Paging<PlatformError>,
) -> Result<Response, PlatformError> {
    let named = query.project.as_deref().filter(|name| !name.is_empty());
    let project = domains::find_filter(&app.core, &scope, named).await?;
    let total = domains::count_domains(&app.core, &scope, project).await?;
    let fetch = move |window: Window<kind::Domain>| {
        let (app, scope) = (AppState::clone(&app), scope.clone());
        async move {
            let (before, count, skip) = (window.before, window.count, window.skip);
            domains::list_domains(&app.core, &scope, project, before, count, skip).await
        }
    };
    let frame = Frame::new(format!(r#"{{"total":{total},"domains":["#), "]}");
    Ok(listing::respond(frame, &paging, fetch, |domain| domain.id).await?)
}

/// Add a domain to a project
///
/// It is `PENDING` and serves nothing until one of its `records` is in DNS, which proves whose it
/// is. Names at or under the platform's own are refused.
#[utoipa::path(post, path = "/v1/domains", tag = "domains", request_body = CreateDomain, responses(
    (status = 201, body = DomainBody), (status = 404, description = "There is no such project"),
    (status = 409, description = "The domain serves a project already, or you have added it before"),
))]
pub async fn create_domain(
    State(app): State<AppState>,
    Scoped(scope): Scoped<PlatformError>,
    Body(new): Body<CreateDomain, PlatformError>,
) -> Result<(StatusCode, Json<DomainBody>), PlatformError> {
    let domain = domains::create_domain(&app.core, &scope, new).await?;
    Ok((StatusCode::CREATED, Json(DomainBody { domain })))
}

/// Read a domain
#[utoipa::path(get, path = "/v1/domains/{id}", tag = "domains", params(("id" = DomainId, Path)), responses(
    (status = 200, body = DomainBody), (status = 304), (status = 404),
))]
pub async fn read_domain(
    State(app): State<AppState>,
    Scoped(scope): Scoped<PlatformError>,
    Params(id): Params<DomainId, PlatformError>,
    headers: HeaderMap,
) -> Result<Response, PlatformError> {
    let (domain, version) = domains::read_domain(&app.core, &scope, id).await?;
    Ok(ETag::of(version).respond(&headers, || Json(DomainBody { domain })))
}

/// Delete a domain
///
/// It serves no more, and its name is free again.
#[utoipa::path(delete, path = "/v1/domains/{id}", tag = "domains", params(("id" = DomainId, Path)), responses(
    (status = 204), (status = 404), (status = 412),
))]
pub async fn delete_domain(
    State(app): State<AppState>,
    Scoped(scope): Scoped<PlatformError>,
    Params(id): Params<DomainId, PlatformError>,
    headers: HeaderMap,
) -> Result<StatusCode, PlatformError> {
    let expected = IfMatch::from_headers(&headers)?.expected();
    domains::delete_domain(&app.core, &scope, id, expected).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Check a domain now
///
/// Asks DNS, and makes the domain `ACTIVE` when one of its `records` is there; else `problem` says
/// what is missing. Pending domains are also checked from time to time without being asked.
#[utoipa::path(get, path = "/v1/domains/{id}/check", tag = "domains", params(("id" = DomainId, Path)), responses(
    (status = 200, body = DomainBody), (status = 404),
))]
pub async fn check_domain(
    State(app): State<AppState>,
    Scoped(scope): Scoped<PlatformError>,
    Params(id): Params<DomainId, PlatformError>,
) -> Result<Json<DomainBody>, PlatformError> {
    let domain = domains::check_domain(&app.core, &scope, id).await?;
    Ok(Json(DomainBody { domain }))
}
