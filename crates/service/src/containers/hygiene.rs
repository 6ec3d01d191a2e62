//! What the engine has and nobody needs any more: images, layers, networks, volumes.
//!
//! The engine is always asked before the database: what is there and unknown to a later look at the database
//! was not about to be used.

use crate::{Core, Result};
use estrade_model::Timestamp;
use estrade_model::error::causes;
use estrade_runtime::Error;
use estrade_store::images::{self, ImageKey};
use estrade_store::{disks, workloads};
use std::collections::HashSet;
use std::path::Path;
use std::time::Duration;

/// Layers of builds serve as cache for this long.
const CACHE: Duration = Duration::from_hours(24 * 7);
/// The same when the disk is nearly full.
const SHORT_CACHE: Duration = Duration::from_mins(10);
/// What only serves a moment, and was left behind by a crash.
const LEFT_BEHIND: Duration = Duration::from_hours(1);

/// Removes what nobody needs. A step that fails is repeated the next time, and the others are done.
pub(super) async fn clean(core: &Core) {
    let now = core.now();
    let cache = if is_disk_low(core).await {
        SHORT_CACHE
    } else {
        CACHE
    };
    let steps = [
        ("images", remove_images(core).await),
        ("layers", remove_layers(core).await),
        ("networks", remove_networks(core).await),
        ("volumes", remove_volumes(core).await),
        ("cache", prune(core, now.before(cache)).await),
        ("left-overs", sweep(core, now.before(LEFT_BEHIND)).await),
    ];
    for (step, done) in steps {
        if let Err(error) = done {
            tracing::warn!(step, error = causes(&error), "cannot clean up the engine");
        }
    }
}

async fn prune(core: &Core, before: Timestamp) -> Result<()> {
    Ok(core.engine.prune_images(before).await?)
}

async fn sweep(core: &Core, before: Timestamp) -> Result<()> {
    Ok(core.engine.sweep_folders(before).await?)
}

async fn remove_images(core: &Core) -> Result<()> {
    let there = core.engine.images().await?;
    let wanted: HashSet<_> = images::list_wanted(&core.db).await?.into_iter().collect();
    for entry in there {
        let key = ImageKey {
            project: entry.image.project,
            release: entry.image.release,
        };
        if !wanted.contains(&key) {
            unless_in_use(core.engine.remove_image(entry.image).await)?;
        }
    }
    Ok(())
}

/// Layers serve as cache for their project, and go with it.
async fn remove_layers(core: &Core) -> Result<()> {
    let mut gone = core.engine.releases_with_layers().await?;
    let known = images::known_releases(&core.db, &gone).await?;
    gone.retain(|release| !known.contains(release));
    if gone.is_empty() {
        return Ok(());
    }
    Ok(core.engine.remove_layers(&gone).await?)
}

async fn remove_networks(core: &Core) -> Result<()> {
    let there = core.engine.networks().await?;
    let owners: HashSet<_> = workloads::list_owners(&core.db)
        .await?
        .into_iter()
        .collect();
    for network in there {
        if !owners.contains(&network.owner) {
            unless_in_use(core.engine.remove_network(&network).await)?;
        }
    }
    Ok(())
}

async fn remove_volumes(core: &Core) -> Result<()> {
    for volume in core.engine.volumes().await? {
        let disks = disks::read_disks(&core.db, volume.project).await?;
        let wanted = disks
            .iter()
            .any(|disk| disk.id.to_string() == volume.name.to_string());
        if !wanted {
            unless_in_use(core.engine.remove_volume(&volume).await)?;
        }
    }
    Ok(core.engine.sweep_disks().await?)
}

/// What is in use goes later.
fn unless_in_use(removed: std::result::Result<(), Error>) -> Result<()> {
    match removed {
        Err(error) if !error.is_conflict() => Err(error.into()),
        _ => Ok(()),
    }
}

/// Whether less is free on the engine's disk than shall be; no when the disk is not on this machine.
async fn is_disk_low(core: &Core) -> bool {
    let Ok(info) = core.engine.info().await else {
        return false;
    };
    let floor = core.settings.containers.free_disk;
    let look = move || {
        let Ok(disk) = rustix::fs::statvfs(Path::new(&info.data_root)) else {
            return false;
        };
        disk.f_bavail.saturating_mul(disk.f_frsize) < floor
    };
    tokio::task::spawn_blocking(look).await.unwrap_or(false)
}
