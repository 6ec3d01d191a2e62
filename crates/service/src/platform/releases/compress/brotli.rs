//! Brotli: better and slow, so it follows in the background, for what is live.
//!
//! Level-triggered: artifacts without Brotli are marked in the database, and after a crash the work resumes
//! with what was not committed. One content at a time, on one thread.

use super::eager::EagerCompressor;
use super::parallel::CompressedBatch;
use super::variants::{PreparedVariants, compress, find_jobs};
use crate::change_subscription::ChangeSubscription;
use crate::{Core, Error, Result};
use estrade_model::coding::Coding;
use estrade_model::error::error_chain;
use estrade_model::release::ArtifactId;
use estrade_store::ChangeKind;
use estrade_store::artifacts::{self, WithoutBrotli};
use estrade_store::manifest::Manifest;
use futures_util::future::BoxFuture;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// How often it looks although nothing woke it, and tries again what failed.
const RETRY_INTERVAL: Duration = Duration::from_hours(1);
/// How much is compressed before it is written down, so that little is lost when we are killed.
const BATCH_BYTES: u64 = 512 * 1024;
/// A site is often deployed several times in a row; only the last is worth the effort.
const DEBOUNCE_DELAY: Duration = Duration::from_secs(1);
/// Artifacts looked at, at once. More than one, because some may have failed.
const MAX_CANDIDATES: u32 = 64;

/// Makes Brotli variants of what is live, until `stop`.
pub fn run(
    core: Arc<Core>,
    eager: EagerCompressor,
    stop: CancellationToken,
) -> BoxFuture<'static, ()> {
    Box::pin(async move {
        let mut watch = ChangeSubscription::start(&core.db);
        let mut failed = HashSet::new();
        let mut forget = Instant::now() + RETRY_INTERVAL;
        loop {
            let work = compress_live(&core, &eager, &mut failed);
            // What is half-done is dropped, and begun again after the next start.
            let Some(done) = stop.run_until_cancelled(work).await else {
                return;
            };
            if let Err(error) = done {
                let error = error_chain(&error);
                tracing::warn!(error, "cannot look for what to compress; will look again");
            }
            let woken = async {
                tokio::select! {
                    () = watch.any_changed(&[ChangeKind::Route]) => tokio::time::sleep(DEBOUNCE_DELAY).await,
                    () = tokio::time::sleep_until(forget) => {}
                }
            };
            if stop.run_until_cancelled(woken).await.is_none() {
                return;
            }
            if Instant::now() >= forget {
                failed.clear();
                forget = Instant::now() + RETRY_INTERVAL;
            }
        }
    })
}

/// Works until everything that is live has its variants.
async fn compress_live(
    core: &Core,
    eager: &EagerCompressor,
    failed: &mut HashSet<ArtifactId>,
) -> Result<()> {
    loop {
        // Queried again after each batch: what is live may have changed.
        let open = artifacts::list_without_brotli(&core.db, MAX_CANDIDATES).await?;
        let Some(next) = open.into_iter().find(|it| !failed.contains(&it.id)) else {
            return Ok(());
        };
        if let Err(error) = compress_batch(core, eager, next).await {
            let error = error_chain(&error);
            tracing::warn!(project = %next.project, error, "cannot make Brotli variants; trying again within the hour");
            failed.insert(next.id);
        }
    }
}

/// Makes some of the variants of an artifact. When none is missing, tells the edge to look again.
async fn compress_batch(
    core: &Core,
    eager: &EagerCompressor,
    artifact: WithoutBrotli,
) -> Result<()> {
    let mut jobs = find_jobs(core, artifact.id, &[Coding::Brotli], &Manifest::default()).await?;
    let mut bytes = 0;
    let batch = jobs.iter().take_while(|job| {
        let fits = bytes < BATCH_BYTES;
        bytes += job.blob.size;
        fits
    });
    let count = batch.count();
    let is_last = count == jobs.len();
    jobs.truncate(count);
    let packed = if jobs.is_empty() {
        CompressedBatch::default()
    } else {
        compress(core, eager, jobs, 1, true).await?
    };
    let made = PreparedVariants::new(artifact.id, packed);
    let (rows, now) = (Arc::clone(&made.rows), core.now());
    let committed = core
        .db
        .transact(move |tx| {
            let rows = Arc::clone(&rows);
            Box::pin(async move {
                // The contents may have been cleaned up with their release meanwhile.
                if is_last && !artifacts::set_brotli(tx, artifact.id).await? {
                    return Ok(false);
                }
                rows.insert_brotli(tx).await?;
                if is_last {
                    tx.changed(ChangeKind::Route, artifact.project, now).await?;
                }
                Ok::<_, Error>(true)
            })
        })
        .await;
    made.settle(&committed);
    committed.map(drop)
}
