//! Is there an engine, and does it have what it should?

use crate::platform::releases::claim::Claim;
use crate::platform::releases::step_error::StepError;
use crate::platform::releases::transition::Failure;
use crate::{Core, Error};
use estrade_model::{ProjectId, ReleaseId};
use estrade_runtime::OwnImage;
use std::io::ErrorKind;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// How long an engine that was there may be away, as when it is restarted.
const ENGINE_TIMEOUT: Duration = Duration::from_secs(30);
/// How often it is looked for.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// Waits for an engine that is being restarted; fails when there is none.
pub(super) async fn require_engine(core: &Core) -> Result<(), StepError> {
    let deadline = Instant::now() + ENGINE_TIMEOUT;
    loop {
        let Err(error) = core.image_builder.ping().await else {
            return Ok(());
        };
        let never = match &error {
            estrade_runtime::Error::NoEngine { source, .. } => source.kind() == ErrorKind::NotFound,
            error => !error.is_engine_away(),
        };
        if never || Instant::now() >= deadline {
            return Err(StepError::Failed(unavailable(&error)));
        }
        sleep(POLL_INTERVAL).await;
    }
}

/// A release cannot run because nothing here runs containers.
fn unavailable(error: &estrade_runtime::Error) -> Failure {
    Failure {
        reason: "container_runtime_unavailable",
        message: error.to_string(),
    }
}

/// What a refusal of the engine means for a release: it ends, unless the engine only went away.
pub(in crate::platform::releases) fn broken(error: estrade_runtime::Error) -> StepError {
    if error.is_engine_away() {
        return StepError::Broken(Error::internal(error));
    }
    StepError::Failed(Failure {
        reason: "engine_refused",
        message: error.to_string(),
    })
}

/// The image that is made for a release.
pub(super) fn own_image(claim: &Claim) -> OwnImage {
    OwnImage {
        project: claim.project(),
        release: claim.release(),
    }
}

/// Whether the engine still has an image that was made before.
pub(in crate::platform::releases) async fn is_built(
    core: &Core,
    project: ProjectId,
    release: ReleaseId,
) -> Result<bool, StepError> {
    require_engine(core).await?;
    let name = core.image_builder.image_name(OwnImage { project, release });
    let found = core.image_builder.image(&name).await.map_err(broken)?;
    Ok(found.is_some())
}
