//! Artifacts: what releases are made of.

use crate::manifest::{self, Manifest};
use crate::{Db, Record, Row, StoreError, Tx, value};
use estrade_blobs::Digest;
use estrade_model::ProjectId;
use estrade_model::release::ArtifactId;

/// Adds an artifact made of files.
pub async fn insert_artifact(
    tx: &mut Tx,
    id: ArtifactId,
    project: ProjectId,
    manifest: &Manifest,
) -> Result<(), StoreError> {
    let number = |count: u64| i64::try_from(count).map_err(StoreError::bug);
    tx.query(
        "INSERT INTO artifacts (id, project_id, kind, files, bytes, manifest)
         VALUES ($1, $2, 'files', $3, $4, $5)",
    )
    .bind(id)
    .bind(project)
    .bind(number(manifest.files().len() as u64)?)
    .bind(number(manifest.bytes())?)
    .bind(manifest.encode())
    .execute()
    .await
    .map(drop)
}

/// The files of an artifact; none when there is no such artifact.
pub async fn read_manifest(db: &Db, id: ArtifactId) -> Result<Option<Manifest>, StoreError> {
    let bytes: Option<Vec<u8>> = db
        .read("SELECT manifest FROM artifacts WHERE id = $1 AND manifest IS NOT NULL")
        .bind(id)
        .fetch_optional()
        .await?;
    bytes
        .map(|bytes| Manifest::decode(&bytes).map_err(StoreError::bug))
        .transpose()
}

/// The files of the newest artifact of a project, before this one, whose quick variants were made.
pub async fn read_last_compressed(
    db: &Db,
    project: ProjectId,
    before: ArtifactId,
) -> Result<Option<Manifest>, StoreError> {
    let bytes: Option<Vec<u8>> = db
        .read(
            "SELECT manifest FROM artifacts WHERE project_id = $1 AND id < $2 AND compressed
             AND manifest IS NOT NULL ORDER BY id DESC LIMIT 1",
        )
        .bind(project)
        .bind(before)
        .fetch_optional()
        .await?;
    bytes
        .map(|bytes| Manifest::decode(&bytes).map_err(StoreError::bug))
        .transpose()
}

/// The contents of one artifact.
#[derive(Debug)]
pub struct ArtifactContents {
    pub id: ArtifactId,
    /// Digests and sizes.
    pub contents: Vec<(Digest, u64)>,
}

impl Record for ArtifactContents {
    fn from_row(row: &mut Row<'_>) -> Result<Self, StoreError> {
        let id = row.take()?;
        let bytes: Vec<u8> = row.take()?;
        Ok(Self {
            id,
            contents: manifest::contents(&bytes).map_err(StoreError::bug)?,
        })
    }
}

/// The contents of a project's newest artifact that is older than `before`.
pub async fn read_newest_contents(
    db: &Db,
    project: ProjectId,
    before: Option<ArtifactId>,
) -> Result<Option<ArtifactContents>, StoreError> {
    db.read(
        "SELECT id, manifest FROM artifacts
         WHERE project_id = $1 AND id < $2 AND manifest IS NOT NULL ORDER BY id DESC LIMIT 1",
    )
    .bind(project)
    .bind(value::before(before))
    .fetch_optional()
    .await
}

/// Keeps an artifact, and so its contents, until the `next` one is committed; false when it cannot.
///
/// Contents that the two share need not be [kept] one by one then: garbage collection reads artifacts in
/// the order of their ids and meets this one or, once it is deleted, the next. That has the higher id
/// and is read later, so that not both are missed.
///
/// [kept]: crate::blob_rows::keep_blobs
pub async fn keep_artifact_for(
    tx: &mut Tx,
    id: ArtifactId,
    next: ArtifactId,
) -> Result<bool, StoreError> {
    // Where clocks differ, the newest one of another node may seem to be of the future.
    if next <= id {
        return Ok(false);
    }
    let sql = if tx.has_many_writers() {
        "SELECT id FROM artifacts WHERE id = $1 FOR KEY SHARE"
    } else {
        "SELECT id FROM artifacts WHERE id = $1"
    };
    let found: Option<ArtifactId> = tx.query(sql).bind(id).fetch_optional().await?;
    Ok(found.is_some())
}

/// Notes that the quick variants of all contents of an artifact were made.
pub async fn set_compressed(tx: &mut Tx, id: ArtifactId) -> Result<(), StoreError> {
    tx.query("UPDATE artifacts SET compressed = TRUE WHERE id = $1")
        .bind(id)
        .execute()
        .await
        .map(drop)
}

/// Notes that the slow variants were made too; false when the artifact is gone.
pub async fn set_brotli(tx: &mut Tx, id: ArtifactId) -> Result<bool, StoreError> {
    let set = tx
        .query("UPDATE artifacts SET brotli = TRUE WHERE id = $1")
        .bind(id)
        .execute()
        .await?;
    Ok(set > 0)
}

/// An artifact that serves and has no slow variants yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WithoutBrotli {
    pub id: ArtifactId,
    pub project: ProjectId,
}

impl Record for WithoutBrotli {
    fn from_row(row: &mut Row<'_>) -> Result<Self, StoreError> {
        Ok(Self {
            id: row.take()?,
            project: row.take()?,
        })
    }
}

/// Artifacts of live releases that have no slow variants yet, the newest first.
pub async fn list_without_brotli(db: &Db, limit: u32) -> Result<Vec<WithoutBrotli>, StoreError> {
    db.read(
        "SELECT a.id, a.project_id FROM artifacts a
         WHERE a.compressed AND NOT a.brotli AND EXISTS (
             SELECT 1 FROM projects p JOIN releases r ON r.id = p.current_release
             WHERE p.id = a.project_id AND r.artifact_id = a.id)
         ORDER BY a.id DESC LIMIT $1",
    )
    .bind(limit)
    .fetch_all()
    .await
}
