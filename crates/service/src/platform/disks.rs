//! Disks: what the instances of a project keep across releases.
//!
//! Here are only their rows; the container services create and remove the volumes.

mod mounts;

pub use mounts::mounts;

use crate::audit::PendingEntry;
use crate::identity::access::{Permission, ProjectOperation};
use crate::platform::events::{NewEvent, record_events};
use crate::platform::releases::{Failure, open_settings};
use crate::{Core, Error, Result, Scope, platform::projects};
use estrade_model::audit::Action;
use estrade_model::disk::{CreateDisk, Disk, DiskId, DiskSize};
use estrade_model::error::error_chain;
use estrade_model::plan::{Plan, Plans};
use estrade_model::team::Role;
use estrade_model::{Invalid, ProjectId, ReleaseId};
use estrade_runtime::{VolumeKey, VolumeName};
use estrade_store::projects::{self as project_rows, ProjectRow};
use estrade_store::{StoreError, Tx, disks, releases};
use std::sync::Arc;
use tokio::sync::Semaphore;

const NO_PROJECT: Error = Error::NotFound("the project");
const NOT_FOUND: Error = Error::NotFound("the disk");

/// The project whose disks are listed.
pub async fn find_owner(core: &Core, scope: &Scope, project: &str) -> Result<ProjectId> {
    Ok(projects::find_project(core, scope, project).await?.id)
}

/// A page of a project's disks, newest first.
pub async fn list_disks(
    core: &Core,
    project: ProjectId,
    before: Option<DiskId>,
    count: u32,
    skip: u64,
) -> Result<Vec<Disk>> {
    Ok(disks::list_disks(&core.db, project, before, count, skip).await?)
}

/// Makes a disk; 409 `disk_exists` when the project has one of that name. All disks of a project
/// together are as large as its plan allows.
pub async fn create_disk(
    core: &Core,
    scope: &Scope,
    project: &str,
    new: CreateDisk,
) -> Result<Disk> {
    let permission = scope.require_in_projects(ProjectOperation::Write, Role::Developer)?;
    let name: VolumeName = parse_name(&new.name)?;
    let disk = Disk {
        id: core.new_id()?,
        name: name.to_string(),
        size: new.size.0,
        created_at: core.now(),
    };
    let (key, visible) = (projects::parse_key(project)?, permission.projects());
    let plans = Arc::new(core.settings.plans.clone());
    let note = PendingEntry::of_project(core, scope, Action::CreateDisk)?
        .detail(format!("{} {} GB", disk.name, disk.size));
    permission
        .transact(core, move |tx| {
            let (key, disk, plans) = (key.clone(), disk.clone(), Arc::clone(&plans));
            let note = note.clone();
            Box::pin(async move {
                let row = project_rows::find_project(tx, visible, &key).await?;
                let row = row.ok_or(NO_PROJECT)?;
                require_room(tx, &row, &plans, disk.size).await?;
                match disks::insert_disk(tx, row.id, &disk).await {
                    Err(StoreError::Duplicate) => return Err(exists()),
                    other => other?,
                }
                note.on(row.id, &row.name).write(tx).await?;
                let event = NewEvent::of_project("disk_create", &disk.name);
                record_events(tx, row.id, vec![event], disk.created_at).await?;
                Ok(disk)
            })
        })
        .await
}

/// A disk of a project, by name.
pub async fn read_disk(core: &Core, scope: &Scope, project: &str, name: &str) -> Result<Disk> {
    let project = find_owner(core, scope, project).await?;
    // What cannot be a name names nothing.
    let name: VolumeName = name.parse().map_err(|_| NOT_FOUND)?;
    let disk = disks::read_disk(&core.db, project, &name.to_string()).await?;
    disk.ok_or(NOT_FOUND)
}

/// How many bytes disks of a project hold, in the same order. None where this node cannot say without counting files,
/// or has not mounted it.
pub async fn used_space(
    core: &Core,
    scope: &Scope,
    project: ProjectId,
    disks: &[Disk],
) -> Result<Vec<Option<u64>>> {
    let owner = scope.projects(ProjectOperation::Read)?.owner();
    let mut used = Vec::with_capacity(disks.len());
    for disk in disks {
        let volume = VolumeKey {
            owner,
            project,
            name: disk.id.to_string().parse()?,
        };
        used.push(
            core.runtime
                .used_space(&volume)
                .await
                .unwrap_or_else(|error| {
                    tracing::debug!(error = error_chain(&error), "cannot say how full a disk is");
                    None
                }),
        );
    }
    Ok(used)
}

/// The one resize that may be under way. What is taken back after a failure must be the size from before this resize,
/// and not one that another resize is about to take back as well.
pub struct ResizeSlot(Semaphore);

impl Default for ResizeSlot {
    fn default() -> Self {
        Self(Semaphore::new(1))
    }
}

