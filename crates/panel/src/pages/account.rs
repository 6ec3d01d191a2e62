//! The person's account: name, password, second factor.

use super::ask::{AskPage, Question};
use crate::error::PanelError;
use crate::form::{NoFields, SignedForm};
use crate::layout::{Layout, Section};
use crate::page::{render, render_with};
use crate::qr::QrPicture;
use crate::session::Visit;
use askama::Template;
use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::get;
use estrade_model::names::Label;
use estrade_model::secret::Secret;
use estrade_server::app::AppState;
use estrade_service::identity::accounts;
use estrade_service::identity::second_factor::{self, Status};
use serde::Deserialize;

const ACCOUNT: &str = "/panel/account";

pub fn routes() -> Router<AppState> {
    Router::new()
        .route(ACCOUNT, get(show_account).post(rename))
        .route(
            "/panel/account/password",
            get(show_password).post(change_password),
        )
        .route(
            "/panel/account/second-factor",
            get(show_second_factor).post(enable_second_factor),
        )
        .route(
            "/panel/account/second-factor/remove",
            get(ask_to_remove).post(remove_second_factor),
        )
        .route(
            "/panel/account/recovery-codes",
            get(ask_for_codes).post(make_recovery_codes),
        )
}

#[derive(Template)]
#[template(path = "account/overview.html")]
struct AccountPage {
    layout: Layout,
    problem: String,
    fullname: String,
    factor: Status,
}

async fn show_account(State(app): State<AppState>, visit: Visit) -> Result<Response, PanelError> {
    let caller = &visit.scope.caller;
    let factor = second_factor::status(&app.core, caller.account).await?;
    render(&AccountPage {
        layout: visit.layout("Account", Section::Account),
        problem: String::new(),
        fullname: caller.fullname.clone(),
        factor,
    })
}

#[derive(Deserialize)]
struct NameForm {
    fullname: String,
}

async fn rename(
    State(app): State<AppState>,
    visit: Visit,
    SignedForm(form): SignedForm<NameForm>,
) -> Result<Response, PanelError> {
    let caller = &visit.scope.caller;
    let renamed = match form.fullname.trim().parse::<Label>() {
        Ok(name) => accounts::rename_account(&app.core, caller, name).await,
        Err(invalid) => Err(invalid.into()),
    };
    let Err(error) = renamed else {
        return Ok(visit.done("Your name was saved", ACCOUNT));
    };
    let factor = second_factor::status(&app.core, caller.account).await?;
    let page = AccountPage {
        layout: visit.layout("Account", Section::Account),
        problem: PanelError::from(error).correctable()?,
        fullname: form.fullname,
        factor,
    };
    render_with(StatusCode::BAD_REQUEST, &page)
}

#[derive(Template)]
#[template(path = "account/password.html")]
struct PasswordPage {
    layout: Layout,
    problem: String,
}

fn password_page(visit: &Visit, problem: String) -> PasswordPage {
    PasswordPage {
        layout: visit.layout("Change password", Section::Account),
        problem,
    }
}

async fn show_password(State(app): State<AppState>, visit: Visit) -> Result<Response, PanelError> {
    visit.require_recent(&app)?;
    render(&password_page(&visit, String::new()))
}

#[derive(Deserialize)]
struct PasswordForm {
    password: Secret,
    repeated: Secret,
}

async fn change_password(
    State(app): State<AppState>,
    visit: Visit,
    SignedForm(form): SignedForm<PasswordForm>,
) -> Result<Response, PanelError> {
    visit.require_recent(&app)?;
    let refused = |problem| render_with(StatusCode::BAD_REQUEST, &password_page(&visit, problem));
    if form.password != form.repeated {
        return refused("The two passwords are not the same.".to_owned());
    }
    match accounts::change_password(&app.core, &visit.scope.caller, form.password).await {
        Ok(()) => {
            let text = "Your password was changed. Every other browser is signed out.";
            Ok(visit.done(text, ACCOUNT))
        }
        Err(error) => refused(PanelError::from(error).correctable()?),
    }
}

