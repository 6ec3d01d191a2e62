//! Tokens of the person: programs sign in to both APIs with them.

use super::ask::{AskPage, Question};
use crate::error::PanelError;
use crate::form::{NoFields, SignedForm};
use crate::layout::{Layout, Section};
use crate::list::{ListQuery, PAGE_SIZE, just_after, split_page};
use crate::page::{render, render_with};
use crate::session::Visit;
use askama::Template;
use axum::Router;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::get;
use estrade_model::TokenId;
use estrade_model::account::Token;
use estrade_model::names::Label;
use estrade_model::secret::Secret;
use estrade_model::time::Lifetime;
use estrade_model::token_scope::TokenScope;
use estrade_server::app::AppState;
use estrade_service::Error;
use estrade_service::identity::tokens::{self, TokenRequest};
use estrade_service::platform::projects::{self, PageOfProjects};
use serde::Deserialize;

const TOKENS: &str = "/panel/tokens";
/// What a revocation does.
const REVOCATION: &str =
    "Programs that use it are refused from the next request on. This cannot be undone.";

pub fn routes() -> Router<AppState> {
    Router::new()
        .route(TOKENS, get(list_tokens))
        .route("/panel/tokens/new", get(show_new).post(create_token))
        .route(
            "/panel/tokens/{id}/revoke",
            get(ask_to_revoke).post(revoke_token),
        )
}

struct TokenItem {
    token: Token,
    expired: bool,
    path: String,
    dialog: String,
    question: String,
    effect: &'static str,
}

#[derive(Template)]
#[template(path = "tokens/list.html")]
struct TokensPage {
    layout: Layout,
    rows: Vec<TokenItem>,
    next: Option<String>,
}

async fn list_tokens(
    State(app): State<AppState>,
    visit: Visit,
    Query(list): Query<ListQuery>,
) -> Result<Response, PanelError> {
    let caller = &visit.scope.caller;
    let count = PAGE_SIZE + 1;
    let mut found = tokens::list_tokens(&app.core, caller, list.before()?, count, 0).await?;
    let next = split_page(&mut found, |token| token.id);
    let now = app.core.now();
    let item = |token: Token| TokenItem {
        expired: token.expires_at.is_some_and(|at| at <= now),
        path: format!("{TOKENS}/{}/revoke", token.id),
        dialog: format!("revoke-{}", token.id),
        question: format!("Revoke {}?", token.name),
        effect: REVOCATION,
        token,
    };
    render(&TokensPage {
        layout: visit.layout("Tokens", Section::Tokens),
        rows: found.into_iter().map(item).collect(),
        next,
    })
}

const LIFETIMES: &[(&str, &str)] = &[
    ("7d", "7 days"),
    ("30d", "30 days"),
    ("90d", "90 days"),
    ("1y", "1 year"),
    ("never", "No end"),
];

/// Projects to choose from, the newest ones.
const MAX_CHOICES: u32 = 100;

pub(super) struct ScopeChoice {
    pub(super) value: &'static str,
    pub(super) label: &'static str,
    pub(super) text: &'static str,
}

pub(super) const SCOPES: &[ScopeChoice] = &[
    ScopeChoice {
        value: "full",
        label: "Everything",
        text: "All that you may do, on both APIs.",
    },
    ScopeChoice {
        value: "read",
        label: "Read",
        text: "Looks, but changes nothing. Values of variables are masked; no sources, no shell.",
    },
    ScopeChoice {
        value: "project",
        label: "One project",
        text: "Everything with one project, and nothing else.",
    },
    ScopeChoice {
        value: "ai",
        label: "AI",
        text: "Keys, workspaces, usage and calls.",
    },
];

#[derive(Deserialize)]
struct NewTokenForm {
    name: String,
    lifetime: String,
    scope: String,
    /// The project of the scope `project`.
    #[serde(default)]
    project: String,
}

#[derive(Template)]
#[template(path = "tokens/new.html")]
struct NewTokenPage {
    layout: Layout,
    problem: String,
    form: NewTokenForm,
    lifetimes: &'static [(&'static str, &'static str)],
    scopes: &'static [ScopeChoice],
    /// Ids and names.
    projects: Vec<(String, String)>,
}

