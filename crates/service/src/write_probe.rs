//! Write probe for health checks: tries a write to find out whether writes succeed.
//!
//! It writes to the database and beside the contents of releases, so that a full disk, a read-only one and a locked
//! database are all found.

use crate::Error;
use crate::on_demand_probe::{OnDemandProbe, ProbeTimes};
use estrade_blobs::BlobStore;
use estrade_store::Db;
use futures_util::future::BoxFuture;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

const TIMES: ProbeTimes = ProbeTimes {
    // Each attempt waits for the disk.
    success_ttl: Duration::from_secs(2),
    failure_ttl: Duration::from_millis(250),
    attempt_timeout: Duration::from_secs(3),
};

/// Whether writes succeed.
pub struct WriteProbe {
    db: Db,
    blobs: BlobStore,
    probe: OnDemandProbe,
}

impl WriteProbe {
    /// A probe that has not written yet; [`run`] does the writing.
    pub(crate) fn new(db: Db, blobs: BlobStore) -> Self {
        Self {
            db,
            blobs,
            probe: OnDemandProbe::new(TIMES),
        }
    }

    /// Whether writes succeed, as far as can be found out within half a second.
    pub async fn is_writable(&self) -> bool {
        self.probe.is_good().await
    }

    async fn write(&self) -> Result<(), Error> {
        let (blobs, db) = (self.blobs.clone(), self.db.clone());
        let files = move || {
            blobs.probe_write().map_err(Error::internal)?;
            db.probe_files().map_err(Error::from)
        };
        tokio::task::spawn_blocking(files)
            .await
            .map_err(Error::internal)??;
        Ok(self.db.probe_write().await?)
    }
}

/// Probes on each request until `stop` is cancelled.
pub fn run(probe: Arc<WriteProbe>, stop: CancellationToken) -> BoxFuture<'static, ()> {
    Box::pin(async move {
        let (failed, works_again) = ("writes fail: not ready", "writes succeed again: ready");
        let attempt = || probe.write();
        probe.probe.run(&stop, attempt, failed, works_again).await;
    })
}
