//! Artifacts: what releases are made of.

use crate::blobs::Digest;
use crate::manifest::{self, Manifest};
use crate::{Db, Record, Row, StoreError, Tx, value};
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

/// The contents of one artifact.
#[derive(Debug)]
pub struct ArtifactContents {
    /// Identifier.
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
