//! The two responses that everything else is made of.

use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};

/// A text as an HTML document.
pub fn html(text: String) -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "text/html; charset=utf-8")], text)
}

/// Sends the browser to another page with a GET.
pub fn see_other(path: &str) -> Response {
    (StatusCode::SEE_OTHER, [(header::LOCATION, path.to_owned())]).into_response()
}
