//! Fetching an image that a release names.

use super::engine::{broken, own_image};
use super::live_log::LiveLog;
use crate::Error;
use crate::platform::releases::claim::Claim;
use crate::platform::releases::step_error::StepError;
use crate::platform::releases::transition::Failure;
use estrade_model::error::error_chain;
use estrade_runtime::{ImageRef, Pull, RegistryRefused};

/// Gives a release the image of that name: the engine's, or the registry's.
///
/// As elsewhere, a tag that means "the newest" is always looked up, and any other only if the engine
/// does not have it.
pub(super) async fn fetch(claim: &Claim, name: &str) -> Result<(), StepError> {
    let builder = &claim.core().image_builder;
    let name: ImageRef = name.parse().map_err(Error::from)?;
    let registries = &claim.core().settings.containers.registries;
    let checked = registries.check(&name).await;
    checked.map_err(|error| refused_registry(&error))?;
    let here = builder.image(&name).await.map_err(broken)?.is_some();
    let mut log = LiveLog::new(claim);
    if here && !means_newest(&name) {
        builder.tag(&name, own_image(claim)).await.map_err(broken)?;
        return Ok(());
    }
    log.push(format!("Pulling {name}"));
    log.flush().await?;
    match pull(claim, &name, &mut log).await {
        Ok(()) => {}
        Err(error) if here && !error.is_engine_away() => {
            let why = unavailable(&name, &error).message;
            log.push(format!("{why}; using the image that is here"));
            builder.tag(&name, own_image(claim)).await.map_err(broken)?;
        }
        Err(error) if error.is_engine_away() => return Err(broken(error)),
        Err(error) => {
            return Err(StepError::Failed(unavailable(&name, &error)));
        }
    }
    log.flush().await?;
    Ok(())
}

/// An image is not wanted from where it is.
pub(super) fn refused_registry(error: &RegistryRefused) -> StepError {
    StepError::Failed(Failure {
        reason: "image_refused",
        message: error.to_string(),
    })
}

/// Why an image could not be fetched, in our words. The engine's message repeats the response of the host, which may
/// be an internal service that only this machine can reach (SSRF).
pub(super) fn unavailable(name: &ImageRef, error: &estrade_runtime::Error) -> Failure {
    tracing::info!(
        image = name.as_str(),
        error = error_chain(error),
        "cannot fetch an image"
    );
    let why = if error.is_not_found() {
        "cannot be fetched: the registry has no such image, or only for those who log in; check its name and tag"
    } else {
        "could not be fetched from its registry; try again, or ask whoever runs this installation to look into the log"
    };
    Failure {
        reason: "image_unavailable",
        message: format!("the image {name} {why}"),
    }
}

async fn pull(
    claim: &Claim,
    name: &ImageRef,
    log: &mut LiveLog<'_>,
) -> Result<(), estrade_runtime::Error> {
    let builder = &claim.core().image_builder;
    let pull = builder.pull(name, Some(own_image(claim)), None).await?;
    follow(pull, log).await
}

/// Waits for a pull, and tells what happens.
pub(super) async fn follow(
    mut pull: Box<dyn Pull>,
    log: &mut LiveLog<'_>,
) -> Result<(), estrade_runtime::Error> {
    while let Some(progress) = pull.next_progress().await {
        // Bytes of layers are too many lines; the rest is what happens.
        if progress.bytes.is_none() && !progress.status.is_empty() {
            let layer = progress.layer.map(|layer| format!("{layer}: "));
            log.push(format!("{}{}", layer.unwrap_or_default(), progress.status));
        }
    }
    pull.finish().await
}

fn means_newest(name: &ImageRef) -> bool {
    name.as_str().ends_with(":latest")
}
