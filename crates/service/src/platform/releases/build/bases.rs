//! The images that a Dockerfile builds on: fetched and looked at before the build begins.

use super::cause::refused;
use super::engine::broken;
use super::image::{follow, refused_registry, unavailable};
use super::live_log::LiveLog;
use super::secrets::is_secret;
use crate::platform::releases::claim::Claim;
use crate::platform::releases::step_error::StepError;
use crate::platform::releases::transition::Failure;
use estrade_buildpacks::{BuildPlan, Dockerfile, check_triggers};
use estrade_model::Invalid;
use estrade_model::error::error_chain;
use estrade_runtime::{CacheKey, Image, ImageRef};
use std::collections::HashMap;

/// A Dockerfile as the engine gets it.
pub(super) struct Pinned {
    pub(super) dockerfile: String,
    /// Whether its layers may be cache for later builds of its project. The `ONBUILD` triggers of an image run before
    /// the project's label, so their layers would be shared by all owners.
    pub(super) cache: bool,
    /// The package manager's cache of this build, if it may keep one.
    pub(super) packages: Option<Packages>,
}

/// The package manager's cache of a build.
pub(super) struct Packages {
    pub(super) key: CacheKey,
    /// The number of the stage that has it, from 0.
    pub(super) stage: usize,
    /// The number of the step that installs, from 1.
    pub(super) step: usize,
}

/// The Dockerfile with the ids of its images, none of which does to this build what it must not.
pub(super) async fn pin(
    claim: &Claim,
    log: &mut LiveLog<'_>,
    plan: &BuildPlan,
    label: &str,
    use_cache: bool,
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
    if !plan.cache && plan.package_cache.is_some() {
        empty_cache(claim).await;
    }
    let wanted = wanted_cache(claim, plan, &ids, label).filter(|_| cache);
    let from = match &wanted {
        Some((key, _)) if use_cache => read_cache(claim, key).await,
        _ => None,
    };
    if from.is_some() {
        log.push("packages that an earlier build has downloaded are there");
    }
    log.flush().await?;
    let pinned = plan
        .bases()
        .pin(&ids, label, from.as_ref().map(ImageRef::as_str));
    let installs = plan.package_cache.as_ref().map(|cache| cache.installs);
    let step = installs.and_then(|installs| pinned.step_of(installs));
    let packages = wanted.zip(step);
    let packages = packages.map(|((key, stage), step)| Packages { key, stage, step });
    Ok(Pinned {
        dockerfile: pinned.text,
        cache,
        packages,
    })
}

/// Who builds without the cache does not want what is in it, in later builds either.
async fn empty_cache(claim: &Claim) {
    let project = [claim.project()];
    let removed = claim.core().image_builder.remove_caches(&project).await;
    if let Err(error) = removed {
        let error = error_chain(&error);
        tracing::info!(error, "the package cache of a project is not removed");
    }
}

/// Which cache of the package manager this build may use, and the stage that does.
fn wanted_cache(
    claim: &Claim,
    plan: &BuildPlan,
    ids: &HashMap<String, String>,
    label: &str,
) -> Option<(CacheKey, usize)> {
    if claim.core().settings.containers.build_cache == 0 {
        return None;
    }
    let (installs, stage) = (plan.package_cache.as_ref()?, plan.bases().build_stage()?);
    let key = CacheKey {
        project: claim.project(),
        label: label.to_owned(),
        base: ids.get(stage.base)?.parse().ok()?,
        secrets: secrets_hash(plan),
        installs: installs.key.clone(),
    };
    Some((key, stage.number))
}

/// Folders of package managers may have what a secret has opened, and addresses with the secret in them.
fn secrets_hash(plan: &BuildPlan) -> String {
    let mut hasher = blake3::Hasher::new_derive_key("estrade secrets of a package cache");
    let args = plan.build_args.iter();
    for arg in args.filter(|arg| is_secret(arg.name(), arg.value())) {
        for text in [arg.name(), arg.value()] {
            hasher.update(&text.len().to_le_bytes());
            hasher.update(text.as_bytes());
        }
    }
    hasher.finalize().to_hex()[..32].to_owned()
}

/// The image with that cache. A build goes on without it when the engine cannot tell.
async fn read_cache(claim: &Claim, key: &CacheKey) -> Option<ImageRef> {
    let core = claim.core();
    let found = core.image_builder.use_cache(key, core.now()).await;
    found.unwrap_or_else(|error| {
        let error = error_chain(&error);
        tracing::info!(error, "a build begins without its package cache");
        None
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
