//! Images that releases run. The engine has them; here is which there shall be.

use crate::{Db, Record, Row, StoreError, Tx};
use estrade_model::{ProjectId, ReleaseId, Timestamp};
use std::collections::HashSet;

/// An image that was made for a release.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ImageKey {
    pub project: ProjectId,
    /// The release that it was made for.
    pub release: ReleaseId,
}

impl Record for ImageKey {
    fn from_row(row: &mut Row<'_>) -> Result<Self, StoreError> {
        Ok(Self {
            project: row.take()?,
            release: row.take()?,
        })
    }
}

/// Adds the image of a release, or replaces what is known of it. The command and the paths of its own
/// volumes are lists as JSON.
pub async fn insert_image(
    tx: &mut Tx,
    key: ImageKey,
    command: Option<&str>,
    volumes: &str,
    now: Timestamp,
) -> Result<(), StoreError> {
    tx.query(
        "INSERT INTO images (id, project_id, command, created_at, volumes)
         VALUES ($1, $2, $3, $4, $5)
         ON CONFLICT (id) DO UPDATE SET command = excluded.command, volumes = excluded.volumes",
    )
    .bind(key.release)
    .bind(key.project)
    .bind(command)
    .bind(now)
    .bind(volumes)
    .execute()
    .await
    .map(drop)
}

/// Every image that there shall be, and those that releases are being made of.
pub async fn list_wanted(db: &Db) -> Result<Vec<ImageKey>, StoreError> {
    db.read(
        "SELECT project_id, id FROM images
         UNION SELECT project_id, id FROM releases WHERE finished_at IS NULL",
    )
    .fetch_all()
    .await
}

/// The projects that have an image.
pub async fn list_projects(db: &Db) -> Result<Vec<ProjectId>, StoreError> {
    db.read("SELECT DISTINCT project_id FROM images")
        .fetch_all()
        .await
}

/// Which of these releases there are.
pub async fn known_releases(
    db: &Db,
    releases: &[ReleaseId],
) -> Result<HashSet<ReleaseId>, StoreError> {
    let mut known = HashSet::new();
    for release in releases {
        let found: Option<ReleaseId> = db
            .read("SELECT id FROM releases WHERE id = $1")
            .bind(*release)
            .fetch_optional()
            .await?;
        known.extend(found);
    }
    Ok(known)
}

/// Which of these projects there are.
pub async fn known_projects(
    db: &Db,
    projects: &[ProjectId],
) -> Result<HashSet<ProjectId>, StoreError> {
    let mut known = HashSet::new();
    for project in projects {
        let found: Option<ProjectId> = db
            .read("SELECT id FROM projects WHERE id = $1")
            .bind(*project)
            .fetch_optional()
            .await?;
        known.extend(found);
    }
    Ok(known)
}
