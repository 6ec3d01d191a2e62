//! `Idempotency-Key`: a request that is repeated is executed once, and its response is replayed.
//!
//! A middleware does it for every POST with the header. Routes that read their body themselves call
//! [`execute`] on their own. Responses with a secret come with a [`Redacted`] copy, which is
//! what repeats get.

use crate::api_error::ApiError;
use crate::app::AppState;
use crate::auth::authenticate;
use crate::body::BodyRules;
use crate::body_reader::BodyReader;
use crate::error::{ErrorShape, NotStored};
use axum::body::{Body, to_bytes};
use axum::extract::{MatchedPath, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use estrade_model::error::error_chain;
use estrade_service::idempotency::{
    IdempotencyGuard, IdempotencyKey, KeyedRequest, RequestStart, StoredResponse,
};
use estrade_service::{Caller, Error};
use serde::Serialize;
use std::future::Future;
use tracing::Instrument;

const KEY: HeaderName = HeaderName::from_static("idempotency-key");
const REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");

/// Headers that a repeat gets again; the others belong to one request.
const STORED_HEADERS: [HeaderName; 5] = [
    header::CONTENT_TYPE,
    header::ETAG,
    header::CACHE_CONTROL,
    HeaderName::from_static("x-error-code"),
    HeaderName::from_static("x-error-message"),
];
/// Responses to POSTs are small; larger ones are not stored.
const MAX_STORED_RESPONSE: usize = 1 << 20;

/// Routes that take no account token, and those that call [`execute`] themselves.
const EXCLUDED_ROUTES: [&str; 7] = [
    "/v1/login",
    "/v1/login/check-if-exists",
    "/v1/device/code",
    "/v1/device/token",
    "/v1/keys/authorize",
    "/v2/projects/{project_id}/releases",
    "/v2/projects/{project_id}/sources",
];

/// The body to store instead of a response with a secret.
#[derive(Clone)]
pub struct Redacted(Bytes);

impl Redacted {
    /// Attaches the body that repeats of this response get.
    pub fn attach<T: Serialize>(mut response: Response, redacted: &T) -> Response {
        // Without a redacted body nothing of it is stored, which is safe.
        let body = serde_json::to_vec(redacted).unwrap_or_default();
        response.extensions_mut().insert(Self(body.into()));
        response
    }
}

/// The middleware: replays responses to POSTs with the header.
pub async fn replay<E: ErrorShape>(
    State(app): State<AppState>,
    request: Request,
    next: Next,
) -> Response {
    if request.method() != Method::POST || !request.headers().contains_key(KEY) {
        return next.run(request).await;
    }
    let route = request.extensions().get::<MatchedPath>();
    if route.is_some_and(|route| EXCLUDED_ROUTES.contains(&route.as_str())) {
        return next.run(request).await;
    }
    match replay_request(&app, request, next).await {
        Ok(response) => response,
        Err(error) => E::from(error).into_response(),
    }
}

async fn replay_request(
    app: &AppState,
    request: Request,
    next: Next,
) -> Result<Response, ApiError> {
    let rules: BodyRules = request.extensions().get().copied().unwrap_or_default();
    let (mut parts, body) = request.into_parts();
    let caller = authenticate(app, &mut parts).await?;
    let head = parts.clone();
    let bytes = BodyReader::new(Request::from_parts(parts.clone(), body), rules.limits)?
        .read_all()
        .await?;
    let hash = *blake3::hash(&bytes).as_bytes();
    let request = Request::from_parts(parts, Body::from(bytes));
    execute(app, &caller, &head, || hash, async move {
        next.run(request).await
    })
    .await
}

/// Executes a request, or replays the stored response of its idempotency key.
///
/// With a key the work goes on when the client disconnects: such a client is the one that repeats.
pub async fn execute(
    app: &AppState,
    caller: &Caller,
    head: &Parts,
    body_hash: impl FnOnce() -> [u8; 32],
    work: impl Future<Output = Response> + Send + 'static,
) -> Result<Response, ApiError> {
    let Some(key) = key_of(caller, head, body_hash)? else {
        return Ok(work.await);
    };
    let guard = match app.services.idempotency.begin(key).await? {
        RequestStart::Replay(response) => return Ok(replayed(response)),
        RequestStart::New(guard) => guard,
    };
    let work = async move { store(guard, work.await).await };
    let task = app.tasks.spawn(work.in_current_span());
    Ok(task.await.map_err(Error::internal)?)
}

fn key_of(
    caller: &Caller,
    head: &Parts,
    body_hash: impl FnOnce() -> [u8; 32],
) -> Result<Option<IdempotencyKey>, Error> {
    let Some(value) = head.headers.get(KEY) else {
        return Ok(None);
    };
    let request = KeyedRequest {
        credential: caller.credential.as_bytes(),
        method: head.method.as_str(),
        path: head.uri.path(),
        query: head.uri.query().unwrap_or_default(),
        team: head
            .headers
            .get("x-teamid")
            .and_then(|team| team.to_str().ok())
            .unwrap_or_default(),
        body_hash: body_hash(),
    };
    IdempotencyKey::new(value.to_str().unwrap_or_default(), &request).map(Some)
}

fn replayed(stored: StoredResponse) -> Response {
    let mut response = Response::new(Body::from(stored.body));
    *response.status_mut() = StatusCode::from_u16(stored.status).unwrap_or(StatusCode::OK);
    for (name, value) in &stored.headers {
        if let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::try_from(value)) {
            response.headers_mut().insert(name, value);
        }
    }
    response
        .headers_mut()
        .insert(REPLAYED, HeaderValue::from_static("true"));
    response
}

/// Stores the response for repeats and returns it.
async fn store(guard: IdempotencyGuard, response: Response) -> Response {
    if response.extensions().get::<NotStored>().is_some() {
        report(guard.give_up().await);
        return response;
    }
    let (parts, body) = response.into_parts();
    let body = match to_bytes(body, MAX_STORED_RESPONSE).await {
        Ok(body) => body,
        Err(error) => {
            tracing::error!(%error, "a response could not be kept for repeats");
            return StatusCode::INTERNAL_SERVER_ERROR.into_response();
        }
    };
    let kept = parts
        .extensions
        .get()
        .map_or_else(|| body.clone(), |Redacted(kept)| kept.clone());
    let response = StoredResponse {
        status: parts.status.as_u16(),
        headers: stored_headers(&parts.headers),
        body: kept.to_vec(),
    };
    report(guard.finish(response).await);
    Response::from_parts(parts, Body::from(body))
}

fn report(stored: Result<(), Error>) {
    if let Err(error) = stored {
        tracing::warn!(
            error = error_chain(&error),
            "a response was not stored for repeats"
        );
    }
}

fn stored_headers(headers: &HeaderMap) -> Vec<(String, String)> {
    let kept = |name: &HeaderName| {
        let value = headers.get(name)?.to_str().ok()?;
        Some((name.to_string(), value.to_owned()))
    };
    STORED_HEADERS.iter().filter_map(kept).collect()
}
