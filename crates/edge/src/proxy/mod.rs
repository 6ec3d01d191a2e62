//! Reverse proxy: requests to the instances of a running release, and their responses back.
//!
//! ```text
//! client → request_head ┐                      ┌ response_head → client
//!          outgoing     ┴→ retry → connection ─┴ upstream_body
//! ```
//!
//! HTTP/1.1, spoken here and not by a library: a connection is owned by the request that uses it, so
//! that no task and no channel lies between the two sockets, that dropping the request closes it, and
//! that it is known whether a byte of an answer came, which decides whether a request may be repeated.

pub(crate) mod connection;
pub(crate) mod forwarded;
pub(crate) mod outgoing;
pub(crate) mod pool;
pub(crate) mod request_head;
pub(crate) mod response_head;
pub(crate) mod retry;
pub(crate) mod upstream_body;

use crate::routing::endpoints::EndpointSet;
use crate::routing::load_balancer::InFlightGuard;
use crate::routing::route::Route;
use crate::static_files::error_pages::Page;
use std::sync::Arc;
use std::time::Duration;

/// How requests are passed on to instances.
#[derive(Debug, Clone)]
pub struct ProxyOptions {
    /// How long an instance may take to accept a connection.
    pub connect_timeout: Duration,
    /// How long it may take to begin its answer, once it has the request.
    pub first_byte_timeout: Duration,
    /// How long either side may be silent within a body.
    pub idle_timeout: Duration,
    /// How long a visitor may keep us waiting within the body of its request, in all, before an
    /// instance has begun to answer…
    pub upload_grace: Duration,
    /// …and how many bytes a second it has to send from then on, on average: a byte before each
    /// silence ends would otherwise hold an instance for ever.
    pub min_upload_rate: u64,
    /// How long both sides of an upgraded connection may be silent.
    pub tunnel_timeout: Duration,
    /// Upgraded connections at once.
    pub max_tunnels: usize,
    /// Longest body of a request.
    pub body_bytes: u64,
    /// Connections to an instance that wait for the next request, per serving thread…
    pub max_idle: usize,
    /// …and how long they wait.
    pub keep_alive: Duration,
}

impl Default for ProxyOptions {
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(3),
            first_byte_timeout: Duration::from_mins(1),
            idle_timeout: Duration::from_mins(5),
            upload_grace: Duration::from_mins(1),
            min_upload_rate: 4096,
            tunnel_timeout: Duration::from_hours(1),
            max_tunnels: 10_000,
            body_bytes: 1 << 30,
            max_idle: 64,
            keep_alive: Duration::from_secs(30),
        }
    }
}

/// Where a request goes: the instance that has it, and those that it can go to instead.
pub(crate) struct ProxyTarget {
    pub(crate) route: Arc<Route>,
    pub(crate) endpoints: Arc<EndpointSet>,
    pub(crate) in_flight: InFlightGuard,
}

/// Why there is no answer from an instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Failure {
    /// No instance accepts a connection.
    Unreachable,
    /// The connection ended before the first byte of an answer.
    Unanswered,
    /// What came is not HTTP, or breaks off within the head.
    MalformedResponse,
    /// No answer in time.
    Timeout,
    /// The body of the request is too long.
    TooLarge,
    /// The visitor does not send the rest of its request.
    VisitorSilent,
    /// What the visitor sends is broken off, or nonsense.
    VisitorBroken,
}

impl Failure {
    /// What the visitor sees of it.
    pub(crate) fn page(self) -> Page {
        match self {
            Self::Unreachable | Self::Unanswered | Self::MalformedResponse => Page::BadGateway,
            Self::Timeout => Page::GatewayTimeout,
            Self::TooLarge => Page::TooLarge,
            Self::VisitorSilent => Page::RequestTimeout,
            Self::VisitorBroken => Page::BadRequest,
        }
    }
}
