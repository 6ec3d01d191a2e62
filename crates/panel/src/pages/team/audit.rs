//! The audit log of the scope.

use crate::error::{PanelError, sentence};
use crate::layout::{Layout, Section};
use crate::list::{ListQuery, PAGE_SIZE, split_page};
use crate::page::render;
use crate::session::Visit;
use crate::user_agent;
use askama::Template;
use axum::Router;
use axum::extract::{Query, State};
use axum::response::Response;
use axum::routing::get;
use estrade_model::Timestamp;
use estrade_model::audit::{Action, ActionFilter, AuditEntry};
use estrade_server::app::AppState;
use estrade_service::audit::{self, AuditFilter};
use estrade_service::identity::members;
use serde::{Deserialize, Serialize};

pub(super) fn routes() -> Router<AppState> {
    Router::new().route("/panel/audit", get(show_audit))
}

/// How many members the filter offers.
const MAX_PEOPLE: u32 = 200;

/// The filter as it was sent.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
struct AuditQuery {
    #[serde(skip_serializing_if = "String::is_empty")]
    action: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    account: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    subject: String,
    /// Days, such as `2026-11-18`.
    #[serde(skip_serializing_if = "String::is_empty")]
    from: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    to: String,
    #[serde(skip_serializing)]
    before: Option<String>,
}

impl AuditQuery {
    /// What the services understand, and what of it cannot be understood.
    fn filter(&self) -> (AuditFilter, &'static str) {
        let mut problem = "";
        let mut refuse = |message| problem = message;
        let action = match self.action.as_str() {
            "" => ActionFilter::All,
            text => text.parse().unwrap_or_else(|_| {
                refuse("There is no such action.");
                ActionFilter::All
            }),
        };
        let account = match self.account.as_str() {
            "" => None,
            text => text
                .parse()
                .map_err(|_| refuse("There is no such person."))
                .ok(),
        };
        let mut day = |text: &str, time: &str| match text {
            "" => None,
            text => {
                let moment = format!("{text}T{time}Z").parse::<Timestamp>();
                moment
                    .map_err(|_| refuse("A day is written as 2026-11-18."))
                    .ok()
            }
        };
        let (from, to) = (day(&self.from, "00:00:00"), day(&self.to, "23:59:59.999"));
        let filter = AuditFilter {
            action,
            account,
            subject: Some(self.subject.clone()).filter(|subject| !subject.is_empty()),
            from,
            to,
        };
        (filter, problem)
    }

    /// The address of the list with this filter.
    fn path(&self) -> String {
        let query = serde_html_form::to_string(self).unwrap_or_default();
        if query.is_empty() {
            return "/panel/audit".to_owned();
        }
        format!("/panel/audit?{query}")
    }
}

/// An entry as the page shows it.
struct EntryRow {
    at: Timestamp,
    about: &'static str,
    name: String,
    subject_path: String,
    detail: String,
    fields: String,
    who: String,
    with: &'static str,
    address: String,
}

impl EntryRow {
    fn new(entry: AuditEntry) -> Self {
        let by = entry.by;
        Self {
            at: entry.created_at,
            about: entry.action.about().trim_end_matches('.'),
            name: entry.name,
            subject_path: format!("/panel/audit?subject={}", entry.subject),
            detail: match entry.action {
                Action::SignIn if !entry.detail.is_empty() => user_agent::describe(&entry.detail),
                _ => entry.detail,
            },
            fields: entry.fields.join(", "),
            who: match by.account {
                Some(_) => by.email,
                None => "Command line of the server".to_owned(),
            },
            with: match (by.session, by.token) {
                (Some(_), _) => "in the panel",
                (None, Some(_)) => "with a token",
                (None, None) => "",
            },
            address: entry.address.unwrap_or_default(),
        }
    }
}

#[derive(Template)]
#[template(path = "team/audit.html")]
struct AuditPage {
    layout: Layout,
    query: AuditQuery,
    actions: Vec<(String, String)>,
    people: Vec<(String, String)>,
    entries: Vec<EntryRow>,
    next: Option<String>,
    list_path: String,
    is_filtered: bool,
    problem: &'static str,
}

/// Kinds of actions, and the actions of each.
fn action_choices() -> Vec<(String, String)> {
    let mut choices: Vec<(String, String)> = Vec::new();
    let mut last = "";
    for action in Action::ALL {
        let kind = action.kind();
        if kind != last {
            let label = sentence(kind).replace('.', ": everything");
            choices.push((kind.to_owned(), label));
            last = kind;
        }
        let label = action.about().trim_end_matches('.');
        choices.push((action.as_str().to_owned(), label.to_owned()));
    }
    choices
}

async fn show_audit(
    State(app): State<AppState>,
    visit: Visit,
    Query(query): Query<AuditQuery>,
) -> Result<Response, PanelError> {
    let (filter, problem) = query.filter();
    let list = ListQuery {
        before: query.before.clone(),
    };
    let (scope, before) = (&visit.scope, list.before()?);
    let entries = audit::list_entries(&app.core, scope, &filter, before, PAGE_SIZE + 1, 0);
    let mut entries = entries.await?;
    let next = split_page(&mut entries, |entry| entry.id);
    let mut people = Vec::new();
    if let Some(team) = visit.team() {
        let members = members::list_members(&app.core, &scope.caller, team, None, MAX_PEOPLE, 0);
        let choice = |member: estrade_model::team::Member| (member.id.to_string(), member.email);
        people = members.await?.into_iter().map(choice).collect();
    }
    let list_path = query.path();
    render(&AuditPage {
        layout: visit.layout("Audit log", Section::Audit),
        is_filtered: list_path.contains('?'),
        list_path,
        query,
        actions: action_choices(),
        people,
        entries: entries.into_iter().map(EntryRow::new).collect(),
        next,
        problem,
    })
}
