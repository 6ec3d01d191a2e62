//! `/v1/keys/authorize`: the subrequest of a proxy before each request (nginx `auth_request`, Envoy
//! `ext_authz`). The response is a status and two headers; the body is empty.
//!
//! This is a hot path: [`WarmAuthorize`] responds before the framework sees the request. The route
//! responds when the key is not cached on this node.

use crate::app::{App, AppState};
use crate::auth::bearer;
use crate::error::KeysError;
use crate::middleware::FastPath;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use estrade_service::ai::key_check::{Refusal, Verdict};

/// The path of the subrequest.
pub const PATH: &str = "/v1/keys/authorize";

const KEY_ID: HeaderName = HeaderName::from_static("x-key-id");
const WORKSPACES: HeaderName = HeaderName::from_static("x-workspaces");
const ERROR_CODE: HeaderName = HeaderName::from_static("x-error-code");
const ERROR_MESSAGE: HeaderName = HeaderName::from_static("x-error-message");

/// Check an API key for a proxy
///
/// The key itself is the bearer token; `x-workspace` (name or id) narrows the question. Any method.
#[utoipa::path(method(get, post), path = "/v1/keys/authorize", tag = "keys", params(
    ("x-workspace" = Option<String>, Header, description = "A workspace that the key must be for"),
), responses(
    (status = 200, description = "Let it in", headers(
        ("x-key-id" = String, description = "Identifier of the key"),
        ("x-workspaces" = String, description = "Identifiers of its workspaces, separated by commas"),
    )),
    (status = 403, description = "A good key, but switched off or not for this workspace"),
), security(("inference_key" = [])))]
pub async fn authorize(State(app): State<AppState>, headers: HeaderMap) -> Response {
    authorize_headers(&app, &headers).await
}

/// Responds from the headers alone.
pub async fn authorize_headers(app: &App, headers: &HeaderMap) -> Response {
    let Some(token) = bearer(headers) else {
        return refuse(Refusal::Unknown);
    };
    match app.services.keys.check_key(token, workspace(headers)).await {
        Ok(verdict) => respond(verdict),
        Err(error) => KeysError::from(error).into_response(),
    }
}

/// The same for keys that this node knows, without a wait and without the router.
pub struct WarmAuthorize(pub AppState);

impl FastPath for WarmAuthorize {
    fn usual(&self) -> (Method, &'static str) {
        (Method::GET, PATH)
    }

    fn respond(
        &self,
        _: &Method,
        uri: &Uri,
        headers: &HeaderMap,
    ) -> Option<(&'static str, Response)> {
        if uri.path() != PATH {
            return None;
        }
        let verdict = self
            .0
            .services
            .keys
            .check_warm(bearer(headers)?, workspace(headers))?;
        Some((PATH, respond(verdict)))
    }
}

fn workspace(headers: &HeaderMap) -> Option<&str> {
    // What is not UTF-8 cannot be the name of a workspace.
    headers
        .get("x-workspace")
        .map(|value| std::str::from_utf8(value.as_bytes()).unwrap_or("\0"))
}

fn respond(verdict: Verdict) -> Response {
    let key = match verdict {
        Ok(key) => key,
        Err(refusal) => return refuse(refusal),
    };
    let mut response = Response::new(Body::empty());
    for (name, text) in [
        (KEY_ID, key.id().to_string().into()),
        (WORKSPACES, key.workspace_ids()),
    ] {
        if let Ok(value) = HeaderValue::from_maybe_shared(text) {
            response.headers_mut().insert(name, value);
        }
    }
    response
}

pub(super) fn refuse(refusal: Refusal) -> Response {
    let mut response = Response::new(Body::empty());
    if refusal.is_forbidden() {
        *response.status_mut() = StatusCode::FORBIDDEN;
    } else {
        *response.status_mut() = StatusCode::UNAUTHORIZED;
        let headers = response.headers_mut();
        headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    let headers = response.headers_mut();
    headers.insert(ERROR_CODE, HeaderValue::from_static(refusal.code()));
    headers.insert(ERROR_MESSAGE, HeaderValue::from_static(refusal.message()));
    response
}
