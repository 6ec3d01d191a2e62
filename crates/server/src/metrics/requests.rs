//! Requests: how many, how long, how many at once.
//!
//! Labels are bounded: a route is what the router calls it, never what the client wrote.

use axum::extract::MatchedPath;
use axum::http::{Method, StatusCode};
use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue, LabelValueEncoder};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};
use std::fmt::{self, Write};
use std::hash::{Hash, Hasher};
use std::time::Instant;

/// Seconds; from a warm read to what only a slow disk or upstream explains.
const BUCKETS: [f64; 14] = [
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
];

/// The status of a request whose client disconnected before the response.
const CLIENT_CLOSED_REQUEST: u32 = 499;

/// A route as a label.
#[derive(Debug, Clone)]
pub enum Route {
    /// As written in the router.
    Matched(MatchedPath),
    /// One that does not go through the router.
    Named(&'static str),
    /// No route has this path.
    None,
}

impl Route {
    pub fn as_str(&self) -> &str {
        match self {
            Self::Matched(path) => path.as_str(),
            Self::Named(name) => name,
            Self::None => "none",
        }
    }
}

impl PartialEq for Route {
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str()
    }
}
impl Eq for Route {}
impl Hash for Route {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_str().hash(state);
    }
}
impl EncodeLabelValue for Route {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> fmt::Result {
        encoder.write_str(self.as_str())
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    listener: &'static str,
    method: &'static str,
    route: Route,
    status: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DurationLabels {
    listener: &'static str,
    route: Route,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ListenerLabels {
    listener: &'static str,
}

/// The request numbers of all listeners.
#[derive(Debug, Clone)]
pub(super) struct RequestMetrics {
    requests: Family<RequestLabels, Counter>,
    duration: Family<DurationLabels, Histogram, fn() -> Histogram>,
    in_flight: Family<ListenerLabels, Gauge>,
}

impl RequestMetrics {
    pub(super) fn register(registry: &mut Registry) -> Self {
        let metrics = Self {
            requests: Family::default(),
            duration: Family::new_with_constructor(|| Histogram::new(BUCKETS)),
            in_flight: Family::default(),
        };
        registry.register(
            "http_requests",
            "Requests answered",
            metrics.requests.clone(),
        );
        registry.register_with_unit(
            "http_request_duration",
            "Time until the answer began",
            Unit::Seconds,
            metrics.duration.clone(),
        );
        registry.register(
            "http_requests_in_flight",
            "Requests being answered",
            metrics.in_flight.clone(),
        );
        metrics
    }

    pub(super) fn listener(&self, listener: &'static str) -> ListenerMetrics {
        ListenerMetrics {
            listener,
            in_flight: self
                .in_flight
                .get_or_create_owned(&ListenerLabels { listener }),
            all: self.clone(),
        }
    }
}

/// The request numbers of one listener.
#[derive(Debug, Clone)]
pub struct ListenerMetrics {
    listener: &'static str,
    in_flight: Gauge,
    all: RequestMetrics,
}

impl ListenerMetrics {
    /// A request begins.
    pub fn start(&self, method: &Method) -> RequestTimer<'_> {
        self.in_flight.inc();
        RequestTimer {
            metrics: self,
            method: method_label(method),
            started: Instant::now(),
            counted: false,
        }
    }

    /// The series of responses with this status.
    pub fn series(
        &self,
        method: &Method,
        route: &'static str,
        status: StatusCode,
    ) -> RequestSeries {
        let (listener, route) = (self.listener, Route::Named(route));
        let timed = DurationLabels {
            listener,
            route: route.clone(),
        };
        let labels = RequestLabels {
            listener,
            method: method_label(method),
            route,
            status: u32::from(status.as_u16()),
        };
        RequestSeries {
            requests: self.all.requests.get_or_create_owned(&labels),
            duration: self.all.duration.get_or_create_owned(&timed),
        }
    }
}

/// The series of one kind of response.
#[derive(Debug, Clone)]
pub struct RequestSeries {
    requests: Counter,
    duration: Histogram,
}

/// Timer of a request in flight. Dropped without [`RequestTimer::finish`], its client disconnected.
#[derive(Debug)]
pub struct RequestTimer<'m> {
    metrics: &'m ListenerMetrics,
    method: &'static str,
    started: Instant,
    counted: bool,
}

impl RequestTimer<'_> {
    /// The method as a label.
    pub fn method(&self) -> &'static str {
        self.method
    }

    /// Records the start of the response.
    pub fn finish(mut self, route: Route, status: StatusCode) {
        self.count(route, u32::from(status.as_u16()));
    }

    /// The same, with a series that was looked up before.
    pub fn finish_as(mut self, series: &RequestSeries) {
        self.counted = true;
        series
            .duration
            .observe(self.started.elapsed().as_secs_f64());
        series.requests.inc();
    }

    /// Records nothing: another service handles the request, with a timer of its own.
    pub(crate) fn discard(mut self) {
        self.counted = true;
    }

    fn count(&mut self, route: Route, status: u32) {
        self.counted = true;
        let ListenerMetrics { listener, all, .. } = self.metrics;
        let timed = DurationLabels {
            listener,
            route: route.clone(),
        };
        all.duration
            .get_or_create(&timed)
            .observe(self.started.elapsed().as_secs_f64());
        let labels = RequestLabels {
            listener,
            method: self.method,
            route,
            status,
        };
        all.requests.get_or_create(&labels).inc();
    }
}

impl Drop for RequestTimer<'_> {
    fn drop(&mut self) {
        if !self.counted {
            self.count(Route::None, CLIENT_CLOSED_REQUEST);
        }
        self.metrics.in_flight.dec();
    }
}

/// Clients may invent methods; labels may not grow with them.
fn method_label(method: &Method) -> &'static str {
    match *method {
        Method::GET => "GET",
        Method::HEAD => "HEAD",
        Method::POST => "POST",
        Method::PUT => "PUT",
        Method::PATCH => "PATCH",
        Method::DELETE => "DELETE",
        Method::OPTIONS => "OPTIONS",
        _ => "other",
    }
}

#[cfg(test)]
mod tests {
    use crate::metrics::{Metrics, Route};
    use axum::http::{Method, StatusCode};

    #[test]
    fn requests_are_counted_by_route_and_status_even_when_the_client_hangs_up() {
        let metrics = Metrics::new();
        let listener = metrics.listener("platform");
        let timer = listener.start(&Method::GET);
        assert!(
            metrics
                .render()
                .contains(r#"http_requests_in_flight{listener="platform"} 1"#)
        );
        timer.finish(Route::Named("/v1/me"), StatusCode::OK);
        drop(listener.start(&Method::from_bytes(b"BREW").unwrap()));
        let text = metrics.render();
        for line in [
            r#"http_requests_total{listener="platform",method="GET",route="/v1/me",status="200"} 1"#,
            r#"http_requests_total{listener="platform",method="other",route="none",status="499"} 1"#,
            r#"http_request_duration_seconds_count{listener="platform",route="/v1/me"} 1"#,
            r#"http_requests_in_flight{listener="platform"} 0"#,
            "process_resident_memory_bytes ",
            "process_open_fds ",
            "process_start_time_seconds ",
            "process_cpu_seconds_total ",
        ] {
            assert!(text.contains(line), "{line} not in {text}");
        }
        assert!(text.ends_with("# EOF\n"));
    }
}
