//! What happens to every request of the panel: where it comes from, where it is sent on, and its headers.

use crate::cookies::{Cookie, is_secure};
use crate::error::{Detour, ErrorPage, PanelError};
use crate::headers::{is_loopback, set_headers};
use crate::next;
use crate::origin::{is_change, is_own_change};
use crate::respond::see_other;
use axum::extract::{OriginalUri, Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use estrade_server::api_error::ApiError;
use estrade_server::app::AppState;

/// Checks the origin of what changes something, then finishes the response.
pub(crate) async fn protect(
    State(app): State<AppState>,
    OriginalUri(uri): OriginalUri,
    mut request: Request,
    next: Next,
) -> Response {
    let secure = is_secure(&app.core);
    // HTTP/2 names the host in the request line.
    if let (None, Some(authority)) = (request.headers().get(header::HOST), uri.authority())
        && let Ok(host) = HeaderValue::try_from(authority.as_str())
    {
        request.headers_mut().insert(header::HOST, host);
    }
    let trusted = secure || is_trusted(request.headers());
    let has_flash = Cookie::Flash.read(request.headers(), secure).is_some();
    let method = request.method().clone();
    let path = uri.path_and_query().map_or("", |path| path.as_str());

    let mut response = if is_change(&method) && !is_own_change(request.headers(), secure) {
        PanelError::ForeignOrigin.into_response()
    } else {
        next.run(request).await
    };
    if let Some(detour) = response.extensions_mut().remove::<Detour>() {
        response = take_detour(detour, &method, path);
    }
    response = explain(response);
    let shows_flash = is_html(response.headers()) && response.status() != StatusCode::SEE_OTHER;
    if has_flash
        && shows_flash
        && let Some(cookie) = Cookie::Flash.remove(secure)
    {
        response.headers_mut().append(header::SET_COOKIE, cookie);
    }
    set_headers(response.headers_mut(), secure, trusted);
    response
}

fn is_trusted(headers: &HeaderMap) -> bool {
    let host = headers.get(header::HOST);
    host.and_then(|host| host.to_str().ok())
        .is_some_and(is_loopback)
}

fn is_html(headers: &HeaderMap) -> bool {
    let media_type = headers.get(header::CONTENT_TYPE);
    media_type.is_some_and(|value| value.as_bytes().starts_with(b"text/html"))
}

/// A page is asked for again after signing in. A form is lost: a redirect would forget what was typed without a word.
fn take_detour(detour: Detour, method: &Method, path: &str) -> Response {
    let page = match detour {
        Detour::SignIn => "/panel/sign-in",
        Detour::Confirm => "/panel/confirm",
    };
    let link = next::link(page, path);
    if !is_change(method) {
        return see_other(&link);
    }
    let (message, action) = match detour {
        Detour::SignIn => ("What you sent was not carried out", "Sign in"),
        Detour::Confirm => (
            "Your sign-in is older than ten minutes, so this was not carried out",
            "Confirm that it is you",
        ),
    };
    let mut page = ErrorPage::new(StatusCode::UNAUTHORIZED, message);
    if detour == Detour::Confirm {
        (page.title, page.hint) = ("Confirm that it is you", "Then send it again.");
    }
    page.action = (action, link);
    page.into_page()
}

/// Errors of extractors are plain text; people get a page.
fn explain(response: Response) -> Response {
    let status = response.status();
    let media_type = response.headers().get(header::CONTENT_TYPE);
    let is_text = media_type.is_none_or(|value| value.as_bytes().starts_with(b"text/plain"));
    if !(status.is_client_error() || status.is_server_error()) || !is_text {
        return response;
    }
    ErrorPage::new(status, "this request is not valid").into_page()
}

/// A known path with another method.
pub(crate) async fn method_not_allowed() -> PanelError {
    ApiError::MethodNotAllowed.into()
}
