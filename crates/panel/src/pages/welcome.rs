//! Links that set a password: of the first start, and after a forgotten one.
//!
//! To look at a link leaves it good, because mail programs and chats open what they show. The form uses it up.

use super::sign_in;
use crate::error::PanelError;
use crate::form::PublicForm;
use crate::page::{render, render_with};
use crate::session::Browser;
use askama::Template;
use axum::Router;
use axum::extract::{OriginalUri, Path, State};
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::get;
use estrade_model::secret::Secret;
use estrade_server::app::AppState;
use estrade_service::Error;
use estrade_service::identity::reset_links::{self, LinkKind, ResetLink};
use estrade_service::identity::sessions::Client;
use serde::Deserialize;

pub fn routes() -> Router<AppState> {
    Router::new()
        .route("/panel/welcome/{code}", get(show_link).post(set_password))
        .route("/panel/reset/{code}", get(show_link).post(set_password))
}

#[derive(Template)]
#[template(path = "set_password.html")]
struct SetPasswordPage {
    title: &'static str,
    text: &'static str,
    /// What ends with the use of the link.
    ends: &'static str,
    problem: String,
    email: String,
    action: String,
}

#[derive(Template)]
#[template(path = "link_ended.html")]
struct LinkEndedPage {}

impl SetPasswordPage {
    fn new(link: ResetLink, problem: String, action: &str) -> Self {
        let (title, text, ends) = match link.kind {
            LinkKind::Welcome => (
                "Welcome to Estrade",
                "This is your administrator account. Set its password, and you are in.",
                "Setting the password signs out every other browser.",
            ),
            LinkKind::Reset => (
                "Set a new password",
                "Choose a password for your account.",
                "Setting the password signs out every browser and ends every API token of the account. AI keys stay.",
            ),
        };
        Self {
            title,
            text,
            ends,
            problem,
            email: link.email,
            action: action.to_owned(),
        }
    }
}

fn link_ended() -> Result<Response, PanelError> {
    render_with(StatusCode::NOT_FOUND, &LinkEndedPage {})
}

async fn show_link(
    State(app): State<AppState>,
    Path(code): Path<String>,
    OriginalUri(uri): OriginalUri,
) -> Result<Response, PanelError> {
    match reset_links::peek(&app.core, &code).await? {
        Some(link) => render(&SetPasswordPage::new(link, String::new(), uri.path())),
        None => link_ended(),
    }
}

#[derive(Deserialize)]
struct PasswordForm {
    password: Secret,
    repeated: Secret,
}

async fn set_password(
    State(app): State<AppState>,
    Path(code): Path<String>,
    OriginalUri(uri): OriginalUri,
    Browser(client): Browser,
    PublicForm(form): PublicForm<PasswordForm>,
) -> Result<Response, PanelError> {
    let Some(link) = reset_links::peek(&app.core, &code).await? else {
        return link_ended();
    };
    if form.password != form.repeated {
        let problem = "The two passwords are not the same.".to_owned();
        let page = SetPasswordPage::new(link, problem, uri.path());
        return render_with(StatusCode::BAD_REQUEST, &page);
    }
    let (password, origin) = (form.password.clone(), client.origin());
    let used = reset_links::use_reset_link(&app.core, &code, password, origin);
    match used.await {
        Ok(email) => enter(&app, &email, form.password, &client).await,
        Err(Error::NotFound(_)) => link_ended(),
        Err(error) => {
            let problem = PanelError::from(error).correctable()?;
            let page = SetPasswordPage::new(link, problem, uri.path());
            render_with(StatusCode::BAD_REQUEST, &page)
        }
    }
}

/// Signs in with the new password. Whoever has a second factor is asked for it.
async fn enter(
    app: &AppState,
    email: &str,
    password: Secret,
    client: &Client,
) -> Result<Response, PanelError> {
    sign_in::begin(app, email, password, "", client).await
}
