//! Removing what nobody needs any more: old artifacts and sources, contents without a release, and
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

mod needed;
mod packs;
mod retention;
mod sweep;

use crate::{Core, Result, gc::startup};
use estrade_model::ProjectId;
use estrade_model::error::error_chain;
use estrade_store::cleanup::CleanupGuard;
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
const FIRST: Duration = Duration::from_secs(1);
/// How often everything is looked at.
const EVERY: Duration = Duration::from_hours(1);
/// How long after a change, so that one run serves many.
const SOON: Duration = Duration::from_secs(3);
/// How long after a failure.
const AGAIN: Duration = Duration::from_secs(30);
/// Runs take at most one part of so many of the time, however much changes.
const SHARE: u32 = 20;
/// Projects that are remembered one by one.
const MOST_PROJECTS: usize = 1000;

/// What a run removed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Cleaned {
    /// Contents.
    pub contents: u64,
    /// Packs and files.
    pub files: u64,
    /// Packs whose contents moved together.
    pub packs: usize,
}

/// What to look at.
#[derive(Debug)]
enum Reason {
    /// Everything.
    Time,
    /// These projects: another release serves, or they are gone.
    Changes(HashSet<ProjectId>),
}

/// Cleans up until `stop`: soon after the start, every hour, and soon after something was replaced or
/// removed.
pub fn run(core: Arc<Core>, stop: CancellationToken) -> BoxFuture<'static, ()> {
    Box::pin(async move {
        let mut changes = core.db.changes().subscribe();
        let mut cleaner = Cleaner::new(core);
        let (mut reason, mut failing) = (Reason::Time, false);
        let mut next_full = Instant::now() + FIRST;
        if stop.run_until_cancelled(sleep(FIRST)).await.is_none() {
            return;
        }
        loop {
            let began = Instant::now();
            let Some(done) = stop.run_until_cancelled(cleaner.clean_for(&reason)).await else {
                return;
            };
            let took = began.elapsed();
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
                next_full = Instant::now() + AGAIN.max(took * SHARE);
            } else if matches!(reason, Reason::Time) {
                next_full = Instant::now() + EVERY;
            }
            let rest = Instant::now() + SOON.max(took * SHARE);
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
        let heard = tokio::select! {
            () = sleep_until(due) => break,
            heard = changes.recv() => heard,
        };
        match heard {
            Ok(change) if change.kind == ChangeKind::Route => {
                projects.extend(change.id.parse::<ProjectId>());
                everything |= projects.len() > MOST_PROJECTS;
            }
            Ok(_) => continue,
            Err(RecvError::Lagged(_)) => everything = true,
            // The database is closing; `stop` will end the wait.
            Err(RecvError::Closed) => std::future::pending().await,
        }
        if everything {
            projects.clear();
        }
        due = due.min(rest.max(Instant::now() + SOON));
    }
    if everything || projects.is_empty() || Instant::now() >= next_full {
        return Reason::Time;
    }
    Reason::Changes(projects)
}

/// Cleans up.
pub struct Cleaner {
    core: Arc<Core>,
}

impl Cleaner {
    /// One that has not cleaned up yet.
    pub fn new(core: Arc<Core>) -> Self {
        Self { core }
    }

    async fn clean_for(&mut self, reason: &Reason) -> Result<Cleaned> {
        match reason {
            Reason::Time => self.clean().await,
            Reason::Changes(projects) => {
                if self.look_at(projects).await? {
                    return self.sweep().await;
                }
                Ok(Cleaned::default())
            }
        }
    }

    /// Removes everything that nobody needs.
    pub async fn clean(&mut self) -> Result<Cleaned> {
        retention::prune(&self.core).await?;
        retention::trim_all(&self.core).await?;
        self.sweep().await
    }

    /// Trims the histories of projects; returns whether that, or their end, left garbage.
    async fn look_at(&self, projects: &HashSet<ProjectId>) -> Result<bool> {
        let mut any = false;
        for project in projects {
            any |= match routes::read_route(&self.core.db, *project).await? {
                Some(_) => retention::trim(&self.core, *project).await?,
                None => true,
            };
        }
        Ok(any)
    }

    async fn sweep(&mut self) -> Result<Cleaned> {
        let mut cleaned = Cleaned::default();
        // Rows belong to all nodes, and one cleans at a time; files belong to this one.
        if let Some(guard) = CleanupGuard::take(&self.core.db).await? {
            let swept = sweep::sweep(&self.core).await;
            guard.release().await;
            cleaned.contents = swept?;
        }
        cleaned.files = startup::remove_orphans(&self.core).await?;
        // After it, because it needs room on a disk that may be full.
        cleaned.packs = packs::compact(&self.core).await?;
        if cleaned != Cleaned::default() {
            let Cleaned {
                contents,
                files,
                packs,
            } = cleaned;
            tracing::info!(contents, files, packs, "removed what nobody needs");
        }
        Ok(cleaned)
    }
}