async fn new_token_page(
    app: &AppState,
    visit: &Visit,
    form: NewTokenForm,
    problem: String,
) -> Result<NewTokenPage, PanelError> {
    let page = PageOfProjects {
        before: None,
        search: None,
        count: MAX_CHOICES,
    };
    let found = projects::list_summaries(&app.core, &visit.scope, &page).await?;
    let named = found
        .into_iter()
        .map(|found| (found.project.id.to_string(), found.project.project_id));
    let mut named: Vec<_> = named.collect();
    // One that was chosen is offered, however old it is.
    if !form.project.is_empty() && named.iter().all(|(id, _)| *id != form.project) {
        match projects::read_overview(&app.core, &visit.scope, &form.project).await {
            Ok(found) => named.insert(0, (form.project.clone(), found.project.project_id)),
            Err(Error::NotFound(_)) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(NewTokenPage {
        layout: visit.layout("New token", Section::Tokens),
        problem,
        form,
        lifetimes: LIFETIMES,
        scopes: SCOPES,
        projects: named,
    })
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct NewTokenQuery {
    /// The name of the project that it is for.
    project: String,
}

async fn show_new(
    State(app): State<AppState>,
    visit: Visit,
    Query(query): Query<NewTokenQuery>,
) -> Result<Response, PanelError> {
    visit.require_recent(&app)?;
    let mut form = NewTokenForm {
        name: String::new(),
        lifetime: "90d".to_owned(),
        scope: "full".to_owned(),
        project: String::new(),
    };
    if !query.project.is_empty() {
        let found = projects::read_overview(&app.core, &visit.scope, &query.project).await?;
        form.scope = String::from("project");
        form.project = found.project.id.to_string();
    }
    render(&new_token_page(&app, &visit, form, String::new()).await?)
}

/// What the form asks for.
fn read_form(form: &NewTokenForm) -> Result<TokenRequest, Error> {
    let name = form.name.trim().parse::<Label>();
    let name = name.map_err(|invalid| Error::invalid(format!("name: {}", invalid.0)))?;
    let scope: TokenScope = match form.scope.as_str() {
        "project" => match form.project.parse() {
            Ok(project) => TokenScope::Project(project),
            Err(_) => return Err(Error::invalid("project: choose the one that it is for")),
        },
        other => other.parse()?,
    };
    let lifetime: Lifetime = form.lifetime.parse()?;
    Ok(TokenRequest {
        name: name.into(),
        scope,
        lifetime,
    })
}

#[derive(Template)]
#[template(path = "tokens/created.html")]
struct TokenCreatedPage {
    layout: Layout,
    name: String,
    secret: Secret,
    example: String,
}

async fn create_token(
    State(app): State<AppState>,
    visit: Visit,
    SignedForm(form): SignedForm<NewTokenForm>,
) -> Result<Response, PanelError> {
    visit.require_recent(&app)?;
    let caller = &visit.scope.caller;
    let made = match read_form(&form) {
        Ok(new) => tokens::create_token(&app.core, caller, new).await,
        Err(error) => Err(error),
    };
    let made = match made {
        Ok(made) => made,
        Err(error) => {
            let problem = PanelError::from(error).correctable()?;
            let page = new_token_page(&app, &visit, form, problem).await?;
            return render_with(StatusCode::BAD_REQUEST, &page);
        }
    };
    let base = &app.core.settings.public_url;
    render(&TokenCreatedPage {
        layout: visit.layout("New token", Section::Tokens),
        name: form.name.trim().to_owned(),
        secret: made
            .api_token
            .ok_or_else(|| Error::internal("a new token has no text"))?,
        example: format!("curl {base}/v1/me -H \"Authorization: Bearer $ESTRADE_TOKEN\""),
    })
}

async fn ask_to_revoke(
    State(app): State<AppState>,
    visit: Visit,
    Path(id): Path<TokenId>,
) -> Result<Response, PanelError> {
    let caller = &visit.scope.caller;
    let found = tokens::list_tokens(&app.core, caller, Some(just_after(id)), 1, 0).await?;
    let found = found.into_iter().find(|token| token.id == id);
    let token = found.ok_or(Error::NotFound("the token"))?;
    let question = Question {
        title: format!("Revoke {}?", token.name),
        text: REVOCATION.into(),
        label: "Revoke".into(),
        action: format!("{TOKENS}/{id}/revoke"),
    };
    let layout = visit.layout(format!("Revoke {}?", token.name), Section::Tokens);
    AskPage::new(layout, question)
        .below("Tokens", TOKENS)
        .respond()
}

async fn revoke_token(
    State(app): State<AppState>,
    visit: Visit,
    Path(id): Path<TokenId>,
    SignedForm(NoFields {}): SignedForm<NoFields>,
) -> Result<Response, PanelError> {
    tokens::delete_token(&app.core, &visit.scope.caller, id).await?;
    Ok(visit.done("The token was revoked", TOKENS))
}
