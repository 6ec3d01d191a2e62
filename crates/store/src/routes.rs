//! What the edge serves: projects by name, the release that is live, and those that were lately.

use crate::{Db, Record, Row, StoreError};
use estrade_model::release::ArtifactId;
use estrade_model::{OwnerId, ProjectId, ReleaseId, Timestamp};

/// A project and its name, which is a host name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedProject {
    pub id: ProjectId,
    pub name: String,
}

impl Record for NamedProject {
    fn from_row(row: &mut Row<'_>) -> Result<Self, StoreError> {
        Ok(Self {
            id: row.take()?,
            name: row.take()?,
        })
    }
}

/// How requests for a project are routed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RouteRow {
    pub name: String,
    pub owner: OwnerId,
    /// How many instances run; with 0 it is switched off.
    pub scale: u32,
    /// Whether its name leads to it; else only its custom domains do.
    pub default_subdomain: bool,
    /// The release that serves.
    pub live: Option<LiveRow>,
}

/// A release that serves, or lately did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LiveRow {
    pub release: ReleaseId,
    /// Whether it runs as instances; otherwise its files are served.
    pub runs: bool,
    /// What it is made of.
    pub artifact: Option<ArtifactId>,
    /// How its files are served, as JSON.
    pub site: Option<String>,
    /// When it went live.
    pub since: Timestamp,
    /// Until when it was live.
    pub until: Option<Timestamp>,
}

impl Record for RouteRow {
    fn from_row(row: &mut Row<'_>) -> Result<Self, StoreError> {
        Ok(Self {
            name: row.take()?,
            owner: row.take()?,
            scale: row.take()?,
            default_subdomain: row.take()?,
            live: None,
        })
    }
}

impl Record for LiveRow {
    fn from_row(row: &mut Row<'_>) -> Result<Self, StoreError> {
        Ok(Self {
            release: row.take()?,
            runs: row.take()?,
            artifact: row.take()?,
            site: row.take()?,
            since: row.take()?,
            until: row.take()?,
        })
    }
}

/// A page of all projects, by id, after `after`.
pub async fn list_named_projects(
    db: &Db,
    after: Option<ProjectId>,
    count: u32,
) -> Result<Vec<NamedProject>, StoreError> {
    db.read("SELECT id, name FROM projects WHERE id > COALESCE($1, '') ORDER BY id LIMIT $2")
        .bind(after)
        .bind(count)
        .fetch_all()
        .await
}

/// How requests for a project are routed; none when it was deleted.
pub async fn read_route(db: &Db, project: ProjectId) -> Result<Option<RouteRow>, StoreError> {
    // Two reads: a release that goes live between them is announced by the change feed.
    let route: Option<RouteRow> = db
        .read("SELECT name, owner_id, scale, default_subdomain FROM projects WHERE id = $1")
        .bind(project)
        .fetch_optional()
        .await?;
    let Some(mut route) = route else {
        return Ok(None);
    };
    route.live = db
        .read(
            "SELECT r.id, r.image_id IS NOT NULL, r.artifact_id, r.site, r.finished_at, r.live_until
             FROM projects p JOIN releases r ON r.id = p.current_release WHERE p.id = $1",
        )
        .bind(project)
        .fetch_optional()
        .await?;
    Ok(Some(route))
}

/// Releases of a project that were live after `since` and are not any more, the last one first.
pub async fn list_lately_live(
    db: &Db,
    project: ProjectId,
    since: Timestamp,
    limit: u32,
) -> Result<Vec<LiveRow>, StoreError> {
    db.read(
        "SELECT id, image_id IS NOT NULL, artifact_id, site, finished_at, live_until FROM releases
         WHERE project_id = $1 AND live_until > $2 ORDER BY live_until DESC, number DESC LIMIT $3",
    )
    .bind(project)
    .bind(since)
    .bind(limit)
    .fetch_all()
    .await
}
