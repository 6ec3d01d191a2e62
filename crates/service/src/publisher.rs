//! How the services tell the edge what to serve.

use crate::Result;
use estrade_model::{ProjectId, ReleaseId};
use estrade_store::routes::LiveRow;
use estrade_store::variants::VariantRow;
use futures_util::future::BoxFuture;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

/// Serves releases to clients: the interface through which the services drive the edge.
pub trait Publisher: Send + Sync {
    /// Warms up a release, so that its first requests after the switch are not slower.
    /// `fresh` are variants that will be committed with the switch: the database has them not yet.
    fn prepare<'p>(
        &'p self,
        project: ProjectId,
        release: &'p LiveRow,
        fresh: Vec<VariantRow>,
    ) -> BoxFuture<'p, Result<()>>;

    /// Sets the addresses of a running release. Those that are removed get no new request; the future
    /// resolves when their requests in flight have ended, or after `limit`.
    fn publish(
        &self,
        project: ProjectId,
        release: ReleaseId,
        addresses: &[SocketAddr],
        limit: Duration,
    ) -> BoxFuture<'static, ()>;

    /// The traffic of a project on this node; none without a request.
    fn traffic(&self, _project: ProjectId) -> Option<Traffic> {
        None
    }

    /// The traffic of every project that had any on this node.
    fn all_traffic(&self) -> Vec<(ProjectId, Traffic)> {
        Vec::new()
    }
}

/// The publisher of this node, set once it exists.
#[derive(Default)]
pub struct PublisherSlot(OnceLock<Weak<dyn Publisher>>);

impl PublisherSlot {
    /// Sets the publisher; only the first call has an effect.
    pub fn set(&self, publisher: Weak<dyn Publisher>) {
        drop(self.0.set(publisher));
    }

    pub(crate) fn get(&self) -> Option<Arc<dyn Publisher>> {
        self.0.get()?.upgrade()
    }
}

/// Counters of a project's requests and bytes since this node has served it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Traffic {
    /// Responses by class of status: 1xx to 5xx.
    pub requests: [u64; 5],
    /// Bytes of their bodies.
    pub bytes: u64,
    /// Responses by the time that they took: up to each of [`RESPONSE_TIMES`], and longer than the last.
    pub times: [u64; RESPONSE_TIMES.len() + 1],
}

/// Upper bounds of the histogram of the time to respond.
pub const RESPONSE_TIMES: [Duration; 9] = [
    Duration::from_micros(50),
    Duration::from_micros(100),
    Duration::from_micros(250),
    Duration::from_micros(500),
    Duration::from_millis(1),
    Duration::from_millis(5),
    Duration::from_millis(25),
    Duration::from_millis(100),
    Duration::from_secs(1),
];
