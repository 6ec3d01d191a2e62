//! Whether the bucket with the files of releases answers, for health checks and the panel.
//!
//! One task asks, and only on request. A bucket that is away does not make a node unready: it serves what it has
//! cached and does everything but deploys, and a load balancer that took every node out would turn a part of an outage
//! into a whole one.

use estrade_blobs::{BlobError, BlobStore, CacheStats};
use estrade_model::error::error_chain;
use futures_util::future::BoxFuture;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

/// How long a good outcome counts: each is a request that the bucket's owner may pay for.
const SUCCESS_TTL: Duration = Duration::from_secs(10);
/// How long a bad one does.
const FAILURE_TTL: Duration = Duration::from_secs(1);
/// How long a request waits for a probe.
const RESPONSE_TIMEOUT: Duration = Duration::from_millis(500);

/// A bucket, and this node's cache of it.
#[derive(Debug, Clone, Copy)]
pub struct BucketStatus {
    /// Whether it answered lately.
    pub is_up: bool,
    pub cache: CacheStats,
}

#[derive(Debug, Clone, Copy)]
struct Outcome {
    good: bool,
    at: Option<Instant>,
}

/// Whether the bucket answers.
pub struct StorageProbe {
    blobs: BlobStore,
    wanted: Notify,
    outcome: watch::Sender<Outcome>,
}

impl StorageProbe {
    /// A probe that has not asked yet; [`run`] does the asking.
    pub(crate) fn new(blobs: BlobStore) -> Self {
        let outcome = Outcome {
            good: true,
            at: None,
        };
        Self {
            blobs,
            wanted: Notify::new(),
            outcome: watch::Sender::new(outcome),
        }
    }

    /// The bucket, as far as can be found out within half a second; none when files lie in a directory.
    pub async fn status(&self) -> Option<BucketStatus> {
        let cache = self.blobs.cache_stats()?;
        let mut outcomes = self.outcome.subscribe();
        let last = *outcomes.borrow_and_update();
        let good_for = if last.good { SUCCESS_TTL } else { FAILURE_TTL };
        if last.at.is_none_or(|at| at.elapsed() >= good_for) {
            self.wanted.notify_one();
            // When nothing comes in time, the last outcome counts: the store has a timeout of its own.
            drop(timeout(RESPONSE_TIMEOUT, outcomes.changed()).await);
        }
        let is_up = outcomes.borrow().good;
        Some(BucketStatus { is_up, cache })
    }
}

/// Probes on each request until `stop` is cancelled.
pub fn run(probe: Arc<StorageProbe>, stop: CancellationToken) -> BoxFuture<'static, ()> {
    Box::pin(async move {
        while stop
            .run_until_cancelled(probe.wanted.notified())
            .await
            .is_some()
        {
            let blobs = probe.blobs.clone();
            let asked = tokio::task::spawn_blocking(move || blobs.probe_storage());
            let Some(asked) = stop.run_until_cancelled(asked).await else {
                return;
            };
            let problem = match asked {
                Ok(Err(error @ BlobError::Unavailable { .. })) => Some(error_chain(&error)),
                Ok(_) => None,
                Err(error) => Some(error_chain(&error)),
            };
            let before = probe.outcome.send_replace(Outcome {
                good: problem.is_none(),
                at: Some(Instant::now()),
            });
            // Once per outage.
            match problem {
                Some(error) if before.good => {
                    tracing::error!(error, "the bucket with the files of releases is away");
                }
                None if !before.good => tracing::info!("the bucket is back"),
                _ => {}
            }
        }
    })
}
