//! Fetching an image that a release names.

use super::engine::broken;
use super::live_log::LiveLog;
use super::own_image;
use crate::Error;
use crate::releases::claim::Claim;
use crate::releases::transition::Failure;
use crate::releases::work::Halt;
use estrade_runtime::{ImageRef, Pull};

/// Gives a release the image of that name: the engine's, or the registry's.
///
/// As elsewhere, a tag that means "the newest" is always looked up, and any other only if the engine
/// does not have it.
pub(super) async fn fetch(claim: &Claim, name: &str) -> Result<(), Halt> {
    let engine = &claim.core().engine;
    let name: ImageRef = name.parse().map_err(Error::from)?;
    let here = engine.image(&name).await.map_err(broken)?.is_some();
    let mut log = LiveLog::new(claim);
    if here && !means_newest(&name) {
        engine.tag(&name, own_image(claim)).await.map_err(broken)?;
        return Ok(());
    }
    log.say(format!("Pulling {name}"));
    log.flush().await?;
    match pull(claim, &name, &mut log).await {
        Ok(()) => {}
        Err(error) if here && !error.is_engine_away() => {
            log.say(format!("{error}; using the image that is here"));
            engine.tag(&name, own_image(claim)).await.map_err(broken)?;
        }
        Err(error) if error.is_engine_away() => return Err(broken(error)),
        Err(error) => {
            return Err(Halt::Failed(Failure {
                reason: "image_unavailable",
                message: format!("{name}: {error}"),
            }));
        }
    }
    log.flush().await?;
    Ok(())
}

async fn pull(
    claim: &Claim,
    name: &ImageRef,
    log: &mut LiveLog<'_>,
) -> Result<(), estrade_runtime::Error> {
    let engine = &claim.core().engine;
    let pull = engine.pull(name, Some(own_image(claim)), None).await?;
    follow(pull, log).await
}

/// Waits for a pull, and tells what happens.
pub(super) async fn follow(
    mut pull: Pull,
    log: &mut LiveLog<'_>,
) -> Result<(), estrade_runtime::Error> {
    while let Some(progress) = pull.next_progress().await {
        // Bytes of layers are too many lines; the rest is what happens.
        if progress.bytes.is_none() && !progress.status.is_empty() {
            let layer = progress.layer.map(|layer| format!("{layer}: "));
            log.say(format!("{}{}", layer.unwrap_or_default(), progress.status));
        }
    }
    pull.finish().await
}

fn means_newest(name: &ImageRef) -> bool {
    name.as_str().ends_with(":latest")
}
