//! Disks of projects.

use crate::prune::prune;
use crate::{Db, Record, Row, StoreError, Tx};
use estrade_model::disk::{Disk, DiskId};
use estrade_model::{ProjectId, Timestamp};

impl Record for Disk {
    fn from_row(row: &mut Row<'_>) -> Result<Self, StoreError> {
        Ok(Self {
            id: row.take()?,
            name: row.take()?,
            size: row.take()?,
            created_at: row.take()?,
        })
    }
}

const DISK: &str =
    "SELECT id, name, size_gb, created_at FROM disks WHERE project_id = $1 AND name = $2";
const RESERVED: &str =
    "SELECT CAST(COALESCE(SUM(size_gb), 0) AS BIGINT) FROM disks WHERE project_id = $1";

/// Adds a disk; [`StoreError::Duplicate`] when the project has one of that name.
pub async fn insert_disk(tx: &mut Tx, project: ProjectId, new: &Disk) -> Result<(), StoreError> {
    tx.query(
        "INSERT INTO disks (id, project_id, name, size_gb, created_at) VALUES ($1, $2, $3, $4, $5)",
    )
    .bind(new.id)
    .bind(project)
    .bind(&new.name)
    .bind(i64::try_from(new.size).map_err(StoreError::bug)?)
    .bind(new.created_at)
    .execute()
    .await
    .map(drop)
}

/// A page of a project's disks, newest first.
pub async fn list_disks(
    db: &Db,
    project: ProjectId,
    before: Option<DiskId>,
    count: u32,
    skip: u64,
) -> Result<Vec<Disk>, StoreError> {
    db.read(
        "SELECT id, name, size_gb, created_at FROM disks
         WHERE project_id = $1 AND id < $2 ORDER BY id DESC LIMIT $3 OFFSET $4",
    )
    .bind(project)
    .bind_page(before, count, skip)
    .fetch_all()
    .await
}

/// Every disk of a project.
pub async fn read_disks(db: &Db, project: ProjectId) -> Result<Vec<Disk>, StoreError> {
    db.read("SELECT id, name, size_gb, created_at FROM disks WHERE project_id = $1 ORDER BY id")
        .bind(project)
        .fetch_all()
        .await
}

/// A disk by name.
pub async fn read_disk(
    db: &Db,
    project: ProjectId,
    name: &str,
) -> Result<Option<Disk>, StoreError> {
    db.read(DISK)
        .bind(project)
        .bind(name)
        .fetch_optional()
        .await
}

/// The same, as the transaction sees it.
pub async fn find_disk(
    tx: &mut Tx,
    project: ProjectId,
    name: &str,
) -> Result<Option<Disk>, StoreError> {
    tx.query(DISK)
        .bind(project)
        .bind(name)
        .fetch_optional()
        .await
}

/// Sets the size of a disk in GB.
pub async fn set_size(tx: &mut Tx, id: DiskId, size: u64) -> Result<(), StoreError> {
    tx.query("UPDATE disks SET size_gb = $2 WHERE id = $1")
        .bind(id)
        .bind(i64::try_from(size).map_err(StoreError::bug)?)
        .execute()
        .await
        .map(drop)
}

/// Sets the size of a disk in GB, if it is still `from`.
pub async fn replace_size(
    tx: &mut Tx,
    id: DiskId,
    (from, to): (u64, u64),
) -> Result<(), StoreError> {
    tx.query("UPDATE disks SET size_gb = $3 WHERE id = $1 AND size_gb = $2")
        .bind(id)
        .bind(i64::try_from(from).map_err(StoreError::bug)?)
        .bind(i64::try_from(to).map_err(StoreError::bug)?)
        .execute()
        .await
        .map(drop)
}

/// Every disk there is.
pub async fn list_ids(db: &Db) -> Result<Vec<DiskId>, StoreError> {
    db.read("SELECT id FROM disks").fetch_all().await
}

