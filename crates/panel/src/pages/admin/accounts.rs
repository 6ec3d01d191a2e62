//! Accounts, for administrators.

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
use estrade_model::AccountId;
use estrade_model::secret::Secret;
use estrade_server::app::AppState;
use estrade_service::Error;
use estrade_service::identity::accounts::{self, AccountRow};
use estrade_service::identity::reset_links::{self, LinkKind};
use serde::{Deserialize, Serialize};

const LIST: &str = "/panel/admin/accounts";

pub(super) fn routes() -> Router<AppState> {
    Router::new()
        .route("/panel/admin/accounts", get(list_accounts))
        .route(
            "/panel/admin/accounts/new",
            get(new_account).post(create_account),
        )
        .route("/panel/admin/accounts/{id}", get(show_account))
        .route(
            "/panel/admin/accounts/{id}/reset-link",
            get(ask_reset_link).post(create_reset_link),
        )
        .route(
            "/panel/admin/accounts/{id}/disable",
            get(ask_disable).post(disable_account),
        )
        .route(
            "/panel/admin/accounts/{id}/enable",
            get(ask_enable).post(enable_account),
        )
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct SearchQuery {
    #[serde(skip_serializing_if = "String::is_empty")]
    q: String,
    #[serde(skip_serializing)]
    before: Option<String>,
}

#[derive(Template)]
#[template(path = "admin/accounts.html")]
struct AccountsPage {
    layout: Layout,
    search: String,
    rows: Vec<AccountRow>,
    next: Option<String>,
    list_path: String,
}

async fn list_accounts(
    State(app): State<AppState>,
    visit: Visit,
    Query(query): Query<SearchQuery>,
) -> Result<Response, PanelError> {
    let before = ListQuery {
        before: query.before.clone(),
    };
    let (caller, text) = (&visit.scope.caller, query.q.trim());
    let found = accounts::search_accounts(&app.core, caller, text, before.before()?, PAGE_SIZE + 1);
    let mut rows = found.await?;
    let next = split_page(&mut rows, |row| row.id);
    let encoded = serde_html_form::to_string(&query).unwrap_or_default();
    render(&AccountsPage {
        layout: visit.layout("Accounts", Section::AdminAccounts),
        list_path: match encoded.as_str() {
            "" => LIST.to_owned(),
            encoded => format!("{LIST}?{encoded}"),
        },
        search: query.q,
        rows,
        next,
    })
}

#[derive(Template)]
#[template(path = "admin/account_new.html")]
struct NewAccountPage {
    layout: Layout,
    problem: String,
    form: NewAccountForm,
}

#[derive(Default, Deserialize)]
struct NewAccountForm {
    email: String,
    fullname: String,
    /// A box that is not ticked is not sent.
    #[serde(default)]
    admin: String,
}

#[derive(Template)]
#[template(path = "admin/account_link.html")]
struct LinkPage {
    layout: Layout,
    title: String,
    email: String,
    link: Secret,
}

async fn new_account(State(app): State<AppState>, visit: Visit) -> Result<Response, PanelError> {
    visit.scope.caller.require_admin_to_read()?;
    visit.require_recent(&app)?;
    render(&NewAccountPage {
        layout: visit.layout("New account", Section::AdminAccounts),
        problem: String::new(),
        form: NewAccountForm::default(),
    })
}

async fn create_account(
    State(app): State<AppState>,
    visit: Visit,
    SignedForm(form): SignedForm<NewAccountForm>,
) -> Result<Response, PanelError> {
    visit.scope.caller.require_admin_to_read()?;
    visit.require_recent(&app)?;
    let caller = &visit.scope.caller;
    let made = async {
        let email = form.email.trim().parse().map_err(Error::from)?;
        let name = form.fullname.trim().parse().map_err(Error::from)?;
        let admin = !form.admin.is_empty();
        let id = accounts::create_account_by(&app.core, caller, email, name, admin).await?;
        reset_links::create_reset_link(&app.core, caller, id).await
    };
    match made.await {
        Ok(code) => {
            let email = form.email.trim().to_lowercase();
            show_link(
                &app,
                &visit,
                format!("The account {email} is there"),
                email,
                &code,
            )
        }
        Err(error) => {
            let problem = PanelError::from(error).correctable()?;
            let page = NewAccountPage {
                layout: visit.layout("New account", Section::AdminAccounts),
                problem,
                form,
            };
            render_with(StatusCode::BAD_REQUEST, &page)
        }
    }
}

/// In this response only: the link is a secret.
fn show_link(
    app: &AppState,
    visit: &Visit,
    title: String,
    email: String,
    code: &Secret,
) -> Result<Response, PanelError> {
    render(&LinkPage {
        layout: visit.layout("Link", Section::AdminAccounts),
        title,
        email,
        link: reset_links::url(&app.core, LinkKind::Reset, code),
    })
}

#[derive(Template)]
#[template(path = "admin/account.html")]
struct AccountPage {
    layout: Layout,
    account: AccountRow,
    is_self: bool,
    path: String,
}

/// The id in a path; what is none names nobody.
fn parse_id(text: &str) -> Result<AccountId, PanelError> {
    Ok(text.parse().map_err(|_| Error::NotFound("the account"))?)
}

async fn show_account(
    State(app): State<AppState>,
    visit: Visit,
    Path(id): Path<String>,
) -> Result<Response, PanelError> {
    let caller = &visit.scope.caller;
    let account = accounts::read_account(&app.core, caller, parse_id(&id)?).await?;
    render(&AccountPage {
        layout: visit.layout(account.email.clone(), Section::AdminAccounts),
        is_self: account.id == caller.account,
        path: format!("{LIST}/{}", account.id),
        account,
    })
}

/// What is asked before an account is changed.
struct Change {
    verb: &'static str,
    title: fn(&str) -> String,
    text: &'static str,
    label: &'static str,
    is_harmless: bool,
}

async fn ask(
    app: &AppState,
    visit: &Visit,
    id: &str,
    change: &Change,
    problem: String,
) -> Result<Response, PanelError> {
    let account = accounts::read_account(&app.core, &visit.scope.caller, parse_id(id)?).await?;
    visit.require_recent(app)?;
    let path = format!("{LIST}/{}", account.id);
    let question = Question {
        title: (change.title)(&account.email),
        text: change.text.into(),
        label: change.label.into(),
        action: format!("{path}/{}", change.verb),
    };
    let layout = visit.layout(change.label, Section::AdminAccounts);
    let page = AskPage::new(layout, question)
        .below("Accounts", LIST)
        .below(account.email, path)
        .refused(problem);
    if change.is_harmless {
        return page.harmless().respond();
    }
    page.respond()
}

const RESET: Change = Change {
    verb: "reset-link",
    title: |email| format!("Make a reset link for {email}?"),
    text: "Whoever has the link sets the account's password, once, within an hour. That ends its sessions and API tokens. An earlier link ends at once.",
    label: "Make a link",
    is_harmless: true,
};
const DISABLE: Change = Change {
    verb: "disable",
    title: |email| format!("Lock {email} out?"),
    text: "Its sessions, tokens and AI keys are refused from the next request on. Its projects keep running.",
    label: "Lock out",
    is_harmless: false,
};
const ENABLE: Change = Change {
    verb: "enable",
    title: |email| format!("Let {email} in again?"),
    text: "Its tokens and AI keys work again.",
    label: "Let in",
    is_harmless: true,
};

async fn ask_reset_link(
    State(app): State<AppState>,
    visit: Visit,
    Path(id): Path<String>,
) -> Result<Response, PanelError> {
    ask(&app, &visit, &id, &RESET, String::new()).await
}

async fn create_reset_link(
    State(app): State<AppState>,
    visit: Visit,
    Path(id): Path<String>,
    SignedForm(NoFields {}): SignedForm<NoFields>,
) -> Result<Response, PanelError> {
    let caller = &visit.scope.caller;
    let account = accounts::read_account(&app.core, caller, parse_id(&id)?).await?;
    visit.require_recent(&app)?;
    match reset_links::create_reset_link(&app.core, caller, account.id).await {
        Ok(code) => {
            let title = format!("A link for {}", account.email);
            show_link(&app, &visit, title, account.email, &code)
        }
        Err(error) => {
            let problem = PanelError::from(error).correctable()?;
            ask(&app, &visit, &id, &RESET, problem).await
        }
    }
}

async fn ask_disable(
    State(app): State<AppState>,
    visit: Visit,
    Path(id): Path<String>,
) -> Result<Response, PanelError> {
    ask(&app, &visit, &id, &DISABLE, String::new()).await
}

async fn ask_enable(
    State(app): State<AppState>,
    visit: Visit,
    Path(id): Path<String>,
) -> Result<Response, PanelError> {
    ask(&app, &visit, &id, &ENABLE, String::new()).await
}

async fn disable_account(
    State(app): State<AppState>,
    visit: Visit,
    Path(id): Path<String>,
    SignedForm(NoFields {}): SignedForm<NoFields>,
) -> Result<Response, PanelError> {
    set_disabled(&app, &visit, &id, true).await
}

async fn enable_account(
    State(app): State<AppState>,
    visit: Visit,
    Path(id): Path<String>,
    SignedForm(NoFields {}): SignedForm<NoFields>,
) -> Result<Response, PanelError> {
    set_disabled(&app, &visit, &id, false).await
}

async fn set_disabled(
    app: &AppState,
    visit: &Visit,
    id: &str,
    disabled: bool,
) -> Result<Response, PanelError> {
    let (caller, account) = (&visit.scope.caller, parse_id(id)?);
    caller.require_admin_to_read()?;
    visit.require_recent(app)?;
    match accounts::set_disabled_by(&app.core, caller, account, disabled).await {
        Ok(email) => {
            let state = if disabled {
                "locked out"
            } else {
                "let in again"
            };
            Ok(visit.done(format!("{email} was {state}"), &format!("{LIST}/{account}")))
        }
        Err(error) => {
            let question = if disabled { DISABLE } else { ENABLE };
            let problem = PanelError::from(error).correctable()?;
            ask(app, visit, id, &question, problem).await
        }
    }
}
