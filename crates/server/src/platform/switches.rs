//! Platform API: what can be switched on and off for a project.

use crate::app::AppState;
use crate::auth::Scoped;
use crate::error::PlatformError;
use crate::extract::Params;
use axum::extract::State;
use estrade_service::platform::projects;
use estrade_store::projects::Switch;

/// The last segment of the path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Action {
    /// On.
    Enable,
    /// Off.
    Disable,
}

/// Switch zero downtime on or off
///
/// On, which is the default: a new release is healthy before the one before ends. Off: the one before ends
/// first, so that two never run at once; visitors get 503 meanwhile. Restarts do the same.
#[utoipa::path(post, path = "/v1/projects/{project_id}/zero-downtime/{action}", tag = "projects", params(("project_id" = String, Path), ("action" = inline(Action), Path)), responses((status = 200)))]
pub async fn switch_zero_downtime(
    State(app): State<AppState>,
    Scoped(scope): Scoped<PlatformError>,
    Params((project, action)): Params<(String, Action), PlatformError>,
) -> Result<(), PlatformError> {
    let switch = (Switch::ZeroDowntime, action == Action::Enable);
    Ok(projects::switch_project(&app.core, &scope, &project, switch).await?)
}

/// Switch the default subdomain on or off
///
/// Off: only custom domains lead to the project, and `{project}.{domain}` is nobody's.
#[utoipa::path(post, path = "/v1/projects/{project_id}/default-subdomain/{action}", tag = "projects", params(("project_id" = String, Path), ("action" = inline(Action), Path)), responses((status = 200)))]
pub async fn switch_default_subdomain(
    State(app): State<AppState>,
    Scoped(scope): Scoped<PlatformError>,
    Params((project, action)): Params<(String, Action), PlatformError>,
) -> Result<(), PlatformError> {
    let switch = (Switch::DefaultSubdomain, action == Action::Enable);
    Ok(projects::switch_project(&app.core, &scope, &project, switch).await?)
}

/// Switch the read-only file system on or off
///
/// Instances that run are replaced, one after the other.
#[utoipa::path(post, path = "/v1/projects/{project_id}/read-only/{action}", tag = "projects", params(("project_id" = String, Path), ("action" = inline(Action), Path)), responses((status = 200)))]
pub async fn switch_read_only(
    State(app): State<AppState>,
    Scoped(scope): Scoped<PlatformError>,
    Params((project, action)): Params<(String, Action), PlatformError>,
) -> Result<(), PlatformError> {
    let switch = (Switch::ReadOnlyRoot, action == Action::Enable);
    Ok(projects::switch_project(&app.core, &scope, &project, switch).await?)
}

/// Switch a fixed IP address on or off
///
/// Refused with the code `not_offered`.
#[utoipa::path(post, path = "/v1/projects/{project_id}/fixed-ip/{action}", tag = "projects", params(("project_id" = String, Path), ("action" = inline(Action), Path)), responses(
    (status = 400, description = "It is not offered"),
))]
pub async fn switch_fixed_ip(
    State(app): State<AppState>,
    Scoped(scope): Scoped<PlatformError>,
    Params((project, _action)): Params<(String, Action), PlatformError>,
) -> Result<(), PlatformError> {
    Ok(projects::refuse_fixed_ip(&app.core, &scope, &project).await?)
}
