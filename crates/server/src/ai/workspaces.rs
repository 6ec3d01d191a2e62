//! AI key API: workspaces.

use crate::app::AppState;
use crate::auth::Scoped;
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
use estrade_model::WorkspaceId;
use estrade_model::id::kind;
use estrade_model::workspace::{
    CreateWorkspace, CreatedWorkspace, UpdateWorkspace, Workspace, WorkspaceBody,
};
use estrade_service::ai::workspaces;

/// `GET /v1/workspaces`.
#[derive(serde::Serialize, utoipa::ToSchema)]
pub struct WorkspaceList {
    workspaces: Vec<Workspace>,
}

/// List workspaces
///
/// Newest first.
#[utoipa::path(get, path = "/v1/workspaces", tag = "workspaces", params(Paged), responses((status = 200, body = WorkspaceList)))]
pub async fn list_workspaces(
    State(app): State<AppState>,
    Scoped(scope): Scoped<KeysError>,
    paging: Paging<KeysError>,
) -> Result<Response, KeysError> {
    let fetch = move |window: Window<kind::Workspace>| {
        let (app, scope) = (AppState::clone(&app), scope.clone());
        async move {
            let (before, count, skip) = (window.before, window.count, window.skip);
            workspaces::list_workspaces(&app.core, &scope, before, count, skip).await
        }
    };
    Ok(listing::respond(
        Frame::new(r#"{"workspaces":["#, "]}"),
        &paging,
        fetch,
        |found| found.id,
    )
    .await?)
}

/// Create a workspace
#[utoipa::path(post, path = "/v1/workspaces", tag = "workspaces", request_body = CreateWorkspace, responses(
    (status = 200, body = CreatedWorkspace), (status = 409, description = "A workspace with this name exists"),
))]
pub async fn create_workspace(
    State(app): State<AppState>,
    Scoped(scope): Scoped<KeysError>,
    Body(new): Body<CreateWorkspace, KeysError>,
) -> Result<Json<CreatedWorkspace>, KeysError> {
    let workspace = workspaces::create_workspace(&app.core, &scope, new.name).await?;
    Ok(Json(CreatedWorkspace { workspace }))
}

/// Read a workspace
#[utoipa::path(get, path = "/v1/workspaces/{id}", tag = "workspaces", params(("id" = WorkspaceId, Path)), responses(
    (status = 200, body = WorkspaceBody), (status = 304), (status = 404),
))]
pub async fn read_workspace(
    State(app): State<AppState>,
    Scoped(scope): Scoped<KeysError>,
    Params(id): Params<WorkspaceId, KeysError>,
    headers: HeaderMap,
) -> Result<Response, KeysError> {
    let (workspace, version) = workspaces::read_workspace(&app.core, &scope, id).await?;
    Ok(ETag::of(version).respond(&headers, || Json(WorkspaceBody { workspace })))
}

/// Change a workspace
///
/// Its name, what all its keys together may use, and which provider it prefers. What is absent stays as it is;
/// in force for the next request.
#[utoipa::path(put, path = "/v1/workspaces/{id}", tag = "workspaces", params(("id" = WorkspaceId, Path)), request_body = UpdateWorkspace, responses(
    (status = 200, body = WorkspaceBody), (status = 404), (status = 409, description = "A workspace with this name exists"), (status = 412),
))]
pub async fn update_workspace(
    State(app): State<AppState>,
    Scoped(scope): Scoped<KeysError>,
    Params(id): Params<WorkspaceId, KeysError>,
    headers: HeaderMap,
    Body(update): Body<UpdateWorkspace, KeysError>,
) -> Result<Json<WorkspaceBody>, KeysError> {
    let expected = IfMatch::from_headers(&headers)?.expected();
    let updated = workspaces::update_workspace(&app.core, &scope, id, update, expected);
    Ok(Json(WorkspaceBody {
        workspace: updated.await?,
    }))
}

/// Delete a workspace
#[utoipa::path(delete, path = "/v1/workspaces/{id}", tag = "workspaces", params(("id" = WorkspaceId, Path)), responses(
    (status = 204), (status = 404), (status = 409, description = "A key still uses it"), (status = 412),
))]
pub async fn delete_workspace(
    State(app): State<AppState>,
    Scoped(scope): Scoped<KeysError>,
    Params(id): Params<WorkspaceId, KeysError>,
    headers: HeaderMap,
) -> Result<StatusCode, KeysError> {
    workspaces::delete_workspace(
        &app.core,
        &scope,
        id,
        IfMatch::from_headers(&headers)?.expected(),
    )
    .await?;
    Ok(StatusCode::NO_CONTENT)
}
