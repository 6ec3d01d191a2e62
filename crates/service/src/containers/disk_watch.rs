//! Instances whose disk the engine cannot limit are looked at, and stopped when they are full.

use crate::events::{Happening, record_events};
use crate::{Core, Error, Result};
use estrade_model::ProjectId;
use estrade_model::plan::Plan;
use estrade_runtime::InstanceId;
use estrade_store::workloads;
use std::time::Duration;

/// How often they are looked at.
pub(super) const EVERY: Duration = Duration::from_secs(5);
/// The time between SIGTERM and SIGKILL for one that is full.
const GRACE: Duration = Duration::from_secs(2);

/// Looks at every instance that has to be looked at.
pub(super) async fn look_at_disks(core: &Core) -> Result<()> {
    for (project, id) in core.fleet.watched() {
        let used = core.engine.disk_use(&id).await;
        let Some(used) = used.map_err(Error::internal)? else {
            continue;
        };
        core.fleet.note_disk(&id, used);
        let Some(row) = workloads::read_workload(&core.db, project).await? else {
            continue;
        };
        let plan = core.settings.plans.get(&row.plan);
        if plan.is_some_and(|plan| used > Plan::disk_bytes(plan)) {
            stop_full(core, project, &id, used).await?;
        }
    }
    Ok(())
}

async fn stop_full(core: &Core, project: ProjectId, id: &InstanceId, used: u64) -> Result<()> {
    let now = core.now();
    core.db
        .transact(move |tx| {
            Box::pin(async move {
                let full = Happening::to_project("disk_full", format!("{used} bytes"));
                record_events(tx, project, vec![full], now).await
            })
        })
        .await?;
    core.fleet.crashes(|crashes| crashes.note_full(id));
    let stopped = core.engine.stop_instance(id, GRACE).await;
    stopped.map_err(Error::internal)
}
