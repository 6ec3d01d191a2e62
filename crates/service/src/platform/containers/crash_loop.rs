//! Instances that crash: what is noted of it, and going back when a new release does nothing else.

use super::workload::Workload;
use crate::platform::events::{NewEvent, record_events};
use crate::platform::releases::{Failure, presentable, queue_rerun, tag};
use crate::{Core, Error, Result};
use estrade_model::ProjectId;
use estrade_model::project::{ProjectKey, ProjectStatus};
use estrade_model::release::ReleaseType;
use estrade_store::projects::{self, ProjectFilter};
use estrade_store::{Tx, workloads};
use std::time::Duration;

/// A release that crashes this soon after it went live is taken back.
const ROLLBACK_PERIOD: Duration = Duration::from_mins(5);

/// An instance of a live release that does not run as it should.
pub(super) struct CrashReport<'t> {
    pub(super) live: &'t Workload,
    pub(super) failure: &'t Failure,
    /// Whether that keeps happening.
    pub(super) looping: bool,
}

impl CrashReport<'_> {
    /// Records a crash. When crashes become a loop, the status of the project shows it, and a new release is rolled
    /// back.
    pub(super) async fn record(&self, core: &Core) -> Result<()> {
        let now = core.now();
        let (project, release) = (self.live.project.project, self.live.run.release);
        let visible = ProjectFilter::all_of(self.live.project.owner);
        let number = self.live.run.number;
        let fresh = self.live.run.kind != ReleaseType::AutoRollback
            && self
                .live
                .run
                .finished_at
                .is_some_and(|at| at > now.before(ROLLBACK_PERIOD));
        let (looping, reason) = (self.looping, self.failure.reason);
        let message = presentable(&self.failure.message);
        let next = core.new_id()?;
        core.db
            .transact(move |tx| {
                let message = message.clone();
                Box::pin(async move {
                    let crash = NewEvent {
                        action: "crash",
                        status: reason.to_owned(),
                        release: Some((release, tag(number))),
                    };
                    record_events(tx, project, vec![crash], now).await?;
                    if !looping {
                        return Ok::<_, Error>(());
                    }
                    let status = ProjectStatus::CrashLoop;
                    projects::set_status(tx, project, status, Some(&message)).await?;
                    if !fresh {
                        return Ok(());
                    }
                    let Some(earlier) = workloads::find_predecessor(tx, project, release).await?
                    else {
                        return Ok(());
                    };
                    let key = ProjectKey::Id(project);
                    let Some(row) = projects::find_project(tx, visible, &key).await? else {
                        return Ok(());
                    };
                    let kind = (next, ReleaseType::AutoRollback);
                    let tag = tag(number);
                    let why = format!("{tag} kept crashing right after it went live");
                    queue_rerun(tx, &row, earlier, kind, Some(why), now)
                        .await
                        .map(drop)
                })
            })
            .await
    }
}

/// Notes that a project is well again.
pub(super) async fn end(core: &Core, project: ProjectId) -> Result<()> {
    let now = core.now();
    core.db
        .transact(move |tx| Box::pin(recover(tx, project, now)))
        .await
}

async fn recover(tx: &mut Tx, project: ProjectId, now: estrade_model::Timestamp) -> Result<()> {
    if projects::set_status(tx, project, ProjectStatus::Active, None).await? {
        let recovered = NewEvent::of_project("recovered", "ACTIVE");
        record_events(tx, project, vec![recovered], now).await?;
    }
    Ok(())
}

/// Why an instance was stopped that has written too much.
pub(super) fn disk_full(plan: &str) -> Failure {
    Failure {
        reason: "disk_full",
        message: format!(
            "the instance wrote more than the disk of plan {plan} holds and was stopped; resize the project, or keep files on a disk of their own"
        ),
    }
}
