//! The way in, and what is shown for paths that do not exist.

use crate::error::PanelError;
use crate::next::HOME;
use crate::origin::is_change;
use crate::respond::see_other;
use crate::session::Visit;
use axum::Router;
use axum::http::{HeaderMap, Method, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get};
use estrade_server::api_error::ApiError;
use estrade_server::app::AppState;
use estrade_server::error::PlatformError;

pub fn routes() -> Router<AppState> {
    Router::new()
        .route("/panel", get(open_panel))
        .route("/panel/{*rest}", any(not_found))
}

/// `/`: a browser is sent to the panel, other clients get the API's 404.
pub fn entrance() -> Router<AppState> {
    Router::new().route("/", any(enter))
}

async fn enter(method: Method, headers: HeaderMap) -> Response {
    let accepted = headers
        .get(header::ACCEPT)
        .and_then(|value| value.to_str().ok());
    let is_page = accepted.is_some_and(|accepted| accepted.contains("text/html"));
    if is_page && !is_change(&method) {
        return see_other(HOME);
    }
    PlatformError::from(ApiError::NoRoute).into_response()
}

async fn open_panel(visit: Visit) -> Response {
    see_other(&visit.href("/panel/projects"))
}

async fn not_found() -> PanelError {
    ApiError::NoRoute.into()
}
