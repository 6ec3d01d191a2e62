//! The browsers that are signed in to the person's account.

use super::ask::{AskPage, Question};
use crate::error::PanelError;
use crate::form::{NoFields, SignedForm};
use crate::layout::{Layout, Section};
use crate::list::{ListQuery, PAGE_SIZE, just_after, split_page};
use crate::page::render;
use crate::session::Visit;
use crate::user_agent::describe;
use askama::Template;
use axum::Router;
use axum::extract::{Path, Query, State};
use axum::response::Response;
use axum::routing::get;
use estrade_model::{SessionId, Timestamp};
use estrade_server::app::AppState;
use estrade_service::Error;
use estrade_service::identity::sessions::SessionRow;

const SESSIONS: &str = "/panel/sessions";

pub fn routes() -> Router<AppState> {
    Router::new()
        .route(SESSIONS, get(list_sessions))
        .route(
            "/panel/sessions/end-others",
            get(ask_to_end_others).post(end_others),
        )
        .route(
            "/panel/sessions/{id}/end",
            get(ask_to_end).post(end_session),
        )
}

struct SessionItem {
    device: String,
    user_agent: String,
    address: String,
    created_at: Timestamp,
    last_seen_at: Timestamp,
    current: bool,
    path: String,
    dialog: String,
    question: String,
}

impl SessionItem {
    fn new(row: SessionRow, own: SessionId) -> Self {
        let device = describe(&row.user_agent);
        Self {
            path: format!("{SESSIONS}/{}/end", row.id),
            dialog: format!("end-{}", row.id),
            question: format!("Sign out {device}?"),
            current: own == row.id,
            device,
            user_agent: row.user_agent,
            address: row.address,
            created_at: row.created_at,
            last_seen_at: row.last_seen_at,
        }
    }

    /// What its end does.
    fn effect(&self) -> String {
        let address = &self.address;
        format!("The browser that was last seen at {address} is signed out at once.")
    }
}

#[derive(Template)]
#[template(path = "account/sessions.html")]
struct SessionsPage {
    layout: Layout,
    rows: Vec<SessionItem>,
    others: bool,
    next: Option<String>,
}

async fn list_sessions(
    State(app): State<AppState>,
    visit: Visit,
    Query(list): Query<ListQuery>,
) -> Result<Response, PanelError> {
    let (account, before) = (visit.scope.caller.account, list.before()?);
    let sessions = &app.services.sessions;
    let mut found = sessions.list(account, before, PAGE_SIZE + 1).await?;
    let next = split_page(&mut found, |row| row.id);
    let own = visit.session.session;
    let item = |row| SessionItem::new(row, own);
    let rows: Vec<_> = found.into_iter().map(item).collect();
    render(&SessionsPage {
        layout: visit.layout("Sessions", Section::Sessions),
        others: rows.iter().any(|row| !row.current),
        rows,
        next,
    })
}

async fn ask_to_end(
    State(app): State<AppState>,
    visit: Visit,
    Path(id): Path<SessionId>,
) -> Result<Response, PanelError> {
    let (account, from) = (visit.scope.caller.account, Some(just_after(id)));
    let found = app.services.sessions.list(account, from, 1).await?;
    let found = found.into_iter().find(|row| row.id == id);
    let row = found.ok_or(Error::NotFound("the session"))?;
    let item = SessionItem::new(row, visit.session.session);
    let question = Question {
        title: item.question.clone(),
        text: item.effect(),
        label: "Sign out".into(),
        action: item.path.clone(),
    };
    let layout = visit.layout(item.question, Section::Sessions);
    AskPage::new(layout, question)
        .below("Sessions", SESSIONS)
        .respond()
}

async fn end_session(
    State(app): State<AppState>,
    visit: Visit,
    Path(id): Path<SessionId>,
    SignedForm(NoFields {}): SignedForm<NoFields>,
) -> Result<Response, PanelError> {
    app.services
        .sessions
        .revoke(&visit.scope.caller, id)
        .await?;
    Ok(visit.done("That browser is signed out", SESSIONS))
}

async fn ask_to_end_others(visit: Visit) -> Result<Response, PanelError> {
    let question = Question {
        title: "Sign out all other browsers?".into(),
        text: "Every session but this one ends at once.".into(),
        label: "Sign out all others".into(),
        action: format!("{SESSIONS}/end-others"),
    };
    let layout = visit.layout("Sign out all other browsers?", Section::Sessions);
    AskPage::new(layout, question)
        .below("Sessions", SESSIONS)
        .respond()
}

async fn end_others(
    State(app): State<AppState>,
    visit: Visit,
    SignedForm(NoFields {}): SignedForm<NoFields>,
) -> Result<Response, PanelError> {
    let ended = app
        .services
        .sessions
        .revoke_others(&visit.scope.caller)
        .await?;
    let text = match ended {
        0 => "There was no other session".to_owned(),
        1 => "One other session was ended".to_owned(),
        count => format!("{count} other sessions were ended"),
    };
    Ok(visit.done(text, SESSIONS))
}
