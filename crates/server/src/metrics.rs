//! Metrics for Prometheus.
//!
//! One [`Metrics`] per listener; the middleware counts into it, other parts register their own, and `/metrics` of that
//! listener renders it. No series is rendered by two listeners, so that a scraper of both can sum them.

mod process;
mod requests;
mod text;

pub use requests::{ListenerMetrics, RequestSeries, RequestTimer, Route};

use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use estrade_model::sync::MutexExt;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use requests::RequestMetrics;
use std::sync::{Arc, Mutex};
use text::Format;

/// The numbers that one listener shows. Clones share them.
#[derive(Debug, Clone)]
pub struct Metrics {
    registry: Arc<Mutex<Registry>>,
    requests: RequestMetrics,
}

impl Metrics {
    /// With the numbers of the process and of the listener's requests.
    pub fn new() -> Self {
        let metrics = Self::of_requests();
        metrics.register(|registry| {
            registry.register_collector(Box::new(process::ProcessMetrics));
        });
        metrics
    }

    /// With the numbers of the listener's requests only.
    pub fn of_requests() -> Self {
        let mut registry = Registry::default();
        let requests = RequestMetrics::register(&mut registry);
        Self {
            registry: Arc::new(Mutex::new(registry)),
            requests,
        }
    }

    /// Lets another part add its numbers.
    pub fn register(&self, add: impl FnOnce(&mut Registry)) {
        add(&mut self.registry.lock_ignoring_poison());
    }

    /// The numbers of one listener's requests.
    pub fn listener(&self, name: &'static str) -> ListenerMetrics {
        self.requests.listener(name)
    }

    /// The numbers as `OpenMetrics`.
    pub fn render(&self) -> String {
        let registry = self.registry.lock_ignoring_poison();
        let mut text = String::new();
        if let Err(error) = encode(&mut text, &registry) {
            tracing::error!(%error, "cannot write metrics");
        }
        text
    }

    /// The response of `/metrics`, in the format that the client prefers.
    pub fn response(&self, accept: Option<&HeaderValue>) -> Response {
        let format = Format::of(accept);
        let text = match format {
            Format::OpenMetrics => self.render(),
            Format::Prometheus => text::to_prometheus(&self.render()),
        };
        let headers = [
            (header::CONTENT_TYPE, format.content_type()),
            (header::VARY, "accept"),
        ];
        (headers, text).into_response()
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}
