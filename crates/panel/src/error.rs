//! What a person sees when something went wrong: a page with the status and what to do.
//!
//! An error knows neither the request nor the session. So a missing session and a sign-in that is too old leave a
//! mark on the response ([`Detour`]), and the middleware, which has the request, sends the browser on.

use crate::respond::html;
use askama::Template;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use estrade_model::Invalid;
use estrade_server::api_error::ApiError;
use estrade_server::rate::RateLimitStatus;
use estrade_service::Error;
use std::borrow::Cow;

/// Why a page is not shown.
#[derive(Debug)]
pub enum PanelError {
    /// What the APIs would answer, too.
    Api(ApiError),
    /// Nobody is signed in, or the session has ended.
    SignIn,
    /// The sign-in is too old for what was asked.
    Confirm,
    /// The request does not come from a page of the panel.
    ForeignOrigin,
    /// The form does not carry the token of the session.
    ForgedForm,
}

/// Where the middleware sends the browser instead, with the way back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Detour {
    SignIn,
    Confirm,
}

impl From<Error> for PanelError {
    fn from(error: Error) -> Self {
        match error {
            Error::Unauthenticated => Self::SignIn,
            Error::ConfirmationRequired => Self::Confirm,
            error => Self::Api(error.into()),
        }
    }
}

impl From<ApiError> for PanelError {
    fn from(error: ApiError) -> Self {
        match error {
            ApiError::Service(error) => error.into(),
            error => Self::Api(error),
        }
    }
}

impl From<Invalid> for PanelError {
    fn from(invalid: Invalid) -> Self {
        Error::from(invalid).into()
    }
}

impl From<RateLimitStatus> for PanelError {
    fn from(reached: RateLimitStatus) -> Self {
        ApiError::from(reached).into()
    }
}

impl From<PathRejection> for PanelError {
    fn from(_: PathRejection) -> Self {
        Self::Api(ApiError::NoRoute)
    }
}

impl From<QueryRejection> for PanelError {
    fn from(_: QueryRejection) -> Self {
        Error::invalid("a parameter of this address is not valid").into()
    }
}

impl PanelError {
    /// The status of the page.
    pub fn status(&self) -> StatusCode {
        match self {
            Self::Api(error) => error.status(),
            Self::SignIn | Self::Confirm => StatusCode::UNAUTHORIZED,
            Self::ForeignOrigin | Self::ForgedForm => StatusCode::FORBIDDEN,
        }
    }

    /// What is wrong, for a form that is shown again.
    pub fn message(&self) -> Cow<'static, str> {
        match self {
            Self::Api(ApiError::NoRoute) => "There is no such page.".into(),
            Self::Api(ApiError::MethodNotAllowed) => "This address only takes a form.".into(),
            Self::Api(error) => error.message(),
            Self::SignIn => "You are not signed in any more.".into(),
            Self::Confirm => "Please confirm that it is you.".into(),
            Self::ForeignOrigin => "This request was not sent by a page of the panel.".into(),
            Self::ForgedForm => {
                "This form has expired. Go back, reload the page and send it again.".into()
            }
        }
    }

    /// The message when the person can correct what they typed; an error that is none of the form's otherwise.
    pub fn correctable(self) -> Result<String, Self> {
        match &self {
            Self::Api(ApiError::Service(
                Error::Invalid { .. }
                | Error::Conflict { .. }
                | Error::Quota { .. }
                | Error::TooLarge(_)
                | Error::WrongCredentials
                | Error::WrongSecondFactor
                | Error::RateLimited(_),
            )) => Ok(sentence(&self.message())),
            _ => Err(self),
        }
    }
}

/// A message of the services as a sentence: with a capital letter and a full stop.
pub fn sentence(message: &str) -> String {
    let mut letters = message.chars();
    let Some(first) = letters.next() else {
        return String::new();
    };
    let mut text: String = first.to_uppercase().chain(letters).collect();
    if !text.ends_with(['.', '!', '?']) {
        text.push('.');
    }
    text
}

/// A page that says what is wrong and what to do.
#[derive(Template)]
#[template(path = "error.html")]
pub struct ErrorPage {
    pub title: &'static str,
    pub message: String,
    pub hint: &'static str,
    pub status: u16,
    pub action: (&'static str, String),
}

impl ErrorPage {
    /// The page of a status, with a message of its own.
    pub fn new(status: StatusCode, message: &str) -> Self {
        let (title, hint) = words(status);
        Self {
            title,
            message: sentence(message),
            hint,
            status: status.as_u16(),
            action: ("Go to your projects", "/panel/projects".to_owned()),
        }
    }

    /// The page as a response with its status.
    pub fn into_page(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::BAD_REQUEST);
        match self.render() {
            Ok(text) => (status, html(text)).into_response(),
            Err(_) => status.into_response(),
        }
    }
}

/// A title and what to do.
fn words(status: StatusCode) -> (&'static str, &'static str) {
    match status {
        StatusCode::UNAUTHORIZED => (
            "Your session has ended",
            "Sign in again: you come back to the same page.",
        ),
        StatusCode::FORBIDDEN => (
            "You may not do this",
            "Ask an administrator of the team for a role that may, or switch to another scope.",
        ),
        StatusCode::NOT_FOUND | StatusCode::GONE => (
            "There is nothing here",
            "It may have been deleted or renamed, or it belongs to another person or team.",
        ),
        StatusCode::METHOD_NOT_ALLOWED => {
            ("This page is a form", "Go back and send the form again.")
        }
        StatusCode::CONFLICT | StatusCode::PRECONDITION_FAILED => (
            "This has changed meanwhile",
            "Go back, reload the page and try again.",
        ),
        StatusCode::PAYLOAD_TOO_LARGE => ("That is too large", "Send less at once."),
        StatusCode::TOO_MANY_REQUESTS => {
            ("Too many requests", "Wait a moment, then reload the page.")
        }
        StatusCode::SERVICE_UNAVAILABLE | StatusCode::REQUEST_TIMEOUT => (
            "Not available right now",
            "Reload the page in a moment. The status page of the administration says more.",
        ),
        status if status.is_server_error() => (
            "Something went wrong on our side",
            "Reload the page. If it stays like this, tell your administrator the request id from the response's headers.",
        ),
        _ => (
            "This request cannot be carried out",
            "Go back and check what was entered.",
        ),
    }
}

impl IntoResponse for PanelError {
    fn into_response(self) -> Response {
        let detour = match &self {
            Self::Api(error) => {
                error.log();
                None
            }
            Self::SignIn => Some(Detour::SignIn),
            Self::Confirm => Some(Detour::Confirm),
            _ => None,
        };
        let mut page = ErrorPage::new(self.status(), &self.message());
        if matches!(self, Self::ForeignOrigin | Self::ForgedForm) {
            // No role would help.
            (page.title, page.hint) = ("This form was not accepted", "Nothing was changed.");
        }
        let mut response = page.into_page();
        if let Self::Api(error) = &self {
            error.write_headers(response.headers_mut());
        }
        if let Some(detour) = detour {
            response.extensions_mut().insert(detour);
        }
        response
    }
}
