//! One member: their role, and their end in the team.

use super::roles::{self, RoleChoice};
use super::team_scope::require_team;
use crate::error::PanelError;
use crate::form::{NoFields, SignedForm};
use crate::layout::{Layout, Section};
use crate::page::{render, render_with};
use crate::pages::ask::{AskPage, Question};
use crate::session::Visit;
use askama::Template;
use axum::Router;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::get;
use estrade_model::team::{Member, Role};
use estrade_model::{AccountId, TeamId};
use estrade_server::app::AppState;
use estrade_service::Error;
use estrade_service::identity::members;
use serde::Deserialize;

pub(super) fn routes() -> Router<AppState> {
    Router::new()
        .route("/panel/team/members/{id}", get(show_member))
        .route(
            "/panel/team/members/{id}/role",
            get(show_member).post(set_role),
        )
        .route(
            "/panel/team/members/{id}/remove",
            get(ask_remove).post(remove_member),
        )
}

/// A member as pages show it.
pub(super) struct MemberRow {
    pub name: String,
    pub email: String,
    pub role: &'static str,
    pub is_self: bool,
    pub path: String,
    pub remove_path: String,
    pub question: String,
}

impl MemberRow {
    pub(super) fn new(member: Member, own: AccountId) -> Self {
        let path = format!("/panel/team/members/{}", member.id);
        let is_self = member.id == own;
        Self {
            role: member.role.as_str(),
            remove_path: format!("{path}/remove"),
            question: if is_self {
                "Leave this team?".to_owned()
            } else {
                format!("Remove {}?", member.email)
            },
            path,
            is_self,
            name: member.fullname,
            email: member.email,
        }
    }
}

#[derive(Template)]
#[template(path = "team/member.html")]
struct MemberPage {
    layout: Layout,
    member: MemberRow,
    roles: Vec<RoleChoice>,
    role_path: String,
    audit_path: String,
    problem: String,
}

/// The id in a path; what is none names nobody.
fn parse_id(text: &str) -> Result<AccountId, PanelError> {
    Ok(text.parse().map_err(|_| Error::NotFound("the member"))?)
}

async fn find_member(
    app: &AppState,
    visit: &Visit,
    team: TeamId,
    id: AccountId,
) -> Result<Member, PanelError> {
    let found = members::read_member(&app.core, &visit.scope.caller, team, id).await?;
    Ok(found)
}

async fn page(
    app: &AppState,
    visit: &Visit,
    id: AccountId,
    problem: String,
) -> Result<MemberPage, PanelError> {
    let team = require_team(visit)?;
    visit.scope.require_to_read(Role::Admin)?;
    visit.require_recent(app)?;
    let member = find_member(app, visit, team, id).await?;
    Ok(MemberPage {
        layout: visit.layout(member.fullname.clone(), Section::Team),
        roles: roles::choices(visit.scope.role),
        role_path: format!("/panel/team/members/{id}/role"),
        audit_path: format!("/panel/audit?account={id}"),
        member: MemberRow::new(member, visit.scope.caller.account),
        problem,
    })
}

async fn show_member(
    State(app): State<AppState>,
    visit: Visit,
    Path(id): Path<String>,
) -> Result<Response, PanelError> {
    render(&page(&app, &visit, parse_id(&id)?, String::new()).await?)
}

#[derive(Deserialize)]
struct RoleForm {
    role: String,
}

async fn set_role(
    State(app): State<AppState>,
    visit: Visit,
    Path(id): Path<String>,
    SignedForm(form): SignedForm<RoleForm>,
) -> Result<Response, PanelError> {
    let (team, id) = (require_team(&visit)?, parse_id(&id)?);
    visit.require_recent(&app)?;
    let role: Role = form.role.parse().map_err(Error::from)?;
    let caller = &visit.scope.caller;
    match members::set_role(&app.core, caller, team, id, role).await {
        Ok(()) => {
            let text = format!("The role is {} now", role.as_str());
            Ok(visit.done(text, "/panel/team"))
        }
        Err(error) => {
            let problem = PanelError::from(error).correctable()?;
            let page = page(&app, &visit, id, problem).await?;
            render_with(StatusCode::CONFLICT, &page)
        }
    }
}

async fn ask_remove(
    State(app): State<AppState>,
    visit: Visit,
    Path(id): Path<String>,
) -> Result<Response, PanelError> {
    ask(&app, &visit, parse_id(&id)?, String::new()).await
}

async fn ask(
    app: &AppState,
    visit: &Visit,
    id: AccountId,
    problem: String,
) -> Result<Response, PanelError> {
    let team = require_team(visit)?;
    let member = find_member(app, visit, team, id).await?;
    let row = MemberRow::new(member, visit.scope.caller.account);
    let (text, label) = if row.is_self {
        (
            "You lose access to its projects and keys at once. Somebody has to invite you again.",
            "Leave",
        )
    } else {
        (
            "They lose access to the team's projects and keys at once. Somebody has to invite them again.",
            "Remove",
        )
    };
    let question = Question {
        title: row.question,
        text: text.into(),
        label: label.into(),
        action: row.remove_path,
    };
    AskPage::new(visit.layout("Remove a member", Section::Team), question)
        .below("Team", "/panel/team")
        .refused(problem)
        .respond()
}

async fn remove_member(
    State(app): State<AppState>,
    visit: Visit,
    Path(id): Path<String>,
    SignedForm(NoFields {}): SignedForm<NoFields>,
) -> Result<Response, PanelError> {
    let (team, id) = (require_team(&visit)?, parse_id(&id)?);
    let caller = &visit.scope.caller;
    match members::delete_member(&app.core, caller, team, id).await {
        Ok(()) if id == caller.account => Ok(visit.done_at("You left the team", "/panel/team")),
        Ok(()) => Ok(visit.done("The member was removed", "/panel/team")),
        Err(error) => {
            let problem = PanelError::from(error).correctable()?;
            ask(&app, &visit, id, problem).await
        }
    }
}
