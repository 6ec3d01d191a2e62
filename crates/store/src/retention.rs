//! What releases are made of, once it is older than a project's history goes back.

use crate::prune::prune;
use crate::{Db, Record, Row, StoreError, Tx};
use estrade_model::release::{ArtifactId, ReleaseState, SourceId};
use estrade_model::{ProjectId, ReleaseId, Timestamp};

/// A release that still has what it was made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MadeRow {
    pub state: ReleaseState,
    /// Until when it was live; none while it is, and when it never was.
    pub live_until: Option<Timestamp>,
    /// What it is made of.
    pub artifact: Option<ArtifactId>,
    /// What its artifact was built from, when that is another one.
    pub origin: Option<ArtifactId>,
    /// The image that it runs: the release that it was made for.
    pub image: Option<ReleaseId>,
    /// The archive that it was made from.
    pub source: Option<SourceId>,
    /// Whether it is the one that serves.
    pub current: bool,
}

impl Record for MadeRow {
    fn from_row(row: &mut Row<'_>) -> Result<Self, StoreError> {
        Ok(Self {
            state: row.parse()?,
            live_until: row.take()?,
            artifact: row.take()?,
            origin: row.take()?,
            image: row.take()?,
            source: row.take()?,
            current: row.take()?,
        })
    }
}

/// A page of the projects that have more than `history` releases with what they are made of.
pub async fn list_long_histories(
    db: &Db,
    history: u32,
    after: Option<ProjectId>,
    limit: u32,
) -> Result<Vec<ProjectId>, StoreError> {
    db.read(
        "SELECT project_id FROM releases
         WHERE project_id > COALESCE($2, '')
           AND (artifact_id IS NOT NULL OR source_id IS NOT NULL OR image_id IS NOT NULL)
         GROUP BY project_id HAVING COUNT(*) > $1 ORDER BY project_id LIMIT $3",
    )
    .bind(history)
    .bind(after)
    .bind(limit)
    .fetch_all()
    .await
}

/// The releases of a project that still have what they were made of, newest first.
pub async fn list_made(tx: &mut Tx, project: ProjectId) -> Result<Vec<MadeRow>, StoreError> {
    tx.query(
        "SELECT r.state, r.live_until, r.artifact_id, r.origin_id, r.image_id, r.source_id,
                COALESCE(p.current_release = r.id, FALSE)
         FROM releases r JOIN projects p ON p.id = r.project_id
         WHERE r.project_id = $1
           AND (r.artifact_id IS NOT NULL OR r.source_id IS NOT NULL OR r.image_id IS NOT NULL)
         ORDER BY r.number DESC",
    )
    .bind(project)
    .fetch_all()
    .await
}

/// Removes an artifact; its releases stay, without it.
pub async fn remove_artifact(tx: &mut Tx, id: ArtifactId) -> Result<(), StoreError> {
    // Not by `ON DELETE SET NULL`: `version` must rise, so that clients that have read them see the change.
    tx.query(
        "UPDATE releases SET artifact_id = NULL, version = version + 1 WHERE artifact_id = $1",
    )
    .bind(id)
    .execute()
    .await?;
    tx.query("UPDATE releases SET origin_id = NULL, version = version + 1 WHERE origin_id = $1")
        .bind(id)
        .execute()
        .await?;
    tx.query("DELETE FROM artifacts WHERE id = $1")
        .bind(id)
        .execute()
        .await
        .map(drop)
}

/// Deletes an image's row; its releases stay, without it. The engine's image is removed once it is unused.
pub async fn remove_image(tx: &mut Tx, id: ReleaseId) -> Result<(), StoreError> {
    tx.query("UPDATE releases SET image_id = NULL, version = version + 1 WHERE image_id = $1")
        .bind(id)
        .execute()
        .await?;
    tx.query("DELETE FROM images WHERE id = $1")
        .bind(id)
        .execute()
        .await
        .map(drop)
}

/// Removes a source; its releases stay, without it.
pub async fn remove_source(tx: &mut Tx, id: SourceId) -> Result<(), StoreError> {
    tx.query("UPDATE releases SET source_id = NULL, version = version + 1 WHERE source_id = $1")
        .bind(id)
        .execute()
        .await?;
    tx.query("DELETE FROM sources WHERE id = $1")
        .bind(id)
        .execute()
        .await
        .map(drop)
}

/// Forgets up to `most` uploads from before a moment.
pub async fn prune_uploads(db: &Db, before: Timestamp, limit: u32) -> Result<u64, StoreError> {
    let sql = "DELETE FROM blob_uploads WHERE (project_id, digest) IN
               (SELECT project_id, digest FROM blob_uploads WHERE at < $1 LIMIT $2)";
    prune(db, sql, before, limit).await
}

/// Forgets up to `most` sources from before a moment that no release was made from.
pub async fn prune_sources(db: &Db, before: Timestamp, limit: u32) -> Result<u64, StoreError> {
    let sql = "DELETE FROM sources WHERE id IN
               (SELECT s.id FROM sources s WHERE s.created_at < $1
                AND NOT EXISTS (SELECT 1 FROM releases r WHERE r.source_id = s.id) LIMIT $2)";
    prune(db, sql, before, limit).await
}
