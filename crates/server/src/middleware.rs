//! The one middleware: what happens to every request, whatever its route.
//!
//! One function instead of a tower of layers, because each layer costs a box and a clone per
//! request. It gives the request its id and deadline, catches panics, counts, logs, and sets the
//! headers that every response has. The router below knows nothing of it.

mod compress;
mod routes;
mod unread;

pub use routes::finish_router;

use crate::api_error::ApiError;
use crate::body_budget::BodyBudget;
use crate::context::{REQUEST_ID, RequestContext, request_id};
use crate::error::ErrorShape;
use crate::metrics::{ListenerMetrics, RequestSeries, Route};
use axum::Router;
use axum::body::{Body, Bytes, HttpBody};
use axum::http::uri::PathAndQuery;
use axum::http::{HeaderMap, HeaderValue, Method, Request, StatusCode, Uri, header};
use axum::response::Response;
use futures_util::FutureExt;
use hyper::body::Incoming;
use hyper::service::Service;
use std::any::Any;
use std::convert::Infallible;
use std::marker::PhantomData;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};
use tower::Service as _;
use tracing::Instrument;
use unread::UnreadBody;

/// How long a handler may take, unless it moves the deadline of its [`RequestContext`].
pub const HANDLER_TIMEOUT: Duration = Duration::from_mins(1);

const NO_SNIFF: HeaderValue = HeaderValue::from_static("nosniff");
const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");

