//! Write probe for health checks: tries a write to find out whether writes succeed.
//!
//! One task probes, and only on request. It writes to the database and beside the contents of releases, so that a
//! full disk, a read-only one and a locked database are all found.

use crate::Error;
use estrade_blobs::BlobStore;
use estrade_model::error::error_chain;
use estrade_model::sync::MutexExt;
use estrade_store::Db;
use futures_util::future::BoxFuture;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

/// How long a good outcome counts; each try waits for the disk.
const SUCCESS_TTL: Duration = Duration::from_secs(2);
/// How long a bad one does.
const FAILURE_TTL: Duration = Duration::from_millis(250);
/// How long a request waits for a probe.
const RESPONSE_TIMEOUT: Duration = Duration::from_millis(500);
/// A try that takes longer has failed, even if it should succeed later.
const WRITE_TIMEOUT: Duration = Duration::from_secs(3);

/// What came of the last try.
#[derive(Debug, Clone, Copy)]
struct Outcome {
    good: bool,
    at: Option<Instant>,
}

/// Whether writes succeed.
pub struct WriteProbe {
    db: Db,
    blobs: BlobStore,
    wanted: Notify,
    outcome: watch::Sender<Outcome>,
    /// When the try began that is under way.
    began: Mutex<Option<Instant>>,
}

impl WriteProbe {
    /// A probe that has not written yet; [`run`] does the writing.
    pub(crate) fn new(db: Db, blobs: BlobStore) -> Self {
        let outcome = Outcome {
            good: true,
            at: None,
        };
        Self {
            db,
            blobs,
            wanted: Notify::new(),
            outcome: watch::Sender::new(outcome),
            began: Mutex::default(),
        }
    }

    /// Whether writes succeed, as far as can be found out within half a second.
    pub async fn is_writable(&self) -> bool {
        let mut outcomes = self.outcome.subscribe();
        let last = *outcomes.borrow_and_update();
        let good_for = if last.good { SUCCESS_TTL } else { FAILURE_TTL };
        if last.at.is_some_and(|at| at.elapsed() < good_for) {
            return last.good;
        }
        self.wanted.notify_one();
        match timeout(RESPONSE_TIMEOUT, outcomes.changed()).await {
            Ok(_) => outcomes.borrow().good,
            Err(_) => last.good && !self.is_stuck(),
        }
    }

    fn is_stuck(&self) -> bool {
        self.began().is_some_and(|at| at.elapsed() >= WRITE_TIMEOUT)
    }

    fn began(&self) -> MutexGuard<'_, Option<Instant>> {
        self.began.lock_ignoring_poison()
    }
}

/// Probes on each request until `stop` is cancelled.
pub fn run(probe: Arc<WriteProbe>, stop: CancellationToken) -> BoxFuture<'static, ()> {
    Box::pin(async move {
        while stop
            .run_until_cancelled(probe.wanted.notified())
            .await
            .is_some()
        {
            *probe.began() = Some(Instant::now());
            let tried = stop.run_until_cancelled(try_to_write(&probe)).await;
            let Some(tried) = tried else { return };
            *probe.began() = None;
            let before = probe.outcome.send_replace(Outcome {
                good: tried.is_ok(),
                at: Some(Instant::now()),
            });
            // Once per outage.
            match tried {
                Err(error) if before.good => {
                    tracing::error!(error = error_chain(&error), "writes fail: not ready");
                }
                Ok(()) if !before.good => tracing::info!("writes succeed again: ready"),
                _ => {}
            }
        }
    })
}

async fn try_to_write(probe: &WriteProbe) -> Result<(), Error> {
    let (blobs, db) = (probe.blobs.clone(), probe.db.clone());
    let files = move || {
        blobs.probe_write().map_err(Error::internal)?;
        db.probe_files().map_err(Error::from)
    };
    tokio::task::spawn_blocking(files)
        .await
        .map_err(Error::internal)??;
    Ok(probe.db.probe_write().await?)
}