/// Makes a disk larger, with what is on it, also while an instance has it.
pub async fn resize_disk(
    core: &Core,
    slot: &ResizeSlot,
    scope: &Scope,
    project: &str,
    name: &str,
    size: DiskSize,
) -> Result<Disk> {
    let permission = scope.require_in_projects(ProjectOperation::Write, Role::Developer)?;
    let _one_at_a_time = slot.0.acquire().await;
    let before = read_disk(core, scope, project, name).await?;
    let row = projects::find_project(core, scope, project).await?;
    let volume = VolumeKey {
        owner: permission.owner(),
        project: row.id,
        name: before.id.to_string().parse()?,
    };
    if core.runtime.has_fixed_size(&volume).await.unwrap_or(false) {
        return Err(fixed());
    }
    // First what is written down, where the plan's room is checked: a disk never becomes smaller again.
    let note = PendingEntry::of_project(core, scope, Action::ResizeDisk)?.on(row.id, &row.name);
    let disk = commit_size(core, permission, note, before.id, (name, size.0), row.id).await?;
    if let Err(error) = grow(core, &volume, size.0.saturating_mul(1 << 30)).await {
        restore_size(core, before.id, (size.0, before.size)).await?;
        return Err(error);
    }
    Ok(disk)
}

/// Takes a size back that the disk did not get, unless it was given another one since.
async fn restore_size(core: &Core, id: DiskId, (from, to): (u64, u64)) -> Result<()> {
    core.db
        .transact(move |tx| {
            Box::pin(async move { Ok(disks::replace_size(tx, id, (from, to)).await?) })
        })
        .await
}

/// Makes the volume of a disk larger, if there is one. Without an engine it is made larger before an instance
/// starts.
async fn grow(core: &Core, volume: &VolumeKey, bytes: u64) -> Result<()> {
    match core.runtime.grow_volume(volume, bytes).await {
        Err(error) if !error.is_engine_away() => {
            tracing::warn!(
                project = %volume.project,
                error = error_chain(&error),
                "a disk could not be made larger"
            );
            Err(fixed())
        }
        _ => Ok(()),
    }
}

fn fixed() -> Error {
    Error::conflict(
        "disk_fixed",
        "this disk cannot be made larger where it is; make another one and copy what is on it",
    )
}

async fn commit_size(
    core: &Core,
    permission: Permission,
    note: PendingEntry,
    id: DiskId,
    (name, size): (&str, u64),
    project: ProjectId,
) -> Result<Disk> {
    let (visible, now, name) = (permission.projects(), core.now(), name.to_owned());
    let note = note.detail(format!("{name} {size} GB"));
    let plans = Arc::new(core.settings.plans.clone());
    let key = projects::parse_key(&project.to_string())?;
    permission
        .transact(core, move |tx| {
            let (key, name, plans) = (key.clone(), name.clone(), Arc::clone(&plans));
            let note = note.clone();
            Box::pin(async move {
                let row = project_rows::find_project(tx, visible, &key).await?;
                let row = row.ok_or(NO_PROJECT)?;
                let disk = disks::find_disk(tx, project, &name).await?;
                let mut disk = disk.filter(|disk| disk.id == id).ok_or(NOT_FOUND)?;
                if size < disk.size {
                    return Err(smaller(disk.size));
                }
                require_room(tx, &row, &plans, size - disk.size).await?;
                disks::set_size(tx, id, size).await?;
                disk.size = size;
                note.write(tx).await?;
                let event = NewEvent::of_project("disk_resize", format!("{name} {size} GB"));
                record_events(tx, project, vec![event], now).await?;
                Ok(disk)
            })
        })
        .await
}

async fn require_room(tx: &mut Tx, project: &ProjectRow, plans: &Plans, size: u64) -> Result<()> {
    let reserved = disks::find_reserved_space(tx, project.id).await?;
    check_room(project, plans, reserved, size)
}

fn check_room(project: &ProjectRow, plans: &Plans, reserved: u64, size: u64) -> Result<()> {
    let most = plans.get(&project.plan).map_or(0, |plan| plan.disk_gb);
    if reserved.saturating_add(size) > most {
        return Err(Error::invalid(format!(
            "size: not_enough_storage_space: the plan {} has {most} GB for all disks of the project together, \
             and {reserved} GB are reserved; ask for less, or change the plan",
            project.plan
        )));
    }
    Ok(())
}