#[derive(Template)]
#[template(path = "account/second_factor.html")]
struct SecondFactorPage {
    layout: Layout,
    problem: String,
    secret: String,
    qr: QrPicture,
}

async fn second_factor_page(
    app: &AppState,
    visit: &Visit,
    problem: String,
) -> Result<SecondFactorPage, PanelError> {
    let enrollment = second_factor::begin(&app.core, &visit.scope.caller).await?;
    Ok(SecondFactorPage {
        layout: visit.layout("Set up a second factor", Section::Account),
        problem,
        qr: QrPicture::new(
            enrollment.url.expose(),
            "The secret for your authenticator app",
        )?,
        secret: enrollment.secret.expose().to_owned(),
    })
}

async fn show_second_factor(
    State(app): State<AppState>,
    visit: Visit,
) -> Result<Response, PanelError> {
    visit.require_recent(&app)?;
    render(&second_factor_page(&app, &visit, String::new()).await?)
}

#[derive(Deserialize)]
struct CodeForm {
    code: String,
}

#[derive(Template)]
#[template(path = "account/recovery_codes.html")]
struct RecoveryCodesPage {
    layout: Layout,
    codes: Vec<Secret>,
}

fn show_codes(visit: &Visit, codes: Vec<Secret>) -> Result<Response, PanelError> {
    let layout = visit.layout("Your recovery codes", Section::Account);
    render(&RecoveryCodesPage { layout, codes })
}

async fn enable_second_factor(
    State(app): State<AppState>,
    visit: Visit,
    SignedForm(form): SignedForm<CodeForm>,
) -> Result<Response, PanelError> {
    visit.require_recent(&app)?;
    let enabled = second_factor::enable(&app.core, &visit.scope.caller, form.code.trim()).await;
    match enabled {
        Ok(codes) => show_codes(&visit, codes),
        Err(error) => {
            let problem = PanelError::from(error).correctable()?;
            let page = second_factor_page(&app, &visit, problem).await?;
            render_with(StatusCode::BAD_REQUEST, &page)
        }
    }
}

async fn ask_to_remove(State(app): State<AppState>, visit: Visit) -> Result<Response, PanelError> {
    visit.require_recent(&app)?;
    let question = Question {
        title: "Remove the second factor?".into(),
        text: "Signing in then asks for your password only. Your recovery codes end, too.".into(),
        label: "Remove second factor".into(),
        action: "/panel/account/second-factor/remove".into(),
    };
    let layout = visit.layout("Remove the second factor?", Section::Account);
    AskPage::new(layout, question)
        .below("Account", ACCOUNT)
        .respond()
}

async fn remove_second_factor(
    State(app): State<AppState>,
    visit: Visit,
    SignedForm(NoFields {}): SignedForm<NoFields>,
) -> Result<Response, PanelError> {
    visit.require_recent(&app)?;
    second_factor::disable(&app.core, &visit.scope.caller).await?;
    Ok(visit.done("The second factor was removed", ACCOUNT))
}

async fn ask_for_codes(State(app): State<AppState>, visit: Visit) -> Result<Response, PanelError> {
    visit.require_recent(&app)?;
    let question = Question {
        title: "New recovery codes?".into(),
        text: "The codes that you have end, and new ones are shown once.".into(),
        label: "Make new codes".into(),
        action: "/panel/account/recovery-codes".into(),
    };
    let layout = visit.layout("New recovery codes?", Section::Account);
    AskPage::new(layout, question)
        .below("Account", ACCOUNT)
        .harmless()
        .respond()
}

async fn make_recovery_codes(
    State(app): State<AppState>,
    visit: Visit,
    SignedForm(NoFields {}): SignedForm<NoFields>,
) -> Result<Response, PanelError> {
    visit.require_recent(&app)?;
    let codes = second_factor::new_recovery_codes(&app.core, &visit.scope.caller).await?;
    show_codes(&visit, codes)
}
