//! Garbage collection of the engine's images, layers, networks and volumes.
//!
//! The engine is always listed before the database is read: an object that a later read of the database does
//! not name was not about to be used.

use super::volumes::{self, is_removed};
use crate::jobs::Job;
use crate::platform::containers::disk_room;
use crate::{Core, Result};
use estrade_model::Timestamp;
use estrade_model::error::error_chain;
use estrade_store::images::{self, ImageKey};
use estrade_store::workloads;
use std::collections::HashSet;
use std::time::Duration;

/// Layers of builds serve as cache for this long.
const CACHE_RETENTION: Duration = Duration::from_hours(24 * 7);
/// The same when the disk is nearly full.
const LOW_DISK_CACHE_RETENTION: Duration = Duration::from_mins(10);
/// What only serves a moment, and was left behind by a crash.
const MAX_TEMPORARY_AGE: Duration = Duration::from_hours(1);

/// Removes unused objects; returns whether that was all. A step that fails, or meets an object that is still
/// in use, is to be repeated; the others are done.
pub(in super::super) async fn collect(core: &Core) -> bool {
    let now = core.now();
    let is_low = disk_room::is_low(core).await;
    let cache = if is_low {
        LOW_DISK_CACHE_RETENTION
    } else {
        CACHE_RETENTION
    };
    let steps = [
        // Before the layers, which may stand on them.
        ("package caches", remove_caches(core, now, is_low).await),
        ("images", remove_images(core).await),
        ("layers", remove_layers(core).await),
        ("networks", remove_networks(core).await),
        ("volumes", volumes::remove_unused(core).await),
        ("cache", prune(core, now.before(cache)).await),
        ("bases", prune_bases(core, now.before(cache)).await),
        (
            "left-overs",
            sweep(core, now.before(MAX_TEMPORARY_AGE)).await,
        ),
    ];
    let mut all = true;
    for (step, done) in steps {
        match done {
            Ok(complete) => all &= complete,
            Err(error) => {
                all = false;
                let error = error_chain(&error);
                tracing::warn!(step, error, "cannot clean up the engine");
                let text = format!("{step}: {error}");
                core.jobs.fail(Job::CollectImages, now, text);
            }
        }
    }
    core.jobs.finish(Job::CollectImages, core.now());
    all
}

async fn prune(core: &Core, before: Timestamp) -> Result<bool> {
    core.image_builder.prune_images(before).await?;
    Ok(true)
}

/// What package managers have downloaded goes with its project, like layers that nobody uses, and first of all when the disk is
/// nearly full.
async fn remove_caches(core: &Core, now: Timestamp, is_low: bool) -> Result<bool> {
    let mut gone = core.image_builder.projects_with_caches().await?;
    let known = images::known_projects(&core.db, &gone).await?;
    gone.retain(|project| !known.contains(project));
    core.image_builder.remove_caches(&gone).await?;
    let is_off = core.settings.containers.build_cache == 0;
    let used_before = if is_low || is_off {
        now
    } else {
        now.before(CACHE_RETENTION)
    };
    let made_before = now.before(if is_low {
        LOW_DISK_CACHE_RETENTION
    } else {
        MAX_TEMPORARY_AGE
    });
    let pruned = core.image_builder.prune_caches(used_before, made_before);
    Ok(pruned.await?)
}

async fn prune_bases(core: &Core, before: Timestamp) -> Result<bool> {
    core.image_builder.prune_bases(before).await?;
    Ok(true)
}

async fn sweep(core: &Core, before: Timestamp) -> Result<bool> {
    core.image_builder.prune_temporary(before).await?;
    Ok(true)
}

async fn remove_images(core: &Core) -> Result<bool> {
    let mut all = true;
    let there = core.image_builder.list_images().await?;
    let wanted: HashSet<_> = images::list_wanted(&core.db).await?.into_iter().collect();
    for entry in there {
        let key = ImageKey {
            project: entry.image.project,
            release: entry.image.release,
        };
        if !wanted.contains(&key) {
            all &= is_removed(core.image_builder.remove_image(entry.image).await)?;
        }
    }
    Ok(all)
}

/// Layers serve as cache for their project, and go with it.
async fn remove_layers(core: &Core) -> Result<bool> {
    let mut gone = core.image_builder.releases_with_layers().await?;
    let known = images::known_releases(&core.db, &gone).await?;
    gone.retain(|release| !known.contains(release));
    if gone.is_empty() {
        return Ok(true);
    }
    // Those that others of them stand on are next; those that a project stands on stay with it.
    let some = core.image_builder.remove_layers(&gone).await?;
    Ok(!some)
}

async fn remove_networks(core: &Core) -> Result<bool> {
    let mut all = true;
    let there = core.runtime.network_owners().await?;
    let owners: HashSet<_> = workloads::list_owners(&core.db)
        .await?
        .into_iter()
        .collect();
    for owner in there {
        if !owners.contains(&owner) {
            all &= is_removed(core.runtime.remove_network(owner).await)?;
        }
    }
    Ok(all)
}
