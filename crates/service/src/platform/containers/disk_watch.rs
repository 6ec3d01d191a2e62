//! Polls the disk usage of instances whose disk the engine cannot limit, and stops those that exceed it: from
//! their start, before they get requests, until they are gone.

use super::fleet::Fleet;
use crate::Result;
use crate::platform::events::{NewEvent, record_events};
use estrade_model::ProjectId;
use estrade_model::error::error_chain;
use estrade_model::plan::Plan;
use estrade_runtime::{Instance, InstanceId, InstanceState};
use estrade_store::workloads;
use std::collections::HashMap;
use std::time::Duration;

/// How often they are looked at.
pub(super) const POLL_INTERVAL: Duration = Duration::from_secs(5);
/// The time between SIGTERM and SIGKILL for one that is full.
const STOP_TIMEOUT: Duration = Duration::from_secs(2);

/// Looks at every instance that has to be looked at. What goes wrong with one is no reason to leave out
/// the others.
pub(super) async fn check_disks(fleet: &Fleet) {
    let instances = match fleet.core.runtime.instances().await {
        Ok(instances) => instances,
        Err(error) => {
            tracing::debug!(
                error = error_chain(&error),
                "cannot look for instances with a disk"
            );
            return;
        }
    };
    let watched = |it: &Instance| !it.disk_limited && it.state == InstanceState::Running;
    let mut written = HashMap::new();
    for Instance { id, key, .. } in instances.into_iter().filter(watched) {
        let project = key.project;
        match check_disk(fleet, project, &id).await {
            Ok(Some(used)) => {
                written.insert(id, used);
            }
            Ok(None) => {}
            Err(error) => {
                tracing::warn!(%project, error = error_chain(&error), "cannot look at the disk of an instance");
            }
        }
    }
    fleet.note_disks(written);
}

/// How much an instance has written; stops it when that is too much. None: it is gone.
async fn check_disk(fleet: &Fleet, project: ProjectId, id: &InstanceId) -> Result<Option<u64>> {
    let core = &fleet.core;
    let Some(used) = core.runtime.disk_use(id).await? else {
        return Ok(None);
    };
    let Some(row) = workloads::read_workload(&core.db, project).await? else {
        return Ok(None);
    };
    let plan = core.settings.plans.get(&row.plan);
    if plan.is_some_and(|plan| used > Plan::disk_bytes(plan)) {
        stop_full(fleet, project, id, used).await?;
    }
    Ok(Some(used))
}

async fn stop_full(fleet: &Fleet, project: ProjectId, id: &InstanceId, used: u64) -> Result<()> {
    let core = &fleet.core;
    let now = core.now();
    core.db
        .transact(move |tx| {
            Box::pin(async move {
                let full = NewEvent::of_project("disk_full", format!("{used} bytes"));
                record_events(tx, project, vec![full], now).await
            })
        })
        .await?;
    fleet.crashes(|crashes| crashes.note_full(id));
    Ok(core.runtime.stop_instance(id, STOP_TIMEOUT).await?)
}
