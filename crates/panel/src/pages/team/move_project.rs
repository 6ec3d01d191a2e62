//! Moving a project to a team.

use crate::error::PanelError;
use crate::form::SignedForm;
use crate::layout::{Layout, Section, with_team};
use crate::page::{render, render_with};
use crate::session::Visit;
use askama::Template;
use axum::Router;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::get;
use estrade_model::TeamId;
use estrade_model::team::Role;
use estrade_server::app::AppState;
use estrade_service::Error;
use estrade_service::identity::teams;
use estrade_service::platform::move_project;
use estrade_service::platform::projects::read_project;
use serde::Deserialize;

/// How many teams are offered.
const MAX_TEAMS: u32 = 100;

pub(super) fn routes() -> Router<AppState> {
    Router::new().route("/panel/projects/{name}/move", get(show_move).post(move_to))
}

#[derive(Template)]
#[template(path = "team/move_project.html")]
struct MovePage {
    layout: Layout,
    project: String,
    project_path: String,
    action: String,
    teams: Vec<(String, String)>,
    selected: String,
    problem: String,
}

async fn page(
    app: &AppState,
    visit: &Visit,
    name: &str,
    selected: String,
    problem: String,
) -> Result<MovePage, PanelError> {
    visit.scope.require_to_read(Role::Admin)?;
    let (detail, _) = read_project(&app.core, &visit.scope, name).await?;
    let project = detail.project.project_id;
    let found = teams::list_teams(&app.core, &visit.scope.caller, None, MAX_TEAMS, 0).await?;
    let others = found
        .into_iter()
        .filter(|team| Some(team.id) != visit.team());
    let project_path = format!("/panel/projects/{project}");
    Ok(MovePage {
        layout: visit.layout(format!("Move {project}"), Section::Projects),
        action: format!("{project_path}/move"),
        teams: others
            .map(|team| (team.id.to_string(), team.name))
            .collect(),
        project_path,
        project,
        selected,
        problem,
    })
}

async fn show_move(
    State(app): State<AppState>,
    visit: Visit,
    Path(name): Path<String>,
) -> Result<Response, PanelError> {
    render(&page(&app, &visit, &name, String::new(), String::new()).await?)
}

#[derive(Deserialize)]
struct MoveForm {
    to: String,
}

async fn move_to(
    State(app): State<AppState>,
    visit: Visit,
    Path(name): Path<String>,
    SignedForm(form): SignedForm<MoveForm>,
) -> Result<Response, PanelError> {
    let team: TeamId = form.to.parse().map_err(|_| Error::NotFound("the team"))?;
    match move_project::move_project(&app.core, &visit.scope, &name, team).await {
        Ok(name) => {
            let path = with_team(&format!("/panel/projects/{name}"), Some(team));
            let text = format!("{name} belongs to the team now");
            Ok(visit.done_at(text, &path))
        }
        Err(error) => {
            let problem = PanelError::from(error).correctable()?;
            let page = page(&app, &visit, &name, form.to, problem).await?;
            render_with(StatusCode::CONFLICT, &page)
        }
    }
}
