//! What shall run: projects and the releases that their instances are made from.

use crate::{Db, Record, Row, StoreError, Tx};
use estrade_model::project::ProjectStatus;
use estrade_model::release::ReleaseType;
use estrade_model::{OwnerId, ProjectId, ReleaseId, Timestamp};

/// A project, as far as its instances depend on it.
#[derive(Debug, Clone)]
pub struct WorkloadRow {
    pub project: ProjectId,
    pub owner: OwnerId,
    pub name: String,
    pub plan: String,
    /// How many instances run.
    pub scale: u32,
    /// Whether they see a read-only file system.
    pub read_only_root: bool,
    /// Whether a new instance is healthy before the old one ends.
    pub zero_downtime: bool,
    /// Raised by a restart.
    pub revision: u32,
    /// How it is doing.
    pub status: ProjectStatus,
    /// The release that serves.
    pub live: Option<ReleaseId>,
}

impl Record for WorkloadRow {
    fn from_row(row: &mut Row<'_>) -> Result<Self, StoreError> {
        Ok(Self {
            project: row.take()?,
            owner: row.take()?,
            name: row.take()?,
            plan: row.take()?,
            scale: row.take()?,
            read_only_root: row.take()?,
            zero_downtime: row.take()?,
            revision: row.take()?,
            status: ProjectStatus::from_text(&row.take::<String>()?),
            live: row.take()?,
        })
    }
}

/// A project; none when it is gone.
pub async fn read_workload(db: &Db, project: ProjectId) -> Result<Option<WorkloadRow>, StoreError> {
    db.read(
        "SELECT id, owner_id, name, plan, scale, read_only_root, zero_downtime, revision, status,
                current_release
         FROM projects WHERE id = $1",
    )
    .bind(project)
    .fetch_optional()
    .await
}

/// A release that runs.
#[derive(Debug, Clone)]
pub struct RunRow {
    pub release: ReleaseId,
    /// Its number in its project.
    pub number: u64,
    /// Why it was made.
    pub kind: ReleaseType,
    /// Where its instances listen.
    pub port: u16,
    /// Settings of its maker, sealed.
    pub settings: Vec<u8>,
    /// Environment variables, sealed.
    pub env: Option<Vec<u8>>,
    /// The release that its image was made for.
    pub image: ReleaseId,
    /// What its image is started with instead of its own command, as JSON.
    pub command: Option<String>,
    /// Where its image wants volumes of its own, as JSON.
    pub volumes: String,
    /// When it went live, or ended otherwise.
    pub finished_at: Option<Timestamp>,
}

impl Record for RunRow {
    fn from_row(row: &mut Row<'_>) -> Result<Self, StoreError> {
        Ok(Self {
            release: row.take()?,
            number: row.take()?,
            kind: row.parse()?,
            port: row.take()?,
            settings: row.take()?,
            env: row.take()?,
            image: row.take()?,
            command: row.take()?,
            volumes: row.take()?,
            finished_at: row.take()?,
        })
    }
}

/// What the instances of a release are made from; none when it has no image.
pub async fn read_run(db: &Db, release: ReleaseId) -> Result<Option<RunRow>, StoreError> {
    db.read(
        "SELECT r.id, r.number, r.kind, r.port, r.settings, r.env, r.image_id, i.command,
                i.volumes, r.finished_at
         FROM releases r JOIN images i ON i.id = r.image_id WHERE r.id = $1",
    )
    .bind(release)
    .fetch_optional()
    .await
}

/// The releases of a project whose instances are being put in place.
pub async fn list_deploying(db: &Db, project: ProjectId) -> Result<Vec<ReleaseId>, StoreError> {
    db.read(
        "SELECT id FROM releases
         WHERE project_id = $1 AND finished_at IS NULL AND state = 'DEPLOYING'",
    )
    .bind(project)
    .fetch_all()
    .await
}

/// The last release before this one that was live and can run again; none when a newer release than this
/// one was made, which is what its maker wants.
pub async fn find_predecessor(
    tx: &mut Tx,
    project: ProjectId,
    release: ReleaseId,
) -> Result<Option<ReleaseId>, StoreError> {
    tx.query(
        "SELECT e.id FROM releases r JOIN releases e ON e.project_id = r.project_id
         JOIN projects p ON p.id = r.project_id AND p.current_release = r.id
         WHERE r.id = $2 AND r.project_id = $1 AND e.number < r.number AND e.state = 'READY'
           AND e.image_id IS NOT NULL AND p.releases = r.number
         ORDER BY e.number DESC LIMIT 1",
    )
    .bind(project)
    .bind(release)
    .fetch_optional()
    .await
}

/// Owners that have a project with an image.
pub async fn list_owners(db: &Db) -> Result<Vec<OwnerId>, StoreError> {
    db.read(
        "SELECT DISTINCT p.owner_id FROM projects p
         WHERE EXISTS (SELECT 1 FROM images i WHERE i.project_id = p.id)
            OR EXISTS (SELECT 1 FROM releases r WHERE r.project_id = p.id AND r.finished_at IS NULL)",
    )
    .fetch_all()
    .await
}
