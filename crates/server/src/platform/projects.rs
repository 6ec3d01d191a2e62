//! Platform API: projects and their environment variables.

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
use estrade_model::id::kind;
use estrade_model::key::Message;
use estrade_model::project::{
    CreateProject, Project, ProjectBody, ProjectCreated, Resize, SetScale, UpdateEnvs,
};
use estrade_model::team::Role;
use estrade_service::platform::projects::Availability;
use estrade_service::{Error, platform::envs, platform::projects};

/// `GET /v1/projects`.
#[derive(serde::Serialize, utoipa::ToSchema)]
pub struct ProjectList {
    projects: Vec<Project>,
}

/// List projects
///
/// Newest first.
#[utoipa::path(get, path = "/v1/projects", tag = "projects", params(Paged), responses((status = 200, body = ProjectList)))]
pub async fn list_projects(
    State(app): State<AppState>,
    Scoped(scope): Scoped<PlatformError>,
    paging: Paging<PlatformError>,
) -> Result<Response, PlatformError> {
    let fetch = move |window: Window<kind::Project>| {
        let (app, scope) = (AppState::clone(&app), scope.clone());
        async move {
            let (before, count, skip) = (window.before, window.count, window.skip);
            projects::list_projects(&app.core, &scope, before, count, skip).await
        }
    };
    let frame = Frame::new(r#"{"projects":["#, "]}");
    Ok(listing::respond(frame, &paging, fetch, |project| project.id).await?)
}

/// Create a project
#[utoipa::path(post, path = "/v1/projects", tag = "projects", request_body = CreateProject, responses(
    (status = 200, body = ProjectCreated),
    (status = 409, description = "The name is taken"),
))]
pub async fn create_project(
    State(app): State<AppState>,
    Scoped(scope): Scoped<PlatformError>,
    Body(new): Body<CreateProject, PlatformError>,
) -> Result<Json<ProjectCreated>, PlatformError> {
    let project = projects::create_project(&app.core, &scope, new).await?;
    Ok(Json(ProjectCreated {
        id: project.id,
        project,
    }))
}

/// Read a project
///
/// By name or `_id`. Values of environment variables are masked for viewers.
#[utoipa::path(get, path = "/v1/projects/{project_id}", tag = "projects", params(("project_id" = String, Path)), responses(
    (status = 200, body = ProjectBody), (status = 304), (status = 404),
))]
pub async fn read_project(
    State(app): State<AppState>,
    Scoped(scope): Scoped<PlatformError>,
    Params(project): Params<String, PlatformError>,
    headers: HeaderMap,
) -> Result<Response, PlatformError> {
    let (project, version) = projects::read_project(&app.core, &scope, &project).await?;
    let variant = if scope.role == Role::Viewer {
        "masked"
    } else {
        ""
    };
    let tag = ETag::variant(version, variant);
    Ok(tag.respond(&headers, || Json(ProjectBody { project })))
}

/// How a project is deleted.
#[derive(Debug, serde::Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub struct DeleteQuery {
    /// `true`: anybody may have its name at once.
    #[param(value_type = bool, required = false)]
    purge: Option<String>,
}

/// Delete a project
///
/// Its traffic stops and everything of it is removed. Its name stays reserved for its owner for 30 days; with
/// `purge=true` anybody may have it at once.
#[utoipa::path(delete, path = "/v1/projects/{project_id}", tag = "projects", params(("project_id" = String, Path), DeleteQuery), responses(
    (status = 200), (status = 404), (status = 412),
))]
pub async fn delete_project(
    State(app): State<AppState>,
    Scoped(scope): Scoped<PlatformError>,
    Params(project): Params<String, PlatformError>,
    Queries(query): Queries<DeleteQuery, PlatformError>,
    headers: HeaderMap,
) -> Result<(), PlatformError> {
    let expected = IfMatch::from_headers(&headers)?.expected();
    match query.purge.as_deref() {
        None | Some("" | "false") => {
            projects::delete_project(&app.core, &scope, &project, expected).await?;
        }
        Some("true") => projects::purge_project(&app.core, &scope, &project, expected).await?,
        Some(_) => return Err(Error::invalid("purge: must be true or false").into()),
    }
    Ok(())
}

/// Scale a project
///
/// 0 switches it off.
#[utoipa::path(post, path = "/v1/projects/{project_id}/actions/scale", tag = "projects", params(("project_id" = String, Path)), request_body = SetScale, responses((status = 200)))]
pub async fn scale_project(
    State(app): State<AppState>,
    Scoped(scope): Scoped<PlatformError>,
    Params(project): Params<String, PlatformError>,
    Body(request): Body<SetScale, PlatformError>,
) -> Result<(), PlatformError> {
    Ok(projects::scale_project(&app.core, &scope, &project, request.scale).await?)
}

/// Restart a project
///
/// One instance after the other, without a dropped request.
#[utoipa::path(post, path = "/v1/projects/{project_id}/actions/restart", tag = "projects", params(("project_id" = String, Path)), responses((status = 200), (status = 409, description = "Nothing runs that could be restarted")))]
pub async fn restart_project(
    State(app): State<AppState>,
    Scoped(scope): Scoped<PlatformError>,
    Params(project): Params<String, PlatformError>,
) -> Result<(), PlatformError> {
    Ok(app.services.fleet.restart_project(&scope, &project).await?)
}

/// Change the plan of a project
#[utoipa::path(post, path = "/v1/projects/{project_id}/resize", tag = "projects", params(("project_id" = String, Path)), request_body = Resize, responses(
    (status = 200), (status = 409, description = "The disks of the project are larger than the plan allows"),
))]
pub async fn resize_project(
    State(app): State<AppState>,
    Scoped(scope): Scoped<PlatformError>,
    Params(project): Params<String, PlatformError>,
    Body(request): Body<Resize, PlatformError>,
) -> Result<(), PlatformError> {
    Ok(projects::resize_project(&app.core, &scope, &project, &request.plan_id).await?)
}

/// Is a project name free?
#[utoipa::path(get, path = "/v1/projects/{project_id}/check-availability", tag = "projects", params(("project_id" = String, Path)), responses(
    (status = 200, description = "You can have the name"),
    (status = 409, description = "The name is taken"),
))]
pub async fn check_availability(
    State(app): State<AppState>,
    Scoped(scope): Scoped<PlatformError>,
    Params(name): Params<String, PlatformError>,
) -> Result<StatusCode, PlatformError> {
    Ok(
        match projects::check_availability(&app.core, &scope, &name).await? {
            Availability::Free => StatusCode::OK,
            Availability::Taken => StatusCode::CONFLICT,
        },
    )
}

/// Set environment variables
///
/// Replaces the whole set. A project that is deployed gets a release of type `ENV_UPDATE`.
#[utoipa::path(post, path = "/v1/projects/update-envs", tag = "projects", request_body = UpdateEnvs, responses((status = 201, body = Message), (status = 404)))]
pub async fn update_envs(
    State(app): State<AppState>,
    Scoped(scope): Scoped<PlatformError>,
    Body(request): Body<UpdateEnvs, PlatformError>,
) -> Result<(StatusCode, Json<Message>), PlatformError> {
    envs::update_envs(&app.core, &scope, &request.project, request.variables).await?;
    Ok((
        StatusCode::CREATED,
        Json(Message {
            message: "environment variables updated.".into(),
        }),
    ))
}