/// Responses that need neither the router nor a wait, for the hottest routes.
pub trait FastPath: Send + Sync + 'static {
    /// The method and the route's name of most requests that it serves.
    fn usual(&self) -> (Method, &'static str);

    /// The route's name and the response, or `None` to fall back to the router.
    fn respond(
        &self,
        method: &Method,
        uri: &Uri,
        headers: &HeaderMap,
    ) -> Option<(&'static str, Response)>;
}

/// A listener's router with everything around it. `E` is the shape of errors that no handler made.
pub struct Middleware<E> {
    inner: Arc<Inner>,
    shape: PhantomData<fn() -> E>,
}

struct Inner {
    router: Router,
    metrics: ListenerMetrics,
    timeout: Duration,
    fast: Option<InstalledFastPath>,
    bodies: BodyBudget,
}

struct InstalledFastPath {
    path: Box<dyn FastPath>,
    /// The series of its usual response: looking it up every time takes longer than counting.
    usual: RequestSeries,
}

impl<E> Clone for Middleware<E> {
    fn clone(&self) -> Self {
        Self {
            inner: Arc::clone(&self.inner),
            shape: PhantomData,
        }
    }
}

impl<E: ErrorShape> Middleware<E> {
    /// Puts the middleware before a router that [`finish_router`] has finished.
    pub fn new(router: Router, metrics: ListenerMetrics) -> Self {
        Self::with(router, metrics, HANDLER_TIMEOUT, None)
    }

    /// The same, with another time limit and with a path around the router.
    pub fn with(
        router: Router,
        metrics: ListenerMetrics,
        timeout: Duration,
        fast: Option<Box<dyn FastPath>>,
    ) -> Self {
        let fast = fast.map(|path| {
            let (method, route) = path.usual();
            let usual = metrics.series(&method, route, StatusCode::OK);
            InstalledFastPath { path, usual }
        });
        Self {
            inner: Arc::new(Inner {
                router,
                metrics,
                timeout,
                fast,
                bodies: BodyBudget::default(),
            }),
            shape: PhantomData,
        }
    }

    /// What [`estrade_listener::Listener::serve`] takes.
    pub fn into_service(
        self,
    ) -> impl Service<Request<Incoming>, Response = Response, Error = Infallible, Future: Send>
    + Clone
    + Send
    + Sync {
        hyper::service::service_fn(move |request| {
            let middleware = self.clone();
            async move { Ok(middleware.handle(request).await) }
        })
    }

    /// What it counts into.
    pub(crate) fn metrics(&self) -> &ListenerMetrics {
        &self.inner.metrics
    }

    /// Serves one request.
    pub async fn handle<B>(&self, mut request: Request<B>) -> Response
    where
        B: HttpBody<Data = Bytes> + Send + 'static,
        B::Error: Into<axum::BoxError>,
    {
        match self.serve_fast_path(&mut request) {
            Some(response) => response,
            None => self.serve_routed(request).await,
        }
    }

    /// Serves a request on the fast path, if that applies.
    pub(crate) fn serve_fast_path<B>(&self, request: &mut Request<B>) -> Option<Response> {
        let fast = self.inner.fast.as_ref()?;
        strip_trailing_slash(request.uri_mut());
        let timer = self.inner.metrics.start(request.method());
        let response = fast
            .path
            .respond(request.method(), request.uri(), request.headers());
        let Some((route, mut response)) = response else {
            timer.discard();
            return None;
        };
        finish(response.headers_mut(), request_id(request.headers()));
        let usual = fast.path.usual();
        if response.status() == StatusCode::OK && (request.method(), route) == (&usual.0, usual.1) {
            timer.finish_as(&fast.usual);
        } else {
            timer.finish(Route::Named(route), response.status());
        }
        Some(response)
    }

    /// Serves any other request with the router.
    pub(crate) async fn serve_routed<B>(&self, mut request: Request<B>) -> Response
    where
        B: HttpBody<Data = Bytes> + Send + 'static,
        B::Error: Into<axum::BoxError>,
    {
        let id = request_id(request.headers());
        strip_trailing_slash(request.uri_mut());
        let timer = self.inner.metrics.start(request.method());
        let context = RequestContext::new(id, self.inner.timeout, self.inner.bodies.clone());
        request.extensions_mut().insert(context.clone());
        // At the highest level, so that the id is in the lines of every level.
        let span = tracing::error_span!("request", id = context.id());
        let (request, unread) = UnreadBody::watch(request);
        let mut response = self
            .respond(request, &context)
            .instrument(span.clone())
            .await;
        unread.announce_close(&mut response);
        finish(response.headers_mut(), context.id_header());

        let route = context.route().cloned().map_or(Route::None, Route::Matched);
        let method = timer.method();
        span.in_scope(|| {
            let (status, took) = (response.status().as_u16(), context.started().elapsed());
            tracing::debug!(method, route = route.as_str(), status, ?took, "answered");
        });
        timer.finish(route, response.status());
        response
    }

    /// The router's response, or an error when it panics or times out.
    async fn respond(&self, request: Request<Body>, context: &RequestContext) -> Response {
        let mut work = pin!(AssertUnwindSafe(self.route(request)).catch_unwind());
        loop {
            let outcome = match context.deadline() {
                None => work.as_mut().await,
                Some(deadline) => match timeout_at(deadline, work.as_mut()).await {
                    Ok(outcome) => outcome,
                    // The handler may have got more time meanwhile.
                    Err(_)
                        if context
                            .deadline()
                            .is_none_or(|moved| moved > Instant::now()) =>
                    {
                        continue;
                    }
                    Err(_) => {
                        tracing::warn!("a handler took too long and was given up");
                        return E::from(ApiError::Timeout).into_response();
                    }
                },
            };
            return outcome.unwrap_or_else(|panic| {
                tracing::error!(panic = panic_message(panic.as_ref()), "a handler panicked");
                E::from(ApiError::Panic).into_response()
            });
        }
    }

    async fn route(&self, request: Request<Body>) -> Response {
        let mut router = self.inner.router.clone();
        if compress::is_wanted(request.headers()) {
            return compress::call(router, request).await;
        }
        let Ok(response) = router.call(request).await;
        response
    }
}

/// The headers that every response has.
pub(crate) fn finish(headers: &mut HeaderMap, id: HeaderValue) {
    headers.insert(REQUEST_ID, id);
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, NO_SNIFF);
    headers.entry(header::CACHE_CONTROL).or_insert(NO_STORE);
}

