//! A live release whose image the engine does not have, as after a restore onto another machine: the image is
//! made again from what the release was made of, by a release of its own that runs the same.

use super::trouble::Trouble;
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

/// The pause after the first attempt; each next one is twice as long.
const MIN_RETRY_DELAY: Duration = Duration::from_mins(1);
/// The longest pause.
const MAX_RETRY_DELAY: Duration = Duration::from_hours(1);
/// How soon to look again at an attempt that is under way.
const POLL_INTERVAL: Duration = Duration::from_secs(10);
/// Most releases that are remembered.
const MAX_RELEASES: usize = 10_000;

/// When images were made again, by the live release that lost its own.
#[derive(Debug, Default)]
pub(super) struct Rebuilds(HashMap<ReleaseId, Attempts>);

#[derive(Debug)]
struct Attempts {
    count: u32,
    next: Instant,
}

impl Rebuilds {
    /// Notes an attempt, and says how many came before it; an error is how long to wait for the next.
    fn begin(&mut self, release: ReleaseId) -> std::result::Result<u32, Duration> {
        let now = Instant::now();
        if self.0.len() >= MAX_RELEASES {
            self.0.retain(|_, attempts| attempts.next > now);
        }
        let attempts = self.0.entry(release).or_insert(Attempts {
            count: 0,
            next: now,
        });
        if attempts.next > now {
            return Err(attempts.next - now);
        }
        let earlier = attempts.count;
        let delay = MIN_RETRY_DELAY.saturating_mul(1 << earlier.min(16));
        attempts.count += 1;
        attempts.next = now + delay.min(MAX_RETRY_DELAY);
        Ok(earlier)
    }

    /// Somebody wants it tried at once.
    pub(super) fn forget(&mut self, release: ReleaseId) {
        self.0.remove(&release);
    }
}

/// Has the image of a live release made again, unless that is under way or was tried lately; says how soon to
/// look again.
pub(super) async fn rebuild(core: &Core, live: &Workload) -> Result<Duration> {
    let (project, release) = (live.project.project, live.run.release);
    if release_queue::has_unfinished(&core.db, project).await? {
        return Ok(POLL_INTERVAL);
    }
    let earlier = match core.fleet.rebuilds(|rebuilds| rebuilds.begin(release)) {
        Ok(earlier) => earlier,
        Err(wait) => return Ok(wait),
    };
    let name = tag(live.run.number);
    if earlier > 0 {
        let failure = Failure {
            reason: "image_missing",
            message: format!(
                "the container engine does not have the image of {name}, and making it again did not work; the newest release says why. It is tried again; a new deploy or a restart does so at once"
            ),
        };
        let trouble = Trouble {
            live,
            failure: &failure,
            looping: true,
        };
        trouble.record(core).await?;
    }
    tracing::warn!(%project, %release, "the engine does not have the image of a live release; it is made again");
    let (owner, now, next) = (live.project.owner, core.now(), core.new_id()?);
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
        .await?;
    Ok(POLL_INTERVAL)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn pauses_grow_and_a_restart_ends_them() {
        let mut rebuilds = Rebuilds::default();
        let release = ReleaseId::generate(1, 1);
        assert_eq!(rebuilds.begin(release), Ok(0));
        assert_eq!(rebuilds.begin(release), Err(MIN_RETRY_DELAY));
        tokio::time::advance(MIN_RETRY_DELAY).await;
        assert_eq!(rebuilds.begin(release), Ok(1));
        assert_eq!(rebuilds.begin(release), Err(MIN_RETRY_DELAY * 2));
        for _ in 0..20 {
            tokio::time::advance(MAX_RETRY_DELAY).await;
            rebuilds.begin(release).unwrap();
        }
        assert_eq!(rebuilds.begin(release), Err(MAX_RETRY_DELAY));
        rebuilds.forget(release);
        assert_eq!(rebuilds.begin(release), Ok(0));
    }
}
