//! All instances of a new release, before it goes live.

use super::fleet::Fleet;
use super::launch::{LaunchError, launch};
use super::shutdown::{StopReason, shutdown};
use super::workload::Workload;
use crate::platform::releases::Failure;
use crate::{Error, platform::disks};
use estrade_model::{ProjectId, ReleaseId};
use estrade_store::workloads;
use futures_util::future::{join_all, try_join_all};
use std::time::Duration;
use tokio::time::{sleep, timeout};

/// How long instances of the release before may take to end, where two may not run at once.
const END_TIMEOUT: Duration = Duration::from_mins(1);
/// How often it is looked whether they have.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// Why a release cannot go live.
#[derive(Debug)]
pub(crate) enum BringUpError {
    /// The project or the release is gone.
    Gone,
    /// It cannot run as it is.
    Refused(Failure),
    /// Its instances are at fault.
    Unhealthy(Failure),
    Engine(estrade_runtime::Error),
    /// We are.
    Service(Error),
}

impl From<Error> for BringUpError {
    fn from(error: Error) -> Self {
        Self::Service(error)
    }
}

/// Without zero downtime the instances of other releases end first, so that two never run at once. The
/// reconciler starts none of them while a release is DEPLOYING, and starts them again if it fails.
async fn end_others(
    fleet: &Fleet,
    project: ProjectId,
    release: ReleaseId,
) -> Result<(), BringUpError> {
    let end = async {
        loop {
            let mut others = fleet.core.runtime.instances().await?;
            others.retain(|it| it.key.project == project && it.key.release != release);
            if others.is_empty() {
                return Ok(());
            }
            let ending = others.into_iter();
            join_all(ending.map(|it| shutdown(fleet, it, StopReason::Replaced))).await;
            // Those that the reconciler is ending are not waited for by the above.
            sleep(POLL_INTERVAL).await;
        }
    };
    match timeout(END_TIMEOUT, end).await {
        Ok(ended) => ended.map_err(BringUpError::Engine),
        Err(_) => Err(BringUpError::Service(Error::internal(
            "an instance of the release before does not end",
        ))),
    }
}

/// Starts the instances of a release and publishes their addresses, which get requests once the release is
/// live in the database. May be repeated; instances that it leaves behind are removed by the
/// reconciler unless the release goes live.
pub(crate) async fn bring_up(
    fleet: &Fleet,
    project: ProjectId,
    release: ReleaseId,
) -> Result<(), BringUpError> {
    let core = &fleet.core;
    let row = workloads::read_workload(&core.db, project).await;
    let row = row.map_err(Error::from)?.ok_or(BringUpError::Gone)?;
    let (owner, scale, zero_downtime) = (row.owner, row.scale, row.zero_downtime);
    let workload = Workload::read(core, row, release).await?;
    let workload = workload.ok_or(BringUpError::Gone)?;
    if let Some(disk) = &workload.missing {
        return Err(BringUpError::Refused(disks::missing(disk)));
    }
    let network = core.runtime.ensure_network(owner).await;
    network.map_err(BringUpError::Engine)?;
    if !zero_downtime {
        end_others(fleet, project, release).await?;
    }
    let launches = (1..=scale).map(|number| launch(fleet, &workload, number));
    let instances = try_join_all(launches).await.map_err(|error| match error {
        LaunchError::Unhealthy { failure, .. } => BringUpError::Unhealthy(failure),
        LaunchError::Engine(error) => BringUpError::Engine(error),
    })?;
    for instance in &instances {
        fleet.enter(instance);
    }
    Ok(())
}
