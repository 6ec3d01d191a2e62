//! Whether writes succeed: asked by those who watch the server, answered by trying.
//!
//! One task tries, and only while somebody asks. It writes to the database and beside the contents of releases, so
//! that a full disk, a read-only one and a database that somebody has locked are all found.

use crate::{Core, Error};
use estrade_model::error::error_chain;
use estrade_model::sync::MutexExt;
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
/// How long somebody who asks waits for a try.
const ANSWER_TIMEOUT: Duration = Duration::from_millis(500);
/// A try that takes longer has failed, even if it should succeed later.
const WRITE_TIMEOUT: Duration = Duration::from_secs(3);

/// What came of the last try.
#[derive(Debug, Clone, Copy)]
struct Outcome {
    good: bool,
    at: Option<Instant>,
}

/// Whether writes succeed.
#[derive(Debug)]
pub struct WriteProbe {
    wanted: Notify,
    outcome: watch::Sender<Outcome>,
    /// When the try began that is under way.
    began: Mutex<Option<Instant>>,
}

impl Default for WriteProbe {
    fn default() -> Self {
        let outcome = Outcome {
            good: true,
            at: None,
        };
        Self {
            wanted: Notify::new(),
            outcome: watch::Sender::new(outcome),
            began: Mutex::default(),
        }
    }
}

impl WriteProbe {
    /// Whether writes succeed, as far as can be said within half a second.
    pub async fn is_writable(&self) -> bool {
        let mut outcomes = self.outcome.subscribe();
        let last = *outcomes.borrow_and_update();
        let good_for = if last.good { SUCCESS_TTL } else { FAILURE_TTL };
        if last.at.is_some_and(|at| at.elapsed() < good_for) {
            return last.good;
        }
        self.wanted.notify_one();
        match timeout(ANSWER_TIMEOUT, outcomes.changed()).await {
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

/// Tries whenever somebody asks, until `stop`.
pub fn run(core: Arc<Core>, stop: CancellationToken) -> BoxFuture<'static, ()> {
    Box::pin(async move {
        let probe = &core.write_probe;
        while stop
            .run_until_cancelled(probe.wanted.notified())
            .await
            .is_some()
        {
            *probe.began() = Some(Instant::now());
            let tried = stop.run_until_cancelled(try_to_write(&core)).await;
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

async fn try_to_write(core: &Core) -> Result<(), Error> {
    let (blobs, db) = (core.blobs.clone(), core.db.clone());
    let files = move || {
        blobs.probe_write().map_err(Error::internal)?;
        db.probe_files().map_err(Error::from)
    };
    tokio::task::spawn_blocking(files)
        .await
        .map_err(Error::internal)??;
    Ok(core.db.probe_write().await?)
}
