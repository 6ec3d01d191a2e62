//! Reverse proxy: requests to the instances of a running release, and their responses back.
//!
//! ```text
//! client → request_head ┐                        ┌ response_head → client
//!          outgoing     ┴→ retry → http1::client ┴ upstream_body
//! ```
//!
//! `http1::client` has connections, parsing and framing. Policy is here: which instance and how often it is tried, which
//! headers are forwarded, timeouts and the bounds of uploads.

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
use estrade_listener::{UpstreamBudget, UpstreamSocket};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;

/// Connection to an instance.
pub(crate) type Connection = estrade_http1::client::Connection<UpstreamSocket<TcpStream>>;

/// How requests are passed on to instances.
#[derive(Debug, Clone)]
pub struct ProxyOptions {
    /// How long an instance may take to accept a connection.
    pub connect_timeout: Duration,
    /// How long it may take to begin its response, once it has the request.
    pub first_byte_timeout: Duration,
    /// How long either side may be silent within a body.
    pub idle_timeout: Duration,
    /// How long the body of a request may keep an instance waiting in total, before the instance has begun its
    /// response…
    pub upload_grace: Duration,
    /// …and how many bytes per second prolong that. Without a rate, a client that sends a byte before each idle timeout
    /// would hold an instance forever.
    pub min_upload_rate: u64,
    /// How long an upgraded connection may carry no byte in either direction.
    pub tunnel_timeout: Duration,
    /// Concurrent upgraded connections.
    pub max_tunnels: usize,
    /// Of these, those of one project once three quarters are taken.
    pub max_project_tunnels: usize,
    /// Maximum size of a request body.
    pub body_bytes: u64,
    /// Idle connections to an instance, per worker…
    pub max_idle: usize,
    /// …and how long they are kept.
    pub keep_alive: Duration,
    /// How many connections to instances may be open at once.
    pub upstreams: UpstreamBudget,
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
            max_project_tunnels: 2500,
            body_bytes: 1 << 30,
            max_idle: 64,
            keep_alive: Duration::from_secs(30),
            upstreams: UpstreamBudget::default(),
        }
    }
}

/// Where a request goes: the instance that was chosen, and those that it can be retried on.
pub(crate) struct ProxyTarget {
    pub(crate) route: Arc<Route>,
    pub(crate) endpoints: Arc<EndpointSet>,
    pub(crate) in_flight: InFlightGuard,
}

/// Why there is no response from an instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Failure {
    /// There are as many connections to instances as may be.
    TooManyConnections,
    /// No instance accepts a connection.
    Unreachable,
    /// The connection ended before the first byte of a response.
    NoResponse,
    /// The response is not HTTP, or breaks off within its head.
    MalformedResponse,
    /// No response in time.
    Timeout,
    /// The body of the request is larger than `body_bytes`.
    TooLarge,
    /// The client is too slow in sending its request.
    ClientTimeout,
    /// The body of the request breaks off, or its framing is invalid.
    ClientAborted,
}

impl Failure {
    /// The error page for the client.
    pub(crate) fn page(self) -> Page {
        match self {
            Self::TooManyConnections => Page::Unavailable,
            Self::Unreachable | Self::NoResponse | Self::MalformedResponse => Page::BadGateway,
            Self::Timeout => Page::GatewayTimeout,
            Self::TooLarge => Page::TooLarge,
            Self::ClientTimeout => Page::RequestTimeout,
            Self::ClientAborted => Page::BadRequest,
        }
    }
}
