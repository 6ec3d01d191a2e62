//! Volumes and disk files of the engine that no disk of a project names.
//!
//! Invariant: the contents of a disk are removed only if the disk was deleted, or if no row has named it for
//! [`Settings::min_orphan_age`](crate::Settings). A database that was restored from an older backup does not know
//! the newer disks; without the delay their contents would be lost before the operator notices.

use crate::{Core, Error, Result};
use estrade_model::error::error_chain;
use estrade_runtime::{StrayDisk, VolumeKey};
use estrade_store::disks::{self, UnusedDisk};
use std::collections::{HashMap, HashSet};

/// Removes volumes whose disk was deleted or is unknown for long enough; whether that was all. What is in use is to
/// be tried again.
pub(super) async fn remove_unused(core: &Core) -> Result<bool> {
    // The engine before the database: a disk has its row before its volume.
    let (mut volumes, mut strays) = (
        core.runtime.volumes().await?,
        core.runtime.stray_disks().await?,
    );
    let wanted = disks::list_ids(&core.db).await?;
    let wanted: HashSet<_> = wanted.iter().map(ToString::to_string).collect();
    volumes.retain(|volume| !wanted.contains(&volume.name.to_string()));
    strays.retain(|stray| !wanted.contains(&stray.volume));
    if volumes.is_empty() && strays.is_empty() {
        return Ok(true);
    }
    let removable = find_removable(core, &volumes, &strays).await?;
    let mut all = true;
    for volume in volumes {
        if removable.contains(&volume.name.to_string()) {
            all &= is_removed(core.runtime.remove_volume(&volume).await)?;
        }
    }
    for stray in strays {
        if removable.contains(&stray.volume) {
            core.runtime.remove_stray_disk(stray).await?;
        }
    }
    Ok(all)
}

/// Which of these may be removed now. Those that were never seen before are noted, to be removed later.
async fn find_removable(
    core: &Core,
    volumes: &[VolumeKey],
    strays: &[StrayDisk],
) -> Result<HashSet<String>> {
    let now = core.now();
    let noted: HashMap<_, _> = disks::list_unused(&core.db)
        .await?
        .into_iter()
        .map(|disk| (disk.id, disk.remove_at))
        .collect();
    let found = volumes.iter().map(|volume| volume.name.to_string());
    let found = found.chain(strays.iter().map(|stray| stray.volume.clone()));
    let (known, unknown): (Vec<_>, Vec<_>) = found.partition(|id| noted.contains_key(id));
    if !unknown.is_empty() {
        note_unknown(core, unknown).await?;
    }
    let is_due = |id: &String| noted.get(id).is_some_and(|at| *at <= now);
    Ok(known.into_iter().filter(is_due).collect())
}

async fn note_unknown(core: &Core, unknown: Vec<String>) -> Result<()> {
    let remove_at = core.now().after(core.settings.min_orphan_age);
    for disk in &unknown {
        tracing::warn!(
            disk,
            hours = core.settings.min_orphan_age.as_secs() / 3600,
            "the engine has a volume that no project knows; it is removed after this time. If the database was \
             restored from an older backup, restore a newer one before"
        );
    }
    let disks = unknown.into_iter().map(|id| UnusedDisk { id, remove_at });
    let disks: Vec<_> = disks.collect();
    core.db
        .transact(move |tx| {
            let disks = disks.clone();
            Box::pin(async move {
                for disk in &disks {
                    disks::insert_unused(tx, disk).await?;
                }
                Ok::<_, Error>(())
            })
        })
        .await
}

/// Whether it was removed; false, and logged, while it is in use: an engine may report that for ever.
pub(super) fn is_removed(removed: std::result::Result<(), estrade_runtime::Error>) -> Result<bool> {
    match removed {
        Ok(()) => Ok(true),
        Err(error) if error.is_conflict() => {
            tracing::debug!(
                error = error_chain(&error),
                "still in use; it is tried again"
            );
            Ok(false)
        }
        Err(error) => Err(error.into()),
    }
}
