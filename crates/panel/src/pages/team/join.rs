//! The link of an invitation: for who is signed in, who has an account, and who has none yet.
//!
//! To look at a link leaves it good, because mail programs and chats open what they show. Where the link makes no
//! account, the page is the same with and without one: whoever invites any address must not learn which it is.

use super::roles;
use crate::error::PanelError;
use crate::form::{NoFields, PublicForm, SignedForm};
use crate::layout::with_team;
use crate::page::{render, render_with};
use crate::pages::sign_in;
use crate::respond::see_other;
use crate::session::{Browser, Visit};
use askama::Template;
use axum::Router;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::{get, post};
use estrade_model::secret::Secret;
use estrade_server::app::AppState;
use estrade_service::Error;
use estrade_service::identity::invitations::{self, InvitationOffer};
use serde::Deserialize;

pub(super) fn routes() -> Router<AppState> {
    Router::new()
        .route("/panel/join", get(find_join))
        .route("/panel/join/{code}", get(show_join).post(join_as_new))
        .route("/panel/join/{code}/accept", post(accept))
}

/// Codes are base 64 for URLs; nothing else gets into an address.
fn is_code(text: &str) -> bool {
    let fine = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_';
    (1..=100).contains(&text.len()) && text.bytes().all(fine)
}

#[derive(Deserialize)]
struct TokenQuery {
    #[serde(default)]
    token: String,
}

/// The address that the API gives out.
async fn find_join(Query(query): Query<TokenQuery>) -> Result<Response, PanelError> {
    if !is_code(&query.token) {
        return join_ended();
    }
    Ok(see_other(&format!("/panel/join/{}", query.token)))
}

/// Who looks at the link.
enum JoinState {
    /// Nobody has the address yet, and the link makes the account; with the name that was typed.
    New(String),
    /// Whom it is for; with the token of their forms.
    SignedIn(String),
    SignedOut,
    /// Somebody else; with their address and the token of their forms.
    Other(String, String),
}

#[derive(Template)]
#[template(path = "team/join.html")]
struct JoinPage {
    team: String,
    role: &'static str,
    role_text: &'static str,
    email: String,
    action: String,
    problem: String,
    state: JoinState,
}

#[derive(Template)]
#[template(path = "team/join_ended.html")]
struct JoinEndedPage {}

fn join_ended() -> Result<Response, PanelError> {
    render_with(StatusCode::NOT_FOUND, &JoinEndedPage {})
}

fn page(offer: InvitationOffer, code: &str, state: JoinState, problem: String) -> JoinPage {
    let InvitationOffer { invitation, .. } = offer;
    JoinPage {
        team: invitation.team_name,
        role: invitation.role.as_str(),
        role_text: roles::text(invitation.role),
        email: invitation.email,
        action: format!("/panel/join/{code}"),
        problem,
        state,
    }
}

async fn show_join(
    State(app): State<AppState>,
    Path(code): Path<String>,
    visit: Result<Visit, PanelError>,
) -> Result<Response, PanelError> {
    let Some(offer) = find_offer(&app, &code).await? else {
        return join_ended();
    };
    let state = match visit {
        Ok(visit) if visit.scope.caller.email == offer.invitation.email => {
            JoinState::SignedIn(visit.csrf().text())
        }
        Ok(visit) => JoinState::Other(visit.scope.caller.email.clone(), visit.csrf().text()),
        Err(_) if offer.creates_account => JoinState::New(String::new()),
        Err(_) => JoinState::SignedOut,
    };
    render(&page(offer, &code, state, String::new()))
}

async fn find_offer(app: &AppState, code: &str) -> Result<Option<InvitationOffer>, PanelError> {
    if !is_code(code) {
        return Ok(None);
    }
    Ok(invitations::peek_invitation(&app.core, code).await?)
}

#[derive(Deserialize)]
struct NewAccountForm {
    name: String,
    password: Secret,
    repeated: Secret,
}

async fn join_as_new(
    State(app): State<AppState>,
    Path(code): Path<String>,
    Browser(client): Browser,
    PublicForm(form): PublicForm<NewAccountForm>,
) -> Result<Response, PanelError> {
    let Some(offer) = find_offer(&app, &code).await? else {
        return join_ended();
    };
    if !offer.creates_account {
        let page = page(offer, &code, JoinState::SignedOut, String::new());
        return render_with(StatusCode::FORBIDDEN, &page);
    }
    let team = offer.invitation.team;
    let joined = async {
        if form.password != form.repeated {
            return Err(Error::invalid("the two passwords are not the same"));
        }
        let name = form.name.trim().parse().map_err(Error::from)?;
        let origin = client.origin();
        let password = form.password.clone();
        invitations::join_as_new(&app.core, &code, name, password, origin).await
    };
    match joined.await {
        Ok(email) => {
            let next = with_team("/panel/projects", Some(team));
            sign_in::begin(&app, &email, form.password, &next, &client).await
        }
        Err(Error::NotFound(_)) => join_ended(),
        Err(error) => {
            let problem = PanelError::from(error).correctable()?;
            let page = page(offer, &code, JoinState::New(form.name), problem);
            render_with(StatusCode::BAD_REQUEST, &page)
        }
    }
}

async fn accept(
    State(app): State<AppState>,
    Path(code): Path<String>,
    visit: Visit,
    SignedForm(NoFields {}): SignedForm<NoFields>,
) -> Result<Response, PanelError> {
    match invitations::join_team(&app.core, &visit.scope.caller, &code).await {
        Ok(team) => {
            let path = with_team("/panel/projects", Some(team.id));
            let text = format!("You are a member of {} now", team.name);
            Ok(visit.done_at(text, &path))
        }
        Err(Error::NotFound(_)) => join_ended(),
        Err(error) => Err(error.into()),
    }
}
