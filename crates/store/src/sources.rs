//! Archives that were uploaded, for releases to be made from.

use crate::{Db, Record, Row, StoreError, Tx};
use estrade_blobs::{Digest, StoredBlob};
use estrade_model::release::{ArchiveFormat, SourceId};
use estrade_model::{ProjectId, Timestamp};

#[derive(Debug, Clone, Copy)]
pub struct NewSource {
    pub id: SourceId,
    pub project: ProjectId,
    /// What kind of archive it is.
    pub format: ArchiveFormat,
    pub digest: Digest,
    /// How long it is, in bytes.
    pub size: u64,
    pub created_at: Timestamp,
}

/// Adds a source.
pub async fn insert_source(tx: &mut Tx, new: &NewSource) -> Result<(), StoreError> {
    tx.query(
        "INSERT INTO sources (id, project_id, format, digest, size, created_at)
         VALUES ($1, $2, $3, $4, $5, $6)",
    )
    .bind(new.id)
    .bind(new.project)
    .bind(new.format.as_str())
    .bind(new.digest.as_bytes())
    .bind(i64::try_from(new.size).map_err(StoreError::bug)?)
    .bind(new.created_at)
    .execute()
    .await
    .map(drop)
}

/// The content of a project's source, as the transaction sees it; none when it is gone.
pub async fn find_source(
    tx: &mut Tx,
    project: ProjectId,
    id: SourceId,
) -> Result<Option<Digest>, StoreError> {
    let digest: Option<[u8; 32]> = tx
        .query("SELECT digest FROM sources WHERE id = $1 AND project_id = $2")
        .bind(id)
        .bind(project)
        .fetch_optional()
        .await?;
    Ok(digest.map(Digest::from))
}

/// An archive, where it lies, and whose plan limits what it holds.
#[derive(Debug, Clone)]
pub struct SourceRow {
    /// What kind of archive it is.
    pub format: ArchiveFormat,
    /// The plan of its project.
    pub plan: String,
    pub blob: StoredBlob,
}

impl Record for SourceRow {
    fn from_row(row: &mut Row<'_>) -> Result<Self, StoreError> {
        Ok(Self {
            format: row.parse()?,
            plan: row.take()?,
            blob: StoredBlob::from_row(row)?,
        })
    }
}

/// A project's source; none when it is gone.
pub async fn read_source(
    db: &Db,
    project: ProjectId,
    id: SourceId,
) -> Result<Option<SourceRow>, StoreError> {
    db.read(
        "SELECT s.format, p.plan, b.digest, b.size, b.place, b.place_offset
         FROM sources s JOIN projects p ON p.id = s.project_id JOIN blobs b ON b.digest = s.digest
         WHERE s.id = $1 AND s.project_id = $2",
    )
    .bind(id)
    .bind(project)
    .fetch_optional()
    .await
}
