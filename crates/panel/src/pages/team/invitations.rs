//! Inviting people, and withdrawing invitations.

use super::roles::{self, RoleChoice};
use super::team_scope::require_team;
use crate::error::PanelError;
use crate::form::{NoFields, SignedForm};
use crate::layout::{Layout, Section};
use crate::list::{ListQuery, PAGE_SIZE, split_page};
use crate::page::{render, render_with};
use crate::pages::ask::{AskPage, Question};
use crate::session::Visit;
use askama::Template;
use axum::Router;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::get;
use estrade_model::id::kind;
use estrade_model::secret::Secret;
use estrade_model::team::{Invite, Role};
use estrade_model::{Id, Timestamp};
use estrade_server::app::AppState;
use estrade_service::Error;
use estrade_service::identity::invitations::{self, OpenInvitation};
use serde::Deserialize;

pub(super) fn routes() -> Router<AppState> {
    Router::new()
        .route("/panel/team/invite", get(new_invitation).post(invite))
        .route("/panel/team/invitations", get(list_invitations))
        .route(
            "/panel/team/invitations/{id}/delete",
            get(ask_delete).post(delete_invitation),
        )
}

/// An open invitation as pages show it.
pub(super) struct InvitationRow {
    pub email: String,
    pub role: &'static str,
    pub expires_at: Timestamp,
    pub dialog: String,
    pub path: String,
    pub question: String,
}

impl InvitationRow {
    pub(super) fn new(row: OpenInvitation) -> Self {
        Self {
            role: row.role.as_str(),
            expires_at: row.expires_at,
            dialog: format!("withdraw-{}", row.id),
            path: format!("/panel/team/invitations/{}/delete", row.id),
            question: format!("Withdraw the invitation of {}?", row.email),
            email: row.email,
        }
    }
}

#[derive(Template)]
#[template(path = "team/invitations.html")]
struct InvitationsPage {
    layout: Layout,
    invitations: Vec<InvitationRow>,
    next: Option<String>,
}

async fn list_invitations(
    State(app): State<AppState>,
    visit: Visit,
    Query(list): Query<ListQuery>,
) -> Result<Response, PanelError> {
    require_team(&visit)?;
    let before = list.before()?;
    let found = invitations::list_invitations(&app.core, &visit.scope, before, PAGE_SIZE + 1);
    let mut found = found.await?;
    let next = split_page(&mut found, |invitation| invitation.id);
    render(&InvitationsPage {
        layout: visit.layout("Invitations", Section::Team),
        invitations: found.into_iter().map(InvitationRow::new).collect(),
        next,
    })
}

#[derive(Template)]
#[template(path = "team/invite.html")]
struct InvitePage {
    layout: Layout,
    problem: String,
    creates_accounts: bool,
    email: String,
    role: String,
    roles: Vec<RoleChoice>,
}

#[derive(Template)]
#[template(path = "team/invited.html")]
struct InvitedPage {
    layout: Layout,
    email: String,
    role: &'static str,
    link: Secret,
}

#[derive(Deserialize)]
struct InviteForm {
    email: String,
    role: String,
}

fn invite_page(app: &AppState, visit: &Visit, form: InviteForm, problem: String) -> InvitePage {
    let by_admin = visit.scope.caller.admin;
    InvitePage {
        layout: visit.layout("Invite somebody", Section::Team),
        problem,
        creates_accounts: invitations::may_create_accounts(&app.core, by_admin),
        email: form.email,
        role: form.role,
        roles: roles::choices(visit.scope.role),
    }
}

async fn new_invitation(State(app): State<AppState>, visit: Visit) -> Result<Response, PanelError> {
    require_team(&visit)?;
    visit.scope.require_to_read(Role::Admin)?;
    visit.require_recent(&app)?;
    let form = InviteForm {
        email: String::new(),
        role: Role::Viewer.as_str().to_owned(),
    };
    render(&invite_page(&app, &visit, form, String::new()))
}

async fn invite(
    State(app): State<AppState>,
    visit: Visit,
    SignedForm(form): SignedForm<InviteForm>,
) -> Result<Response, PanelError> {
    let team = require_team(&visit)?;
    visit.require_recent(&app)?;
    let made = async {
        let invite = Invite {
            email: form.email.trim().parse().map_err(Error::from)?,
            role: form.role.parse().map_err(Error::from)?,
        };
        let role = invite.role;
        let caller = &visit.scope.caller;
        let made = invitations::create_invitation(&app.core, caller, team, invite).await?;
        let link = made
            .link
            .ok_or_else(|| Error::internal("a new link has no text"))?;
        Ok::<_, Error>((role, link))
    };
    match made.await {
        // In this response only: it is a secret.
        Ok((role, link)) => render(&InvitedPage {
            layout: visit.layout("Invited", Section::Team),
            email: form.email.trim().to_lowercase(),
            role: role.as_str(),
            link,
        }),
        Err(error) => {
            let problem = PanelError::from(error).correctable()?;
            let page = invite_page(&app, &visit, form, problem);
            render_with(StatusCode::BAD_REQUEST, &page)
        }
    }
}

fn parse_id(text: &str) -> Result<Id<kind::Invitation>, Error> {
    text.parse().map_err(|_| Error::NotFound("the invitation"))
}

async fn ask_delete(visit: Visit, Path(id): Path<String>) -> Result<Response, PanelError> {
    require_team(&visit)?;
    visit.scope.require_to_read(Role::Admin)?;
    // Only an id becomes a part of the form's action: another path would get this session's token.
    let id = parse_id(&id)?;
    let question = Question {
        title: "Withdraw this invitation?".into(),
        text: "Its link stops working at once.".into(),
        label: "Withdraw".into(),
        action: format!("/panel/team/invitations/{id}/delete"),
    };
    let layout = visit.layout("Withdraw an invitation", Section::Team);
    AskPage::new(layout, question)
        .below("Team", "/panel/team")
        .respond()
}

async fn delete_invitation(
    State(app): State<AppState>,
    visit: Visit,
    Path(id): Path<String>,
    SignedForm(NoFields {}): SignedForm<NoFields>,
) -> Result<Response, PanelError> {
    require_team(&visit)?;
    let id = parse_id(&id)?;
    invitations::delete_invitation(&app.core, &visit.scope, id).await?;
    Ok(visit.done("The invitation was withdrawn", "/panel/team"))
}
