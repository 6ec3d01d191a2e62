//! Everything a request may need, built once at start.

use crate::metrics::Metrics;
use crate::provider_sync::ProviderSync;
use crate::rate::RateLimits;
use crate::shell_slots::ShellSlots;
use crate::spool::SpoolRoom;
use crate::stream_limit::StreamLimit;
use estrade_gateway::{Gateway, Relay};
use estrade_service::ai::usage::Ledger;
use estrade_service::{Core, Services};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// The clients that may read `/metrics`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MetricsAccess {
    /// Everyone on this machine whose request was not forwarded by a proxy, and accounts that are administrators.
    #[default]
    Local,
    /// Every client that reaches the listener.
    Public,
    /// Accounts that are administrators.
    Admin,
    /// The route does not exist.
    Off,
}

/// How clients reach a listener.
#[derive(Debug, Clone, Copy)]
pub struct ListenerAddress {
    /// The port that is bound.
    pub port: u16,
    /// Whether it speaks TLS.
    pub tls: bool,
}

impl ListenerAddress {
    /// Of a socket that is bound.
    pub fn new(bound: SocketAddr, tls: bool) -> Self {
        Self {
            port: bound.port(),
            tls,
        }
    }
}

/// The state of both APIs.
pub struct App {
    /// What the services share.
    pub core: Arc<Core>,
    /// The features that keep state.
    pub services: Services,
    /// Accounts for calls.
    pub ledger: Arc<Ledger>,
    pub gateway: Arc<Gateway>,
    /// Relays the calls of signed-in people, on the runtime of the process.
    pub relay: Relay,
    /// Keeps the gateway's providers up to date.
    pub providers: Arc<ProviderSync>,
    /// Shells that are open on this node.
    pub shells: Arc<ShellSlots>,
    /// Streams of events and log lines that are open on this node.
    pub streams: StreamLimit,
    /// Requests per second and credential.
    pub rates: RateLimits,
    /// Requests per second of all credentials of an account.
    pub account_rates: RateLimits,
    /// Where the AI API listens.
    pub ai_listener: ListenerAddress,
    /// Where large bodies wait.
    pub spool: SpoolRoom,
    /// What Prometheus reads.
    pub metrics: Arc<Metrics>,
    /// The same of the AI listener: inference, the ledger and its requests.
    pub ai_metrics: Arc<Metrics>,
    /// Work that goes on when its client hangs up; the server waits for it before it stops.
    pub tasks: TaskTracker,
    /// Ends long polls and streams when the server stops.
    pub shutdown: CancellationToken,
    /// Set once every listener accepts.
    pub ready: AtomicBool,
}

/// What handlers get.
pub type AppState = Arc<App>;

impl App {
    /// Marks the server as ready: every listener accepts.
    pub fn set_ready(&self) {
        self.ready.store(true, Ordering::Release);
    }

    /// Whether every listener accepts.
    pub fn is_ready(&self) -> bool {
        self.ready.load(Ordering::Acquire)
    }
}
