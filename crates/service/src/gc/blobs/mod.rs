//! Garbage collection of old artifacts and sources, contents without a release, and
//! files without a content. One task, started by the server and ended by its token.
//!
//! ```text
//! retention   releases beyond a project's history lose what they were made of
//! sweep       contents that nothing needs lose their rows
//! orphans     packs and files that were without rows for a day are removed   (crate::gc::startup)
//! packs       what is left of sparse packs moves together
//! ```
//!
//! Each step may be cut off anywhere and is repeated by the next run.

mod packs;
mod reachable;
mod retention;
mod sweep;

use crate::jobs::Job;
use crate::{Core, Result, gc::startup};
use estrade_model::ProjectId;
use estrade_model::error::error_chain;
use estrade_store::blob_gc::GcGuard;
use estrade_store::{Change, ChangeKind, routes};
use futures_util::future::BoxFuture;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

/// A server that has just started has more urgent things to do.
const START_DELAY: Duration = Duration::from_secs(1);
/// How often everything is looked at.
const FULL_INTERVAL: Duration = Duration::from_hours(1);
/// How long after a change, so that one run serves many.
const DEBOUNCE_DELAY: Duration = Duration::from_secs(3);
/// How long after a failure.
const RETRY_DELAY: Duration = Duration::from_secs(30);
/// After a run the collector rests this many times as long as the run took.
const IDLE_FACTOR: u32 = 20;
/// Projects that are remembered one by one.
const MAX_PROJECTS: usize = 1000;

/// What a run removed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CollectedBlobs {
    pub contents: u64,
    /// Packs and files.
    pub files: u64,
    /// Packs whose contents moved together.
    pub packs: usize,
}

/// What to look at.
#[derive(Debug)]
enum Reason {
    Time,
    /// These projects: another release serves, or they are gone.
    Changes(HashSet<ProjectId>),
}

/// Cleans up until `stop`: soon after the start, every hour, and soon after something was replaced or
/// removed.
pub fn run(core: Arc<Core>, stop: CancellationToken) -> BoxFuture<'static, ()> {
    Box::pin(async move {
        let mut changes = core.db.changes().subscribe();
        let mut collector = BlobCollector::new(core);
        let (mut reason, mut failing) = (Reason::Time, false);
        let mut next_full = Instant::now() + START_DELAY;
        if stop.run_until_cancelled(sleep(START_DELAY)).await.is_none() {
            return;
        }
        loop {
            let began = Instant::now();
            let Some(done) = stop
                .run_until_cancelled(collector.collect_for(&reason))
                .await
            else {
                return;
            };
            let took = began.elapsed();
            let (jobs, now) = (&collector.core.jobs, collector.core.now());
            if let Err(error) = &done {
                jobs.fail(Job::CollectBlobs, now, error_chain(error));
            }
            jobs.finish(Job::CollectBlobs, now);
            match &done {
                // Once per outage.
                Err(error) if !failing => {
                    tracing::warn!(
                        error = error_chain(error),
                        "cannot clean up; will try again"
                    );
                }
                Ok(_) if failing => tracing::info!("cleaning up again"),
                _ => {}
            }
            failing = done.is_err();
            if failing {
                next_full = Instant::now() + RETRY_DELAY.max(took * IDLE_FACTOR);
            } else if matches!(reason, Reason::Time) {
                next_full = Instant::now() + FULL_INTERVAL;
            }
            let rest = Instant::now() + DEBOUNCE_DELAY.max(took * IDLE_FACTOR);
            let woken = wake(&mut changes, rest, next_full);
            let Some(woken) = stop.run_until_cancelled(woken).await else {
                return;
            };
            reason = woken;
        }
    })
}

/// Waits for a reason to clean up. The first change begins a short wait, which later ones do not
/// prolong.
async fn wake(changes: &mut Receiver<Change>, rest: Instant, next_full: Instant) -> Reason {
    let (mut projects, mut everything) = (HashSet::new(), false);
    let mut due = next_full;
    loop {
        let received = tokio::select! {
            () = sleep_until(due) => break,
            received = changes.recv() => received,
        };
        match received {
            Ok(change) if change.kind == ChangeKind::Route => {
                projects.extend(change.id.parse::<ProjectId>());
                everything |= projects.len() > MAX_PROJECTS;
            }
            Ok(_) => continue,
            Err(RecvError::Lagged(_)) => everything = true,
            // The database is closing; `stop` will end the wait.
            Err(RecvError::Closed) => std::future::pending().await,
        }
        if everything {
            projects.clear();
        }
        due = due.min(rest.max(Instant::now() + DEBOUNCE_DELAY));
    }
    if everything || projects.is_empty() || Instant::now() >= next_full {
        return Reason::Time;
    }
    Reason::Changes(projects)
}

/// Runs the steps of the garbage collection of contents.
pub struct BlobCollector {
    core: Arc<Core>,
}

impl BlobCollector {
    /// One that has not collected up yet.
    pub fn new(core: Arc<Core>) -> Self {
        Self { core }
    }

    async fn collect_for(&mut self, reason: &Reason) -> Result<CollectedBlobs> {
        match reason {
            Reason::Time => self.collect().await,
            Reason::Changes(projects) => {
                if self.trim_projects(projects).await? {
                    // Listing a bucket costs, and what is in it stays for a day anyway.
                    return self.sweep(!self.has_bucket()).await;
                }
                Ok(CollectedBlobs::default())
            }
        }
    }

    /// Runs all steps once.
    pub async fn collect(&mut self) -> Result<CollectedBlobs> {
        retention::prune(&self.core).await?;
        retention::trim_all(&self.core).await?;
        self.sweep(true).await
    }

    /// Trims the histories of projects; returns whether that, or their end, left garbage.
    async fn trim_projects(&self, projects: &HashSet<ProjectId>) -> Result<bool> {
        let mut any = false;
        for project in projects {
            any |= match routes::read_route(&self.core.db, *project).await? {
                Some(_) => retention::trim(&self.core, *project).await?,
                None => true,
            };
        }
        Ok(any)
    }

    fn has_bucket(&self) -> bool {
        self.core.blobs.cache_stats().is_some()
    }

    /// Deletes rows of contents; with `objects` also packs and files.
    async fn sweep(&mut self, objects: bool) -> Result<CollectedBlobs> {
        let mut collected = CollectedBlobs::default();
        // Rows belong to all nodes, and one cleans at a time. So it is with the objects of a bucket; the files of a
        // directory belong to this node.
        let has_bucket = self.has_bucket();
        if let Some(guard) = GcGuard::take(&self.core.db).await? {
            let swept = sweep::sweep(&self.core).await;
            let cleaned = match &swept {
                Ok(_) if has_bucket && objects => self.clean_objects(&mut collected).await,
                _ => Ok(()),
            };
            guard.release().await;
            collected.contents = swept?;
            cleaned?;
        }
        if !has_bucket && objects {
            self.clean_objects(&mut collected).await?;
        }
        if collected != CollectedBlobs::default() {
            let CollectedBlobs {
                contents,
                files,
                packs,
            } = collected;
            tracing::info!(
                contents,
                files,
                packs,
                "garbage collection removed contents, files and packs"
            );
        }
        Ok(collected)
    }

    async fn clean_objects(&self, collected: &mut CollectedBlobs) -> Result<()> {
        collected.files = startup::remove_orphans(&self.core).await?;
        // After it, because it needs room on a disk that may be full.
        collected.packs = packs::compact(&self.core).await?;
        Ok(())
    }
}
