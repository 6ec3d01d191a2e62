//! Templates as responses.

use crate::error::PanelError;
use crate::respond::html;
use askama::Template;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use estrade_service::Error;

/// A page.
pub fn render(template: &impl Template) -> Result<Response, PanelError> {
    render_with(StatusCode::OK, template)
}

/// A page with a status: a form that is shown again is a 4xx.
pub fn render_with(status: StatusCode, template: &impl Template) -> Result<Response, PanelError> {
    let text = template.render().map_err(Error::internal)?;
    Ok((status, html(text)).into_response())
}
