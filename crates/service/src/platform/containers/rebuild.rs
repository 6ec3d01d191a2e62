//! Rebuilds of images that the engine lost, as after a restore onto another machine: the image of a live release is
//! made again from what the release was made of, by a release of its own that runs the same.
//!
//! Retries back off exponentially and are bounded: a source that is gone or a registry that refuses does not come back
//! by itself, and every attempt costs a build slot and a failed release. After [`MAX_ATTEMPTS`] the project's status
//! reports that it gave up, until another release is live or the project or the server is restarted.

use super::crash_loop::CrashReport;
use super::fleet::Fleet;
use super::rebuild_attempts::{Decision, MAX_ATTEMPTS};
use super::workload::Workload;
use crate::platform::releases::{Failure, queue_rerun, tag};
use crate::{Core, Error, Result};
use estrade_model::project::ProjectKey;
use estrade_model::release::ReleaseType;
use estrade_store::projects::{self, ProjectFilter};
use estrade_store::release_queue;
use std::time::Duration;

/// How soon to look again at an attempt that is under way.
const POLL_INTERVAL: Duration = Duration::from_secs(10);
/// How soon to check again after giving up: the image may have been restored by other means.
const GIVEN_UP_INTERVAL: Duration = Duration::from_mins(1);

/// Has the image of a live release rebuilt, unless that is in progress, was tried lately or was given up; returns how
/// soon to check again.
pub(super) async fn rebuild(fleet: &Fleet, live: &Workload) -> Result<Duration> {
    let core = &fleet.core;
    let (project, release) = (live.project.project, live.run.release);
    if release_queue::has_unfinished(&core.db, project).await? {
        return Ok(POLL_INTERVAL);
    }
    let delay = core.settings.containers.rebuild_delay;
    match fleet.rebuilds(|rebuilds| rebuilds.decide(release, delay)) {
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
    let visible = ProjectFilter::all_of(live.project.owner);
    let (now, next) = (core.now(), core.new_id()?);
    let name = tag(live.run.number);
    core.db
        .transact(move |tx| {
            let name = name.clone();
            Box::pin(async move {
                let key = ProjectKey::Id(project);
                let row = projects::find_project(tx, visible, &key).await?;
                let Some(row) = row.filter(|row| row.current_release == Some(release)) else {
                    return Ok::<_, Error>(());
                };
                let kind = (next, ReleaseType::Deploy);
                let why = format!("{name} again: the container engine did not have its image");
                queue_rerun(tx, &row, release, kind, Some(why), now)
                    .await
                    .map(drop)
            })
        })
        .await
}
