//! How the services tell the edge what to serve.

use crate::Result;
use estrade_model::{ProjectId, ReleaseId};
use estrade_store::routes::LiveRow;
use estrade_store::variants::VariantRow;
use futures_util::future::BoxFuture;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

/// Serves releases to visitors. The services only know that somebody does.
pub trait Publisher: Send + Sync {
    /// Gets ready to serve a release, so that the switch to it costs its first visitors nothing.
    /// `fresh` are variants that will be committed with the switch: the database has them not yet.
    fn prepare<'p>(
        &'p self,
        project: ProjectId,
        release: &'p LiveRow,
        fresh: Vec<VariantRow>,
    ) -> BoxFuture<'p, Result<()>>;

    /// From now on a release that runs can be reached at exactly these addresses. Those that it had
    /// before and has no more get no new request; the answer comes when they have ended those that
    /// they had, or after `limit`.
    fn publish(
        &self,
        project: ProjectId,
        release: ReleaseId,
        addresses: &[SocketAddr],
        limit: Duration,
    ) -> BoxFuture<'static, ()>;

    /// What visitors of a project were given on this node; none when nobody came.
    fn traffic(&self, _project: ProjectId) -> Option<Traffic> {
        None
    }
}

/// Who serves releases on this node, once that is known.
#[derive(Default)]
pub struct PublisherSlot(OnceLock<Weak<dyn Publisher>>);

impl PublisherSlot {
    /// Says who it is; the first one stays.
    pub fn set(&self, publisher: Weak<dyn Publisher>) {
        drop(self.0.set(publisher));
    }

    pub(crate) fn get(&self) -> Option<Arc<dyn Publisher>> {
        self.0.get()?.upgrade()
    }
}

/// What visitors of a project were given since this node has served it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Traffic {
    /// Responses by class of status: 1xx to 5xx.
    pub requests: [u64; 5],
    /// Bytes of their bodies.
    pub bytes: u64,
}
