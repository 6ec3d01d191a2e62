//! The page where a person approves a login of the command line: first the code, then who asks, then the answer.
//!
//! Whoever begins a login may send its code to somebody else. So nothing is approved by a link alone, the page says
//! what is about to be given away, and from where it was asked for, and it names the program and its machine as what
//! they call themselves.

use super::tokens::SCOPES;
use crate::error::PanelError;
use crate::form::SignedForm;
use crate::layout::{Layout, Section};
use crate::page::{render, render_with};
use crate::session::Visit;
use crate::user_agent;
use askama::Template;
use axum::Router;
use axum::extract::{Query, State};
use axum::response::Response;
use axum::routing::get;
use estrade_model::Timestamp;
use estrade_model::device_login::UserCode;
use estrade_model::token_scope::TokenScope;
use estrade_server::app::AppState;
use estrade_service::Error;
use estrade_service::identity::device_login::approval::{self, LoginRequest};
use serde::Deserialize;

/// Longest text that is shown again in the field of the code.
const MAX_CODE_CHARS: usize = 20;

pub fn routes() -> Router<AppState> {
    Router::new().route("/panel/device", get(show_device).post(answer))
}

#[derive(Deserialize)]
struct CodeQuery {
    #[serde(default)]
    code: String,
}

/// The form that asks for the code.
#[derive(Template)]
#[template(path = "device/code.html")]
struct CodePage {
    layout: Layout,
    problem: String,
    code: String,
}

impl CodePage {
    fn new(visit: &Visit, code: &str, problem: String) -> Self {
        Self {
            layout: visit.layout("Log in a command line", Section::Tokens),
            problem,
            code: code.chars().take(MAX_CODE_CHARS).collect(),
        }
    }
}

/// A link may fill the code in; the person still sends it.
async fn show_device(
    State(app): State<AppState>,
    visit: Visit,
    Query(query): Query<CodeQuery>,
) -> Result<Response, PanelError> {
    visit.require_recent(&app)?;
    render(&CodePage::new(&visit, &query.code, String::new()))
}

#[derive(Deserialize)]
struct DeviceForm {
    code: String,
    /// Which button was used: nothing for the first form.
    #[serde(default)]
    answer: String,
}

/// Who asks, and for what.
#[derive(Template)]
#[template(path = "device/request.html")]
struct RequestPage {
    layout: Layout,
    code: String,
    host: String,
    program: String,
    address: String,
    /// Where the browser is, when that is somewhere else.
    elsewhere: Option<String>,
    created_at: Timestamp,
    scope: String,
    scope_text: &'static str,
    /// Whether it only waits for its client, and can be taken back.
    approved: bool,
}

impl RequestPage {
    fn new(visit: &Visit, code: &str, request: LoginRequest) -> Self {
        let here = visit.client.address.to_canonical();
        let is_here = request.is_from_network_of(here);
        let known = |scope: &&super::tokens::ScopeChoice| {
            scope.value == request.scope.kind().as_str()
                || (scope.value == "project" && request.scope.project().is_some())
        };
        let choice = SCOPES.iter().find(known);
        let label = choice.map_or("", |choice| choice.label);
        let scope = match (request.scope, &request.project) {
            (TokenScope::Project(_), Some(name)) => format!("{label}: {name}"),
            (TokenScope::Project(id), None) => format!("{label}: {id}"),
            _ => label.to_owned(),
        };
        let title = if request.approved {
            "Take this login back?"
        } else {
            "Approve this login?"
        };
        Self {
            layout: visit.layout(title, Section::Tokens),
            code: code
                .parse::<UserCode>()
                .map_or_else(|_| String::new(), |code| code.to_string()),
            host: request.host,
            program: user_agent::describe(&request.user_agent),
            elsewhere: (!is_here).then(|| here.to_string()),
            address: request.address,
            created_at: request.created_at,
            approved: request.approved,
            scope,
            scope_text: choice.map_or("", |choice| choice.text),
        }
    }
}

async fn answer(
    State(app): State<AppState>,
    visit: Visit,
    SignedForm(form): SignedForm<DeviceForm>,
) -> Result<Response, PanelError> {
    let (core, caller, typed) = (&app.core, &visit.scope.caller, form.code.as_str());
    let answered = match form.answer.as_str() {
        "approve" => approval::approve(core, caller, typed).await.map(|()| {
            let text = "Approved. Go back to your command line: it goes on by itself";
            visit.done(text, "/panel/tokens")
        }),
        "deny" => approval::deny(core, caller, typed).await.map(|()| {
            let text = "Denied. Whoever began this login gets nothing";
            visit.done(text, "/panel/tokens")
        }),
        "" => match approval::find_login(core, caller, typed).await {
            Ok(request) => return render(&RequestPage::new(&visit, typed, request)),
            Err(error) => Err(error),
        },
        _ => Err(Error::invalid("answer: approve or deny")),
    };
    let error = match answered.map_err(PanelError::from) {
        Ok(response) => return Ok(response),
        Err(error) => error,
    };
    let status = error.status();
    let page = CodePage::new(&visit, typed, error.correctable()?);
    render_with(status, &page)
}