/// Whether a project has a disk of that name.
pub async fn has_disk(tx: &mut Tx, project: ProjectId, name: &str) -> Result<bool, StoreError> {
    tx.query("SELECT EXISTS (SELECT 1 FROM disks WHERE project_id = $1 AND name = $2)")
        .bind(project)
        .bind(name)
        .fetch_one()
        .await
}

/// The sizes of a project's disks together, in GB.
pub async fn reserved_space(db: &Db, project: ProjectId) -> Result<u64, StoreError> {
    db.read(RESERVED).bind(project).fetch_one().await
}

/// The same, as the transaction sees it.
pub async fn find_reserved_space(tx: &mut Tx, project: ProjectId) -> Result<u64, StoreError> {
    tx.query(RESERVED).bind(project).fetch_one().await
}

/// Removes a disk; false when there is none of that name. What it holds may be removed from the engine at once.
pub async fn delete_disk(
    tx: &mut Tx,
    project: ProjectId,
    name: &str,
    now: Timestamp,
) -> Result<bool, StoreError> {
    tx.query(
        "INSERT INTO unused_disks (id, remove_at)
         SELECT id, CAST($3 AS BIGINT) FROM disks WHERE project_id = $1 AND name = $2
         ON CONFLICT (id) DO NOTHING",
    )
    .bind(project)
    .bind(name)
    .bind(now)
    .execute()
    .await?;
    let deleted = tx
        .query("DELETE FROM disks WHERE project_id = $1 AND name = $2")
        .bind(project)
        .bind(name)
        .execute()
        .await?;
    Ok(deleted > 0)
}

/// The settings, sealed, of the releases that may use a project's disks: the one that serves and those
/// on their way.
pub async fn find_users(tx: &mut Tx, project: ProjectId) -> Result<Vec<Vec<u8>>, StoreError> {
    tx.query(
        "SELECT r.settings FROM releases r JOIN projects p ON p.id = r.project_id
         WHERE p.id = $1 AND (r.id = p.current_release OR r.finished_at IS NULL)",
    )
    .bind(project)
    .fetch_all()
    .await
}

/// Notes that what all disks of a project hold may be removed from the engine, because the project is deleted.
pub(crate) async fn release_disks(
    tx: &mut Tx,
    project: ProjectId,
    now: Timestamp,
) -> Result<(), StoreError> {
    tx.query(
        "INSERT INTO unused_disks (id, remove_at)
         SELECT id, CAST($2 AS BIGINT) FROM disks WHERE project_id = $1
         ON CONFLICT (id) DO NOTHING",
    )
    .bind(project)
    .bind(now)
    .execute()
    .await
    .map(drop)
}

/// A disk that no project has.
#[derive(Debug, Clone)]
pub struct UnusedDisk {
    pub id: String,
    /// From when on what it holds may be removed.
    pub remove_at: Timestamp,
}

impl Record for UnusedDisk {
    fn from_row(row: &mut Row<'_>) -> Result<Self, StoreError> {
        Ok(Self {
            id: row.take()?,
            remove_at: row.take()?,
        })
    }
}

/// Disks that no project has, as far as that was noted.
pub async fn list_unused(db: &Db) -> Result<Vec<UnusedDisk>, StoreError> {
    db.read("SELECT id, remove_at FROM unused_disks")
        .fetch_all()
        .await
}

/// Notes a disk that no project has, unless it was noted before.
pub async fn insert_unused(tx: &mut Tx, disk: &UnusedDisk) -> Result<(), StoreError> {
    tx.query("INSERT INTO unused_disks (id, remove_at) VALUES ($1, $2) ON CONFLICT (id) DO NOTHING")
        .bind(&disk.id)
        .bind(disk.remove_at)
        .execute()
        .await
        .map(drop)
}

/// Forgets disks that could be removed since before a moment. One that an engine still has is noted again.
pub async fn prune_unused(db: &Db, before: Timestamp, limit: u32) -> Result<u64, StoreError> {
    prune(
        db,
        "DELETE FROM unused_disks WHERE id IN
             (SELECT id FROM unused_disks WHERE remove_at < $1 ORDER BY remove_at LIMIT $2)",
        before,
        limit,
    )
    .await
}
