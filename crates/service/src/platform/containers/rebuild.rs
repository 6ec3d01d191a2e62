//! Rebuilds of images that the engine lost, as after a restore onto another machine: the image of a live release is
//! made again from what the release was made of, by a release of its own that runs the same.
//!
//! Retries back off exponentially and are bounded: a source that is gone or a registry that refuses does not come back
//! by itself, and every attempt costs a build slot and a failed release. After [`MAX_ATTEMPTS`] the project says
//! that it gave up, until another release is live or somebody restarts the project or the server.

use super::crash_loop::CrashReport;
use super::workload::Workload;
use crate::platform::releases::{Failure, queue_rerun, tag};
use crate::{Core, Error, Result};
use estrade_model::ReleaseId;
use estrade_model::project::ProjectKey;
use estrade_model::release::ReleaseType;
use estrade_store::{projects, release_queue};
use std::collections::HashMap;
use std::time::Duration;
use tokio::time::Instant;

/// With a first delay of a minute, the last attempt begins after about half an hour.
const MAX_ATTEMPTS: u32 = 6;
/// How soon to look again at an attempt that is under way.
const POLL_INTERVAL: Duration = Duration::from_secs(10);
/// How soon to look again after giving up: somebody may have brought the image back by other means.
const GIVEN_UP_INTERVAL: Duration = Duration::from_mins(1);
/// Most releases that are remembered; those that are forgotten start over.
const MAX_RELEASES: usize = 10_000;

/// The attempts to rebuild images, by the live release that lost its own.
#[derive(Debug, Default)]
pub(super) struct Rebuilds(HashMap<ReleaseId, Attempts>);

#[derive(Debug)]
struct Attempts {
    count: u32,
    next: Instant,
    given_up: bool,
}

/// What to do about a lost image, when no attempt is under way.
#[derive(Debug, PartialEq, Eq)]
enum Decision {
    /// Rebuild it; so many attempts have failed before.
    Attempt { earlier: u32 },
    /// The next attempt is due after this time.
    Wait(Duration),
    /// All attempts have failed. `new` is true once.
    GiveUp { new: bool },
}

impl Rebuilds {
    fn decide(&mut self, release: ReleaseId, first_delay: Duration) -> Decision {
        let now = Instant::now();
        if self.0.len() >= MAX_RELEASES && !self.0.contains_key(&release) {
            self.0.retain(|_, attempts| attempts.next > now);
        }
        if self.0.len() >= MAX_RELEASES && !self.0.contains_key(&release) {
            self.0.clear();
        }
        let attempts = self.0.entry(release).or_insert(Attempts {
            count: 0,
            next: now,
            given_up: false,
        });
        if attempts.count >= MAX_ATTEMPTS {
            let new = !std::mem::replace(&mut attempts.given_up, true);
            return Decision::GiveUp { new };
        }
        if attempts.next > now {
            return Decision::Wait(attempts.next - now);
        }
        let earlier = attempts.count;
        attempts.count += 1;
        attempts.next = now + first_delay.saturating_mul(1 << earlier.min(16));
        Decision::Attempt { earlier }
    }

    /// Starts over: the next attempt is due at once.
    pub(super) fn forget(&mut self, release: ReleaseId) {
        self.0.remove(&release);
    }
}

/// Has the image of a live release rebuilt, unless that is under way, was tried lately or was given up; says how soon
/// to look again.
pub(super) async fn rebuild(core: &Core, live: &Workload) -> Result<Duration> {
    let (project, release) = (live.project.project, live.run.release);
    if release_queue::has_unfinished(&core.db, project).await? {
        return Ok(POLL_INTERVAL);
    }
    let delay = core.settings.containers.rebuild_delay;
    match core
        .fleet
        .rebuilds(|rebuilds| rebuilds.decide(release, delay))
    {
        Decision::Wait(wait) => return Ok(wait),
        Decision::GiveUp { new: false } => return Ok(GIVEN_UP_INTERVAL),
        Decision::GiveUp { new: true } => {
            tracing::warn!(%project, %release, attempts = MAX_ATTEMPTS, "a lost image could not be rebuilt; gave up");
            record(core, live, &given_up(live.run.number)).await?;
            return Ok(GIVEN_UP_INTERVAL);
        }
        Decision::Attempt { earlier: 0 } => {}
        Decision::Attempt { earlier } => {
            record(core, live, &retried(live.run.number, earlier)).await?;
        }
    }
    tracing::warn!(%project, %release, "the engine does not have the image of a live release; it is rebuilt");
    queue_rebuild(core, live).await?;
    Ok(POLL_INTERVAL)
}