/// `/v1/projects/` is `/v1/projects`.
fn strip_trailing_slash(uri: &mut Uri) {
    let Some(path) = uri.path().strip_suffix('/').filter(|path| !path.is_empty()) else {
        return;
    };
    let stripped = match uri.query() {
        Some(query) => PathAndQuery::try_from(format!("{path}?{query}")),
        None => PathAndQuery::try_from(path),
    };
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = stripped.ok();
    if let Ok(stripped) = Uri::from_parts(parts) {
        *uri = stripped;
    }
}

fn panic_message(panic: &(dyn Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::PlatformError;
    use crate::metrics::Metrics;
    use axum::response::IntoResponse;
    use axum::routing::get;

    fn middleware(timeout: Duration) -> Middleware<PlatformError> {
        let router = Router::new()
            .route("/", get(|| async { "root" }))
            .route("/things/{id}", get(|| async { "thing" }))
            .route(
                "/poll",
                get(|context: RequestContext| async move {
                    context.clear_deadline();
                    tokio::time::sleep(Duration::from_millis(80)).await;
                }),
            )
            .route("/slow", get(|| tokio::time::sleep(Duration::from_mins(1))));
        let metrics = Metrics::new().listener("test");
        Middleware::with(
            finish_router::<PlatformError, ()>(router),
            metrics,
            timeout,
            None,
        )
    }

    async fn get_path(middleware: &Middleware<PlatformError>, path: &str) -> Response {
        middleware
            .handle(Request::builder().uri(path).body(Body::empty()).unwrap())
            .await
    }

    #[tokio::test]
    async fn one_trailing_slash_is_the_same_route() {
        let middleware = middleware(HANDLER_TIMEOUT);
        for (path, status) in [
            ("/", 200),
            ("/things/1", 200),
            ("/things/1/?a=b/", 200),
            ("/things/1//", 404),
        ] {
            assert_eq!(get_path(&middleware, path).await.status(), status, "{path}");
        }
    }

    #[tokio::test]
    async fn a_slow_handler_is_given_up_unless_it_asked_for_time() {
        let middleware = middleware(Duration::from_millis(20));
        let response = get_path(&middleware, "/slow").await;
        assert_eq!(response.status(), 503);
        assert_eq!(response.headers()["retry-after"], "1");
        assert_eq!(get_path(&middleware, "/poll").await.status(), 200);
    }

    #[tokio::test]
    async fn a_fast_path_goes_around_the_router() {
        struct Authorize;
        impl FastPath for Authorize {
            fn usual(&self) -> (Method, &'static str) {
                (Method::GET, "/fast")
            }

            fn respond(
                &self,
                _: &Method,
                uri: &Uri,
                _: &HeaderMap,
            ) -> Option<(&'static str, Response)> {
                (uri.path() == "/fast").then(|| ("/fast", "quick".into_response()))
            }
        }
        let metrics = Metrics::new();
        let fast: Box<dyn FastPath> = Box::new(Authorize);
        let middleware = Middleware::with(
            Router::new(),
            metrics.listener("ai"),
            HANDLER_TIMEOUT,
            Some(fast),
        );
        let response = get_path(&middleware, "/fast").await;
        assert_eq!(response.headers()["x-request-id"].len(), 24);
        let counted = |method: &str| {
            let series = format!(r#"method="{method}",route="/fast",status="200"}} 1"#);
            metrics.render().contains(&series)
        };
        assert!(counted("GET") && !counted("PUT"));
        // Not what it usually answers, and counted as what it is.
        let unusual = Request::put("/fast").body(Body::empty()).unwrap();
        assert_eq!(middleware.handle(unusual).await.status(), 200);
        assert!(counted("GET") && counted("PUT"));
        assert_eq!(get_path(&middleware, "/other").await.status(), 404);
    }
}
