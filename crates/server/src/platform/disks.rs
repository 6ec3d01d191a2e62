//! Platform API: disks of a project.

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
use estrade_model::disk::{CreateDisk, Disk, DiskBody, ResizeDisk};
use estrade_model::id::kind;
use estrade_service::platform::disks;

/// `GET /v1/projects/{project_id}/disks`.
#[derive(serde::Serialize, utoipa::ToSchema)]
pub struct DiskList {
    disks: Vec<Disk>,
}

/// List the disks of a project
///
/// Newest first.
#[utoipa::path(get, path = "/v1/projects/{project_id}/disks", tag = "disks", params(("project_id" = String, Path), Paged), responses(
    (status = 200, body = DiskList), (status = 404),
))]
pub async fn list_disks(
    State(app): State<AppState>,
    Scoped(scope): Scoped<PlatformError>,
    Params(project): Params<String, PlatformError>,
    paging: Paging<PlatformError>,
) -> Result<Response, PlatformError> {
    let project = disks::find_owner(&app.core, &scope, &project).await?;
    let fetch = move |window: Window<kind::Disk>| {
        let app = AppState::clone(&app);
        async move {
            let (before, count, skip) = (window.before, window.count, window.skip);
            disks::list_disks(&app.core, project, before, count, skip).await
        }
    };
    let frame = Frame::new(r#"{"disks":["#, "]}");
    Ok(listing::respond(frame, &paging, fetch, |disk| disk.id).await?)
}

/// Create a disk
///
/// A release mounts it with `disks: [{name, mountTo}]`; what is on it stays from release to release. All
/// disks of a project together may be as large as its plan's disk.
#[utoipa::path(post, path = "/v1/projects/{project_id}/disks", tag = "disks", params(("project_id" = String, Path)), request_body = CreateDisk, responses(
    (status = 201, body = DiskBody), (status = 404),
    (status = 409, description = "The project has a disk of this name"),
))]
pub async fn create_disk(
    State(app): State<AppState>,
    Scoped(scope): Scoped<PlatformError>,
    Params(project): Params<String, PlatformError>,
    Body(new): Body<CreateDisk, PlatformError>,
) -> Result<(StatusCode, Json<DiskBody>), PlatformError> {
    let disk = disks::create_disk(&app.core, &scope, &project, new).await?;
    Ok((StatusCode::CREATED, Json(DiskBody { disk })))
}

/// Read a disk
#[utoipa::path(get, path = "/v1/projects/{project_id}/disks/{name}", tag = "disks", params(("project_id" = String, Path), ("name" = String, Path)), responses(
    (status = 200, body = DiskBody), (status = 404),
))]
pub async fn read_disk(
    State(app): State<AppState>,
    Scoped(scope): Scoped<PlatformError>,
    Params((project, name)): Params<(String, String), PlatformError>,
) -> Result<Json<DiskBody>, PlatformError> {
    let disk = disks::read_disk(&app.core, &scope, &project, &name).await?;
    Ok(Json(DiskBody { disk }))
}

/// Make a disk larger
///
/// With what is on it, and while it is used. A disk cannot become smaller.
#[utoipa::path(post, path = "/v1/projects/{project_id}/disks/{name}/resize", tag = "disks", params(("project_id" = String, Path), ("name" = String, Path)), request_body = ResizeDisk, responses(
    (status = 200, body = DiskBody), (status = 404),
    (status = 409, description = "The engine cannot make this volume larger"),
))]
pub async fn resize_disk(
    State(app): State<AppState>,
    Scoped(scope): Scoped<PlatformError>,
    Params((project, name)): Params<(String, String), PlatformError>,
    Body(request): Body<ResizeDisk, PlatformError>,
) -> Result<Json<DiskBody>, PlatformError> {
    let disk = disks::resize_disk(
        &app.core,
        &app.services.resize_slot,
        &scope,
        &project,
        &name,
        request.size,
    )
    .await?;
    Ok(Json(DiskBody { disk }))
}

/// Delete a disk
///
/// With everything that is on it.
#[utoipa::path(delete, path = "/v1/projects/{project_id}/disks/{name}", tag = "disks", params(("project_id" = String, Path), ("name" = String, Path)), responses(
    (status = 204), (status = 404),
    (status = 409, description = "A release that serves or is on its way mounts it"),
))]
pub async fn delete_disk(
    State(app): State<AppState>,
    Scoped(scope): Scoped<PlatformError>,
    Params((project, name)): Params<(String, String), PlatformError>,
) -> Result<StatusCode, PlatformError> {
    disks::delete_disk(&app.core, &scope, &project, &name).await?;
    Ok(StatusCode::NO_CONTENT)
}
