//! The page of the scope: the person's teams, or the members of a team. New teams, and their end.

use super::invitations::InvitationRow;
use super::members::MemberRow;
use super::team_scope::require_team;
use crate::error::PanelError;
use crate::form::SignedForm;
use crate::layout::{Layout, Section, with_team};
use crate::list::{ListQuery, PAGE_SIZE, split_page};
use crate::page::{render, render_with};
use crate::pages::ask::{AskPage, Question, WRONG_NAME};
use crate::session::Visit;
use askama::Template;
use axum::Router;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::get;
use estrade_model::team::{CreateTeam, Role, Team};
use estrade_server::app::AppState;
use estrade_service::Error;
use estrade_service::identity::{invitations, members, teams};
use serde::Deserialize;

pub(super) fn routes() -> Router<AppState> {
    Router::new()
        .route("/panel/team", get(show_team))
        .route("/panel/team/new", get(new_team).post(create_team))
        .route("/panel/team/delete", get(ask_delete).post(delete_team))
}

#[derive(Template)]
#[template(path = "team/teams.html")]
struct TeamsPage {
    layout: Layout,
    teams: Vec<Team>,
    next: Option<String>,
}

#[derive(Template)]
#[template(path = "team/members.html")]
struct MembersPage {
    layout: Layout,
    own_role: &'static str,
    members: Vec<MemberRow>,
    next: Option<String>,
    invitations: Vec<InvitationRow>,
    older_invitations: Option<String>,
    creates_accounts: bool,
    may_delete: bool,
}

async fn show_team(
    State(app): State<AppState>,
    visit: Visit,
    Query(list): Query<ListQuery>,
) -> Result<Response, PanelError> {
    let Some(team) = visit.team() else {
        return show_teams(&app, &visit, &list).await;
    };
    let caller = &visit.scope.caller;
    let found = members::list_members(&app.core, caller, team, list.before()?, PAGE_SIZE + 1, 0);
    let mut found = found.await?;
    let next = split_page(&mut found, |member| member.id);
    let (mut open, mut older_invitations) = (Vec::new(), None);
    if visit.scope.role >= Role::Admin {
        open = invitations::list_invitations(&app.core, &visit.scope, None, PAGE_SIZE + 1).await?;
        older_invitations = split_page(&mut open, |invitation| invitation.id);
    }
    let own = caller.account;
    render(&MembersPage {
        layout: visit.layout("Team", Section::Team),
        own_role: visit.scope.role.as_str(),
        members: found
            .into_iter()
            .map(|row| MemberRow::new(row, own))
            .collect(),
        next,
        invitations: open.into_iter().map(InvitationRow::new).collect(),
        older_invitations,
        creates_accounts: invitations::may_create_accounts(&app.core, caller.admin),
        may_delete: visit.scope.role >= Role::Owner,
    })
}

async fn show_teams(
    app: &AppState,
    visit: &Visit,
    list: &ListQuery,
) -> Result<Response, PanelError> {
    let caller = &visit.scope.caller;
    let mut found = teams::list_teams(&app.core, caller, list.before()?, PAGE_SIZE + 1, 0).await?;
    let next = split_page(&mut found, |team| team.id);
    render(&TeamsPage {
        layout: visit.layout("Teams", Section::Team),
        teams: found,
        next,
    })
}

#[derive(Template)]
#[template(path = "team/new.html")]
struct NewTeamPage {
    layout: Layout,
    problem: String,
    typed: String,
}

#[derive(Default, Deserialize)]
struct NameForm {
    name: String,
}

async fn new_team(visit: Visit) -> Result<Response, PanelError> {
    render(&NewTeamPage {
        layout: visit.layout("New team", Section::Team),
        problem: String::new(),
        typed: String::new(),
    })
}

async fn create_team(
    State(app): State<AppState>,
    visit: Visit,
    SignedForm(form): SignedForm<NameForm>,
) -> Result<Response, PanelError> {
    let created = async {
        let name = form.name.parse().map_err(Error::from)?;
        let new = CreateTeam { name };
        teams::create_team(&app.core, &visit.scope.caller, new).await
    };
    match created.await {
        Ok(team) => {
            let text = format!("The team {} is there; you own it", team.name);
            let path = with_team("/panel/team", Some(team.id));
            // Of the new team, whatever scope the form was in.
            Ok(visit.done_at(text, &path))
        }
        Err(error) => {
            let problem = PanelError::from(error).correctable()?;
            let page = NewTeamPage {
                layout: visit.layout("New team", Section::Team),
                problem,
                typed: form.name,
            };
            render_with(StatusCode::BAD_REQUEST, &page)
        }
    }
}

fn delete_page(visit: &Visit, form: &NameForm) -> AskPage {
    let layout = visit.layout("Delete the team", Section::Team);
    let name = layout.scope_name().to_owned();
    let question = Question {
        title: format!("Delete {name}?"),
        text: "The team, its networks, its workspaces and its audit log are gone for everybody. This cannot be undone."
            .into(),
        label: "Delete team".into(),
        action: "/panel/team/delete".into(),
    };
    AskPage::new(layout, question)
        .below("Team", "/panel/team")
        .with_name(name, &form.name)
}

async fn ask_delete(visit: Visit) -> Result<Response, PanelError> {
    require_team(&visit)?;
    visit.scope.require_to_read(Role::Owner)?;
    delete_page(&visit, &NameForm::default()).respond()
}

async fn delete_team(
    State(app): State<AppState>,
    visit: Visit,
    SignedForm(form): SignedForm<NameForm>,
) -> Result<Response, PanelError> {
    let team = require_team(&visit)?;
    let page = delete_page(&visit, &form);
    let problem = match page.typed_name() {
        Some(name) => match teams::delete_team(&app.core, &visit.scope.caller, team).await {
            Ok(()) => {
                let text = format!("The team {name} was deleted");
                return Ok(visit.done_at(text, "/panel/team"));
            }
            Err(error) => PanelError::from(error).correctable()?,
        },
        None => WRONG_NAME.to_owned(),
    };
    page.refused(problem).respond_with(StatusCode::BAD_REQUEST)
}