/// Deletes a disk with what is on it; 409 `disk_in_use` while the release that serves, or one on its
/// way, mounts it.
pub async fn delete_disk(core: &Arc<Core>, scope: &Scope, project: &str, name: &str) -> Result<()> {
    let permission = scope.require_in_projects(ProjectOperation::Write, Role::Admin)?;
    let (key, visible) = (projects::parse_key(project)?, permission.projects());
    let now = core.now();
    // What cannot be a name names nothing.
    let name: VolumeName = name.parse().map_err(|_| NOT_FOUND)?;
    let (name, shared) = (name.to_string(), Arc::clone(core));
    let note = PendingEntry::of_project(core, scope, Action::DeleteDisk)?.detail(&name);
    let job = permission.transact(core, move |tx| {
        let (key, name, core) = (key.clone(), name.clone(), Arc::clone(&shared));
        let note = note.clone();
        Box::pin(async move {
            let row = project_rows::find_project(tx, visible, &key).await?;
            let row = row.ok_or(NO_PROJECT)?;
            let project = row.id;
            if !disks::delete_disk(tx, project, &name, now).await? {
                return Err(NOT_FOUND);
            }
            if is_mounted(tx, &core, project, &name).await? {
                return Err(in_use());
            }
            note.on(project, &row.name).write(tx).await?;
            let event = NewEvent::of_project("disk_delete", &name);
            record_events(tx, project, vec![event], now).await
        })
    });
    job.await
}

async fn is_mounted(tx: &mut Tx, core: &Core, project: ProjectId, name: &str) -> Result<bool> {
    for sealed in disks::find_users(tx, project).await? {
        let mounts = mounts(&open_settings(core, project, &sealed)?);
        // Settings of before disks were checked may be nonsense: such a release mounts nothing.
        if mounts.is_ok_and(|mounts| mounts.iter().any(|(disk, _)| disk.to_string() == name)) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Where the release that serves mounts the project's disks: their names, and paths in its instances.
pub async fn list_mounts(
    core: &Core,
    scope: &Scope,
    project: &str,
) -> Result<Vec<(String, String)>> {
    let row = projects::find_project(core, scope, project).await?;
    let Some(current) = row.current_release else {
        return Ok(Vec::new());
    };
    let Some(sealed) = releases::read_settings(&core.db, current).await? else {
        return Ok(Vec::new());
    };
    // Settings of before disks were checked may be nonsense: such a release mounts nothing.
    let mounts = mounts(&open_settings(core, row.id, &sealed)?).unwrap_or_default();
    let text = |(name, path): (VolumeName, String)| (name.to_string(), path);
    Ok(mounts.into_iter().map(text).collect())
}

/// Demands that a project has the disks that a release wants to mount.
pub(crate) async fn require_disks(
    tx: &mut Tx,
    project: ProjectId,
    wanted: &[VolumeName],
) -> Result<()> {
    for name in wanted {
        if !disks::has_disk(tx, project, &name.to_string()).await? {
            return Err(Error::Invalid {
                code: "disk_unknown",
                message: format!(
                    "disks: the project has no disk {name}; make it with POST /v1/projects/{{project}}/disks"
                ),
            });
        }
    }
    Ok(())
}

/// Demands that a project still has the disks that an earlier release mounts.
pub(crate) async fn require_disks_of(
    tx: &mut Tx,
    core: &Core,
    project: ProjectId,
    release: ReleaseId,
) -> Result<()> {
    let Some(spec) = releases::find_spec(tx, release).await? else {
        return Ok(());
    };
    let settings = open_settings(core, project, &spec.settings)?;
    for (name, _) in mounts(&settings).unwrap_or_default() {
        if !disks::has_disk(tx, project, &name.to_string()).await? {
            let Failure { reason, message } = missing(&name.to_string());
            return Err(Error::conflict(reason, message));
        }
    }
    Ok(())
}

/// A release cannot run without a disk that was deleted.
pub(crate) fn missing(name: &str) -> Failure {
    Failure {
        reason: "disk_missing",
        message: format!(
            "this release mounts the disk {name}, which was deleted; make one of that name first, which will be empty"
        ),
    }
}

/// Refuses a plan that is smaller than the disks that a project has already.
pub(crate) async fn require_disks_fit(
    tx: &mut Tx,
    project: ProjectId,
    (name, plan): (&str, &Plan),
) -> Result<()> {
    let reserved = disks::find_reserved_space(tx, project).await?;
    if reserved > plan.disk_gb {
        return Err(Error::conflict(
            "disks_too_large",
            format!(
                "the plan {name} has {} GB for all disks of the project together, and {reserved} GB are reserved; \
                 delete a disk first, or choose a larger plan",
                plan.disk_gb
            ),
        ));
    }
    Ok(())
}

fn parse_name(name: &str) -> Result<VolumeName> {
    let parsed = name.parse();
    parsed.map_err(|Invalid(reason)| Error::invalid(format!("name: {reason}")))
}

fn exists() -> Error {
    Error::conflict(
        "disk_exists",
        "the project has a disk of this name; choose another one",
    )
}

fn smaller(size: u64) -> Error {
    Error::Invalid {
        code: "disk_smaller",
        message: format!(
            "size: the disk has {size} GB and cannot become smaller; make a smaller one and copy what is on it"
        ),
    }
}

fn in_use() -> Error {
    Error::conflict(
        "disk_in_use",
        "a release that serves or is on its way mounts this disk; deploy one without it first",
    )
}
