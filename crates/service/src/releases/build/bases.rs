//! The images that a user's Dockerfile builds on: fetched and looked at before the build begins.

use super::engine::broken;
use super::image::follow;
use super::live_log::LiveLog;
use super::refused;
use crate::releases::claim::Claim;
use crate::releases::transition::Failure;
use crate::releases::work::Halt;
use estrade_model::Invalid;
use estrade_plans::{Bases, check_triggers};
use estrade_runtime::{Image, ImageRef};
use std::collections::HashMap;

/// The Dockerfile with the ids of its images, none of which does to this build what it must not.
pub(super) async fn pin(
    claim: &Claim,
    log: &mut LiveLog<'_>,
    bases: &Bases,
) -> Result<String, Halt> {
    let mut ids = HashMap::new();
    for name in bases.names() {
        let image = fetch(claim, log, name).await?;
        check_triggers(name, &image.triggers).map_err(refused)?;
        log.say(format!("{name} is {}", image.id));
        ids.insert(name.to_owned(), image.id.to_string());
    }
    log.flush().await?;
    Ok(bases.pin(&ids))
}

/// The engine's image of that name, from its registry when the engine does not have it.
async fn fetch(claim: &Claim, log: &mut LiveLog<'_>, name: &str) -> Result<Image, Halt> {
    let engine = &claim.core().engine;
    let unavailable = |why: String| {
        Halt::Failed(Failure {
            reason: "image_unavailable",
            message: format!("{name}: {why}"),
        })
    };
    let wrong = |error: Invalid| {
        Halt::Failed(Failure {
            reason: "build_refused",
            message: format!("FROM {name}: {error}"),
        })
    };
    let now = claim.core().now();
    let image: ImageRef = name.parse().map_err(wrong)?;
    if let Some(found) = engine.image(&image).await.map_err(broken)? {
        engine.note_base(&image, false, now).await.map_err(broken)?;
        return Ok(found);
    }
    log.say(format!("Pulling {name}"));
    log.flush().await?;
    let pulled = match engine.pull(&image, None, None).await {
        Ok(pull) => follow(pull, log).await,
        Err(error) => Err(error),
    };
    match pulled {
        Ok(()) => {}
        Err(error) if error.is_engine_away() => return Err(broken(error)),
        Err(error) => return Err(unavailable(error.to_string())),
    }
    engine.note_base(&image, true, now).await.map_err(broken)?;
    let found = engine.image(&image).await.map_err(broken)?;
    found.ok_or_else(|| unavailable("it is gone again".to_owned()))
}
