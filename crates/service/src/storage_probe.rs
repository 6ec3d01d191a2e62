//! Whether the bucket with the files of releases answers, for health checks and the panel.
//!
//! A bucket that is away does not make a node unready: it serves what it has cached and does everything but deploys,
//! and a load balancer that took every node out would turn a part of an outage into a whole one.

use crate::Error;
use crate::on_demand_probe::{OnDemandProbe, ProbeTimes};
use estrade_blobs::{BlobError, BlobStore, CacheStats};
use futures_util::future::BoxFuture;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

const TIMES: ProbeTimes = ProbeTimes {
    // Each attempt is a request that the bucket's owner may pay for.
    success_ttl: Duration::from_secs(10),
    failure_ttl: Duration::from_secs(1),
    attempt_timeout: Duration::from_secs(5),
};

/// A bucket, and this node's cache of it.
#[derive(Debug, Clone, Copy)]
pub struct BucketStatus {
    /// Whether it answered lately.
    pub is_up: bool,
    pub cache: CacheStats,
}

/// Whether the bucket answers.
pub struct StorageProbe {
    blobs: BlobStore,
    probe: OnDemandProbe,
}

impl StorageProbe {
    /// A probe that has not asked yet; [`run`] does the asking.
    pub(crate) fn new(blobs: BlobStore) -> Self {
        Self {
            blobs,
            probe: OnDemandProbe::new(TIMES),
        }
    }

    /// The bucket, as far as can be found out within half a second; none when files lie in a directory.
    pub async fn status(&self) -> Option<BucketStatus> {
        let cache = self.blobs.cache_stats()?;
        let is_up = self.probe.is_good().await;
        Some(BucketStatus { is_up, cache })
    }

    async fn ask(&self) -> Result<(), Error> {
        let blobs = self.blobs.clone();
        let asked = tokio::task::spawn_blocking(move || blobs.probe_storage()).await;
        match asked.map_err(Error::internal)? {
            Err(error @ BlobError::Unavailable { .. }) => Err(error.into()),
            // It has answered.
            Ok(()) | Err(_) => Ok(()),
        }
    }
}

/// Probes on each request until `stop` is cancelled.
pub fn run(probe: Arc<StorageProbe>, stop: CancellationToken) -> BoxFuture<'static, ()> {
    Box::pin(async move {
        let (failed, works_again) = (
            "the bucket with the files of releases is away",
            "the bucket with the files of releases is back",
        );
        let attempt = || probe.ask();
        probe.probe.run(&stop, attempt, failed, works_again).await;
    })
}
