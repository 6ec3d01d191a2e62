//! The images that a Dockerfile builds on: fetched and looked at before the build begins.

use super::cause::refused;
use super::engine::broken;
use super::image::{follow, refused_registry, unavailable};
use super::live_log::LiveLog;
use crate::platform::releases::claim::Claim;
use crate::platform::releases::step_error::StepError;
use crate::platform::releases::transition::Failure;
use estrade_buildpacks::{BuildPlan, Dockerfile, check_triggers};
use estrade_model::Invalid;
use estrade_runtime::{Image, ImageRef};
use std::collections::HashMap;

/// A Dockerfile as the engine gets it.
pub(super) struct Pinned {
    pub(super) dockerfile: String,
    /// Whether its layers may be cache for later builds of its owner. The `ONBUILD` triggers of an image run before the
    /// owner's label, so their layers would be shared by all owners.
    pub(super) cache: bool,
}

/// The Dockerfile with the ids of its images, none of which does to this build what it must not.
pub(super) async fn pin(
    claim: &Claim,
    log: &mut LiveLog<'_>,
    plan: &BuildPlan,
    label: &str,
) -> Result<Pinned, StepError> {
    // The base images of our own Dockerfiles are configured by the operator.
    let named_by = match plan.dockerfile {
        Dockerfile::Theirs { .. } => NamedBy::User,
        Dockerfile::Ours { .. } => NamedBy::Operator,
    };
    let mut ids = HashMap::new();
    let mut cache = plan.cache;
    for base in plan.bases().images() {
        let name = base.name;
        let image = fetch(claim, log, name, named_by).await?;
        if base.begins_stage && !image.triggers.is_empty() {
            cache = false;
            if named_by == NamedBy::User {
                for copied in check_triggers(name, &image.triggers).map_err(refused)? {
                    fetch(claim, log, &copied, named_by).await?;
                }
            }
        }
        log.push(format!("{name} is {}", image.id));
        ids.insert(name.to_owned(), image.id.to_string());
    }
    log.flush().await?;
    Ok(Pinned {
        dockerfile: plan.bases().pin(&ids, label),
        cache,
    })
}

/// Where the name of an image comes from.
#[derive(Clone, Copy, PartialEq, Eq)]
enum NamedBy {
    User,
    Operator,
}

/// The engine's image of that name, from its registry when the engine does not have it.
async fn fetch(
    claim: &Claim,
    log: &mut LiveLog<'_>,
    name: &str,
    named_by: NamedBy,
) -> Result<Image, StepError> {
    let core = claim.core();
    let builder = &core.image_builder;
    let wrong = |error: Invalid| {
        StepError::Failed(Failure {
            reason: "build_refused",
            message: format!("FROM {name}: {error}"),
        })
    };
    let image: ImageRef = name.parse().map_err(wrong)?;
    if named_by == NamedBy::User {
        let registries = &core.settings.containers.registries;
        let checked = registries.check(&image).await;
        checked.map_err(|error| refused_registry(&error))?;
    }
    let now = core.now();
    if let Some(found) = builder.image(&image).await.map_err(broken)? {
        builder
            .note_base(&image, false, now)
            .await
            .map_err(broken)?;
        return Ok(found);
    }
    log.push(format!("Pulling {name}"));
    log.flush().await?;
    let pulled = match builder.pull(&image, None, None).await {
        Ok(pull) => follow(pull, log).await,
        Err(error) => Err(error),
    };
    match pulled {
        Ok(()) => {}
        Err(error) if error.is_engine_away() => return Err(broken(error)),
        Err(error) => {
            let mut failure = unavailable(&image, &error);
            if named_by == NamedBy::Operator {
                failure.message = format!(
                    "the base image {name} is not here and could not be fetched; whoever runs this installation can fetch it with `estrade images pull`, or name another one in docker.mirror or docker.images"
                );
            }
            return Err(StepError::Failed(failure));
        }
    }
    builder.note_base(&image, true, now).await.map_err(broken)?;
    let found = builder.image(&image).await.map_err(broken)?;
    found.ok_or_else(|| {
        StepError::Failed(Failure {
            reason: "image_unavailable",
            message: format!("{name}: it is gone again"),
        })
    })
}
