//! Signing in, the second factor, signing out, and confirming a sign-in that is old.

use crate::error::PanelError;
use crate::form::{NoFields, PublicForm, SignedForm};
use crate::layout::{Layout, Section};
use crate::next;
use crate::page::{render, render_with};
use crate::respond::see_other;
use crate::session::{Browser, Visit, remove_session, set_session};
use askama::Template;
use axum::Router;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::{get, post};
use estrade_model::secret::Secret;
use estrade_server::app::AppState;
use estrade_service::identity::second_factor;
use estrade_service::identity::sessions::{Client, NewSession, SignIn};
use serde::Deserialize;

pub fn routes() -> Router<AppState> {
    Router::new()
        .route("/panel/sign-in", get(show_sign_in).post(sign_in))
        .route(
            "/panel/second-factor",
            get(restart_sign_in).post(give_second_factor),
        )
        .route("/panel/sign-out", post(sign_out))
        .route("/panel/confirm", get(show_confirm).post(confirm))
}

/// Where to go afterwards.
#[derive(Debug, Default, Deserialize)]
struct NextQuery {
    #[serde(default)]
    next: String,
}

#[derive(Template)]
#[template(path = "sign_in.html")]
struct SignInPage {
    notice: &'static str,
    problem: String,
    email: String,
    next: String,
}

async fn show_sign_in(
    visit: Result<Visit, PanelError>,
    Query(query): Query<NextQuery>,
) -> Result<Response, PanelError> {
    let next = next::or_home(&query.next);
    if visit.is_ok() {
        return Ok(see_other(next));
    }
    let notice = match next {
        next::HOME => "",
        _ => "Sign in to go on. You come back to the page that you asked for.",
    };
    render(&SignInPage {
        notice,
        problem: String::new(),
        email: String::new(),
        next: next.to_owned(),
    })
}

#[derive(Deserialize)]
struct SignInForm {
    email: String,
    password: Secret,
    #[serde(default)]
    next: String,
}

async fn sign_in(
    State(app): State<AppState>,
    Browser(client): Browser,
    PublicForm(form): PublicForm<SignInForm>,
) -> Result<Response, PanelError> {
    let SignInForm {
        email,
        password,
        next,
    } = form;
    match begin(&app, &email, password, &next, &client).await {
        Ok(response) => Ok(response),
        Err(error) => {
            let status = error.status();
            let page = SignInPage {
                notice: "",
                problem: error.correctable()?,
                email,
                next: next::or_home(&next).to_owned(),
            };
            render_with(status, &page)
        }
    }
}

/// Signs in with a password: either there is a session now, or the code is asked for.
pub(super) async fn begin(
    app: &AppState,
    email: &str,
    password: Secret,
    next: &str,
    client: &Client,
) -> Result<Response, PanelError> {
    let sessions = &app.services.sessions;
    match sessions.sign_in(email, password, None, client).await? {
        SignIn::Done(session) => Ok(enter(app, &session, next)),
        SignIn::SecondFactorRequired(pending) => render(&SecondFactorPage {
            problem: String::new(),
            pending: pending.0.expose().to_owned(),
            next: next::or_home(next).to_owned(),
        }),
    }
}

fn enter(app: &AppState, session: &NewSession, next: &str) -> Response {
    let mut response = see_other(next::or_home(next));
    set_session(&mut response, session, app);
    response
}

#[derive(Template)]
#[template(path = "second_factor.html")]
struct SecondFactorPage {
    problem: String,
    pending: String,
    next: String,
}

/// The form belongs to a password that was given a moment ago.
async fn restart_sign_in() -> Response {
    see_other("/panel/sign-in")
}

#[derive(Deserialize)]
struct SecondFactorForm {
    pending: String,
    code: String,
    #[serde(default)]
    next: String,
}

async fn give_second_factor(
    State(app): State<AppState>,
    Browser(client): Browser,
    PublicForm(form): PublicForm<SecondFactorForm>,
) -> Result<Response, PanelError> {
    let SecondFactorForm {
        pending,
        code,
        next,
    } = form;
    let sessions = &app.services.sessions;
    let made = sessions.second_factor(&pending, code.trim(), &client).await;
    let error = match made.map_err(PanelError::from) {
        Ok(session) => return Ok(enter(&app, &session, &next)),
        Err(error) => error,
    };
    let next = next::or_home(&next).to_owned();
    if matches!(error, PanelError::SignIn) {
        let page = SignInPage {
            notice: "",
            problem: "That took longer than five minutes. Please sign in again.".to_owned(),
            email: String::new(),
            next,
        };
        return render_with(StatusCode::UNAUTHORIZED, &page);
    }
    let status = error.status();
    let problem = error.correctable()?;
    render_with(
        status,
        &SecondFactorPage {
            problem,
            pending,
            next,
        },
    )
}

async fn sign_out(
    State(app): State<AppState>,
    visit: Result<Visit, PanelError>,
    form: Result<SignedForm<NoFields>, PanelError>,
) -> Result<Response, PanelError> {
    if let Ok(visit) = visit {
        let SignedForm(NoFields {}) = form?;
        app.services.sessions.sign_out(&visit.scope.caller).await?;
    }
    let mut response = see_other("/panel/sign-in");
    remove_session(&mut response, &app);
    Ok(response)
}

#[derive(Template)]
#[template(path = "confirm.html")]
struct ConfirmPage {
    layout: Layout,
    problem: String,
    next: String,
    has_factor: bool,
}

async fn show_confirm(
    State(app): State<AppState>,
    visit: Visit,
    Query(query): Query<NextQuery>,
) -> Result<Response, PanelError> {
    let page = confirm_page(&app, &visit, String::new(), &query.next).await?;
    render(&page)
}

async fn confirm_page(
    app: &AppState,
    visit: &Visit,
    problem: String,
    next: &str,
) -> Result<ConfirmPage, PanelError> {
    let factor = second_factor::status(&app.core, visit.scope.caller.account).await?;
    Ok(ConfirmPage {
        layout: visit.layout("Confirm that it is you", Section::Account),
        problem,
        next: next::or_home(next).to_owned(),
        has_factor: factor.enabled_at.is_some(),
    })
}

#[derive(Deserialize)]
struct ConfirmForm {
    secret: Secret,
    #[serde(default)]
    next: String,
}

async fn confirm(
    State(app): State<AppState>,
    visit: Visit,
    SignedForm(form): SignedForm<ConfirmForm>,
) -> Result<Response, PanelError> {
    let sessions = &app.services.sessions;
    let confirmed = sessions.confirm(&visit.session, form.secret, &visit.client);
    let Err(error) = confirmed.await.map_err(PanelError::from) else {
        return Ok(see_other(next::or_home(&form.next)));
    };
    let status = error.status();
    let page = confirm_page(&app, &visit, error.correctable()?, &form.next).await?;
    render_with(status, &page)
}
