//! Numbers for Prometheus.
//!
//! One [`Metrics`] per process; the front counts into it, other parts register their own, and
//! `/metrics` renders it.

mod process;
mod requests;

pub use requests::{ListenerMetrics, RequestSeries, Route, Watch};

use axum::http::header;
use axum::response::{IntoResponse, Response};
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use requests::RequestMetrics;
use std::sync::{Arc, Mutex, PoisonError};

const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// All numbers of this process. Clones share them.
#[derive(Debug, Clone)]
pub struct Metrics {
    registry: Arc<Mutex<Registry>>,
    requests: RequestMetrics,
}

impl Metrics {
    /// With the numbers of the process and of its requests.
    pub fn new() -> Self {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(process::ProcessMetrics));
        let requests = RequestMetrics::register(&mut registry);
        Self {
            registry: Arc::new(Mutex::new(registry)),
            requests,
        }
    }

    /// Lets another part add its numbers.
    pub fn register(&self, add: impl FnOnce(&mut Registry)) {
        add(&mut self.registry.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// The numbers of one listener's requests.
    pub fn listener(&self, name: &'static str) -> ListenerMetrics {
        self.requests.listener(name)
    }

    /// The text that Prometheus reads.
    pub fn render(&self) -> String {
        let registry = self.registry.lock().unwrap_or_else(PoisonError::into_inner);
        let mut text = String::new();
        if let Err(error) = encode(&mut text, &registry) {
            tracing::error!(%error, "cannot write metrics");
        }
        text
    }

    /// The answer of `/metrics`.
    pub fn response(&self) -> Response {
        ([(header::CONTENT_TYPE, CONTENT_TYPE)], self.render()).into_response()
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}
