//! The last layers of every router: responses for unknown paths and methods, and route names.

use crate::api_error::ApiError;
use crate::context::RequestContext;
use crate::error::ErrorShape;
use axum::Router;
use axum::extract::{MatchedPath, Request};
use std::task::{Context, Poll};
use tower::{Layer, Service};

/// Finishes a router: 404 and 405 in the shape of its API, and the route's name for the metrics.
///
/// Call it last: it concerns the routes that are there already.
pub fn finish_router<E: ErrorShape, S: Clone + Send + Sync + 'static>(
    router: Router<S>,
) -> Router<S> {
    router
        .method_not_allowed_fallback(|| async { E::from(ApiError::MethodNotAllowed) })
        .fallback(|| async { E::from(ApiError::NoRoute) })
        // Not `route_layer`, which does not apply to responses for wrong methods.
        .layer(NameRoute)
}

/// Tells the middleware which route was taken, which only the router knows.
#[derive(Clone)]
struct NameRoute;

impl<S> Layer<S> for NameRoute {
    type Service = Named<S>;

    fn layer(&self, service: S) -> Named<S> {
        Named(service)
    }
}

/// A route that gives its name.
#[derive(Clone)]
struct Named<S>(S);

impl<S: Service<Request>> Service<Request> for Named<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, request: Request) -> S::Future {
        let extensions = request.extensions();
        if let (Some(context), Some(route)) = (
            RequestContext::of(extensions),
            extensions.get::<MatchedPath>(),
        ) {
            context.set_route(route.clone());
        }
        self.0.call(request)
    }
}