async fn record(core: &Core, live: &Workload, failure: &Failure) -> Result<()> {
    let report = CrashReport {
        live,
        failure,
        looping: true,
    };
    report.record(core).await
}

fn retried(number: u64, failed: u32) -> Failure {
    let name = tag(number);
    Failure {
        reason: "image_missing",
        message: format!(
            "the container engine does not have the image of {name}, and making it again did not work {failed} of \
             {MAX_ATTEMPTS} times; the newest release says why. It is tried again; a new deploy or a restart does so at \
             once"
        ),
    }
}

fn given_up(number: u64) -> Failure {
    let name = tag(number);
    Failure {
        reason: "rebuild_given_up",
        message: format!(
            "the container engine does not have the image of {name}, and making it again failed {MAX_ATTEMPTS} times; \
             the newest release says why. It is not tried again: deploy a new release, or mend the cause and restart \
             the project"
        ),
    }
}

async fn queue_rebuild(core: &Core, live: &Workload) -> Result<()> {
    let (project, release) = (live.project.project, live.run.release);
    let (owner, now, next) = (live.project.owner, core.now(), core.new_id()?);
    let name = tag(live.run.number);
    core.db
        .transact(move |tx| {
            let name = name.clone();
            Box::pin(async move {
                let key = ProjectKey::Id(project);
                let row = projects::find_project(tx, owner, &key).await?;
                let Some(row) = row.filter(|row| row.current_release == Some(release)) else {
                    return Ok::<_, Error>(());
                };
                let kind = (next, ReleaseType::Deploy);
                let why = format!("{name} again: the container engine did not have its image");
                queue_rerun(tx, &row, release, kind, Some(why), now).await
            })
        })
        .await
}

#[cfg(test)]
mod tests {
    use super::*;

    const DELAY: Duration = Duration::from_mins(1);

    #[tokio::test(start_paused = true)]
    async fn delays_grow_until_it_gives_up_and_a_restart_starts_over() {
        let mut rebuilds = Rebuilds::default();
        let release = ReleaseId::generate(1, 1);
        for earlier in 0..MAX_ATTEMPTS {
            let decided = rebuilds.decide(release, DELAY);
            assert_eq!(decided, Decision::Attempt { earlier });
            let wait = DELAY * (1 << earlier);
            if earlier + 1 < MAX_ATTEMPTS {
                assert_eq!(rebuilds.decide(release, DELAY), Decision::Wait(wait));
                tokio::time::advance(wait).await;
            }
        }
        assert_eq!(
            rebuilds.decide(release, DELAY),
            Decision::GiveUp { new: true }
        );
        tokio::time::advance(DELAY * 1000).await;
        assert_eq!(
            rebuilds.decide(release, DELAY),
            Decision::GiveUp { new: false }
        );
        rebuilds.forget(release);
        assert_eq!(
            rebuilds.decide(release, DELAY),
            Decision::Attempt { earlier: 0 }
        );
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_remembered_is_bounded() {
        let mut rebuilds = Rebuilds::default();
        for number in 0..10 + i64::try_from(MAX_RELEASES).unwrap() {
            let release = ReleaseId::generate(number, 1);
            rebuilds.decide(release, DELAY);
        }
        assert!(rebuilds.0.len() <= MAX_RELEASES);
    }
}
