//! The context of a request while it is being handled.
//!
//! [`crate::middleware`] makes one per request and puts it into the request's extensions. Handlers and
//! extractors reach the request id through it, and move the deadline.

use crate::body_budget::BodyBudget;
use axum::extract::{FromRequestParts, MatchedPath};
use axum::http::request::Parts;
use axum::http::{Extensions, HeaderMap, HeaderName, HeaderValue};
use std::convert::Infallible;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, OnceLock};
use std::time::Duration;
use tokio::time::Instant;

/// The header that carries the request id, both ways.
pub const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// A request on its way: its id, its deadline, and the route that it took.
#[derive(Debug, Clone)]
pub struct RequestContext(Arc<State>);

#[derive(Debug)]
struct State {
    id: HeaderValue,
    started: Instant,
    /// What a handler gets each time its deadline is moved.
    allowance: Duration,
    /// Milliseconds after `started`; `u64::MAX` is never.
    deadline: AtomicU64,
    route: OnceLock<MatchedPath>,
    bodies: BodyBudget,
}

impl RequestContext {
    /// The context of a request that starts now, with a deadline after `allowance`.
    pub fn new(id: HeaderValue, allowance: Duration, bodies: BodyBudget) -> Self {
        Self(Arc::new(State {
            id,
            started: Instant::now(),
            allowance,
            deadline: AtomicU64::new(millis(allowance)),
            route: OnceLock::new(),
            bodies,
        }))
    }

    /// The context of a request, when it came through the middleware.
    pub fn of(extensions: &Extensions) -> Option<&Self> {
        extensions.get()
    }

    /// The request id: letters, digits and `._:-`.
    pub fn id(&self) -> &str {
        self.0.id.to_str().unwrap_or_default()
    }

    /// The request id as a header's value.
    pub fn id_header(&self) -> HeaderValue {
        self.0.id.clone()
    }

    /// The bytes that bodies may hold.
    pub fn bodies(&self) -> &BodyBudget {
        &self.0.bodies
    }

    /// When the request came.
    pub fn started(&self) -> Instant {
        self.0.started
    }

    /// Starts the time limit anew: the client is still sending, so the handler has not begun.
    pub fn restart_deadline(&self) {
        let end = self.0.started.elapsed() + self.0.allowance;
        self.0.deadline.fetch_max(millis(end), Ordering::Relaxed);
    }

    /// Lifts the time limit: for long polls and other handlers that bound themselves.
    pub fn clear_deadline(&self) {
        self.0.deadline.store(u64::MAX, Ordering::Relaxed);
    }

    /// The deadline of the request; `None` when it was lifted.
    pub fn deadline(&self) -> Option<Instant> {
        let deadline = self.0.deadline.load(Ordering::Relaxed);
        (deadline != u64::MAX).then(|| self.0.started + Duration::from_millis(deadline))
    }

    /// Notes the route that was taken; the first one counts.
    pub(crate) fn set_route(&self, route: MatchedPath) {
        let _ = self.0.route.set(route);
    }

    /// The route that was taken, as it is written in the router.
    pub fn route(&self) -> Option<&MatchedPath> {
        self.0.route.get()
    }
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

impl<S: Sync> FromRequestParts<S> for RequestContext {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        let known = Self::of(&parts.extensions).cloned();
        Ok(known
            .unwrap_or_else(|| Self::new(new_request_id(), Duration::MAX, BodyBudget::default())))
    }
}

/// The caller's request id if it is sane, else a new one.
pub(crate) fn request_id(headers: &HeaderMap) -> HeaderValue {
    headers
        .get(REQUEST_ID)
        .filter(|id| is_acceptable(id.as_bytes()))
        .cloned()
        .unwrap_or_else(new_request_id)
}

/// Nothing that could break a log line, a header or a shell.
fn is_acceptable(id: &[u8]) -> bool {
    (1..=128).contains(&id.len())
        && id
            .iter()
            .all(|b| b.is_ascii_alphanumeric() || b"._:-".contains(b))
}

/// 24 hexadecimal characters: unique within this process by a counter, across processes by chance.
fn new_request_id() -> HeaderValue {
    static SEED: LazyLock<RandomState> = LazyLock::new(RandomState::new);
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let mut bytes = [0; 12];
    bytes[..8].copy_from_slice(&SEED.hash_one(count).to_be_bytes());
    bytes[8..].copy_from_slice(&count.to_be_bytes()[4..]);
    let mut text = [0; 24];
    let encoded = hex::encode_to_slice(bytes, &mut text);
    debug_assert!(encoded.is_ok());
    HeaderValue::from_bytes(&text).unwrap_or_else(|_| HeaderValue::from_static("none"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sane_request_id_is_kept_and_another_is_replaced() {
        let given = |id: &'static str| {
            let headers = HeaderMap::from_iter([(REQUEST_ID, HeaderValue::from_static(id))]);
            request_id(&headers).to_str().unwrap().to_owned()
        };
        assert_eq!(given("build-7:a.b_c"), "build-7:a.b_c");
        for bad in ["", "a b", "a\"b", "a=b"] {
            assert_eq!(given(bad).len(), 24, "{bad:?}");
        }
        assert_eq!(given(&"x".repeat(129).leak()[..]).len(), 24);
        assert_ne!(new_request_id(), new_request_id());
    }

    #[tokio::test]
    async fn the_deadline_moves_while_the_body_arrives() {
        let context = RequestContext::new(
            new_request_id(),
            Duration::from_secs(9),
            BodyBudget::default(),
        );
        let first = context.deadline().unwrap();
        tokio::time::sleep(Duration::from_millis(20)).await;
        context.restart_deadline();
        assert!(context.deadline().unwrap() - first >= Duration::from_millis(20));
        context.clear_deadline();
        context.restart_deadline();
        assert_eq!(context.deadline(), None);
    }
}
