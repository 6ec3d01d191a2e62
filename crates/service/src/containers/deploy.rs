//! All instances of a new release, before it goes live.

use super::launch::{LaunchError, launch};
use super::workload::Workload;
use crate::releases::Failure;
use crate::{Core, Error, disks};
use estrade_model::{ProjectId, ReleaseId};
use estrade_store::workloads;
use futures_util::future::try_join_all;

/// Why a release cannot go live.
#[derive(Debug)]
pub(crate) enum BringUpError {
    /// The project or the release is gone.
    Gone,
    /// It cannot run as it is.
    Refused(Failure),
    /// Its instances are at fault.
    Unhealthy(Failure),
    /// The engine is.
    Engine(estrade_runtime::Error),
    /// We are.
    Service(Error),
}

impl From<Error> for BringUpError {
    fn from(error: Error) -> Self {
        Self::Service(error)
    }
}

/// Starts the instances of a release and lets visitors reach them, once the release is live: which release
/// that is, the database says. May be repeated; instances that it leaves behind are removed by the
/// reconciler unless the release goes live.
pub(crate) async fn bring_up(
    core: &Core,
    project: ProjectId,
    release: ReleaseId,
) -> Result<(), BringUpError> {
    let row = workloads::read_workload(&core.db, project).await;
    let row = row.map_err(Error::from)?.ok_or(BringUpError::Gone)?;
    let (owner, scale) = (row.owner, row.scale);
    let workload = Workload::read(core, row, release).await?;
    let workload = workload.ok_or(BringUpError::Gone)?;
    if let Some(disk) = &workload.missing {
        return Err(BringUpError::Refused(disks::missing(disk)));
    }
    let network = core.engine.ensure_network(owner).await;
    network.map_err(BringUpError::Engine)?;
    let launches = (1..=scale).map(|number| launch(core, &workload, number));
    let instances = try_join_all(launches).await.map_err(|error| match error {
        LaunchError::Unhealthy { failure, .. } => BringUpError::Unhealthy(failure),
        LaunchError::Engine(error) => BringUpError::Engine(error),
    })?;
    let publisher = core.publisher();
    for instance in &instances {
        core.fleet.enter(publisher.as_ref(), instance);
    }
    Ok(())
}
