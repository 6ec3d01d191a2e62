//! Streams of things that happen, as server-sent events that can be resumed.

use crate::api_error::ApiError;
use crate::app::AppState;
use axum::body::{Body, Bytes};
use axum::http::HeaderMap;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use estrade_service::{Caller, Error, Result};
use futures_util::stream::{self, StreamExt};
use std::convert::Infallible;
use std::str::FromStr;
use std::time::Duration;

/// How often a silent stream sends a keep-alive comment.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(10);

/// A source of events for one client.
pub trait Follower: Send + 'static {
    /// What comes, each ready to be sent.
    fn next(&mut self) -> impl Future<Output = Result<Vec<Event>>> + Send;
}

/// What the client has seen last; `what` it is the id of, for the refusal.
pub fn last_seen<T: FromStr>(headers: &HeaderMap, what: &str) -> Result<Option<T>> {
    let Some(value) = headers
        .get("last-event-id")
        .filter(|value| !value.is_empty())
    else {
        return Ok(None);
    };
    let parsed = value.to_str().ok().and_then(|text| text.parse().ok());
    parsed
        .map(Some)
        .ok_or_else(|| Error::invalid(format!("Last-Event-ID: is not the id of {what}")))
}

/// A body that ends when the caller's credential does: with `last`, and what produces it is dropped.
pub fn end_with_credential(app: AppState, caller: Caller, body: Body, last: &'static str) -> Body {
    let ended = async move {
        app.services.credential_ended(&app.core.db, &caller).await;
    };
    let start = Some((body.into_data_stream(), Box::pin(ended)));
    let chunks = stream::unfold(start, move |state| async move {
        let (mut body, mut ended) = state?;
        tokio::select! {
            chunk = body.next() => Some((chunk?, Some((body, ended)))),
            () = &mut ended => Some((Ok(Bytes::from_static(last.as_bytes())), None)),
        }
    });
    // Compression polls a body again after its end, which an unfold answers with a panic.
    Body::from_stream(chunks.fuse())
}

/// Responds with the events of a follower. The stream ends when they end, the caller loses access, or the
/// server shuts down; the client then reconnects. An error when the account has too many of them open.
pub fn respond(
    app: AppState,
    caller: Caller,
    follower: impl Follower,
) -> std::result::Result<Response, ApiError> {
    let permit = app.streams.acquire(caller.account)?;
    let start = (app, caller, follower, permit);
    let batches = stream::unfold(start, |(app, caller, mut follower, permit)| async move {
        let batch = tokio::select! {
            batch = follower.next() => batch,
            () = app.services.credential_ended(&app.core.db, &caller) => return None,
            () = app.shutdown.cancelled() => return None,
        };
        app.services.check_again(&caller).await.ok()?;
        let events = batch.ok()?.into_iter().map(Ok::<_, Infallible>);
        Some((stream::iter(events), (app, caller, follower, permit)))
    });
    let alive = KeepAlive::new().interval(KEEP_ALIVE_INTERVAL);
    Ok(Sse::new(batches.flatten())
        .keep_alive(alive)
        .into_response())
}
