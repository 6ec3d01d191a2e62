//! Releases: what was deployed, and their states. Leases of workers are in [`crate::release_queue`].

use crate::projects::ProjectFilter;
use crate::{Db, Query, Record, Row, StoreError, Tx};
use estrade_model::platform::Platform;
use estrade_model::release::{ArtifactId, ReleaseState, ReleaseType, SourceId};
use estrade_model::{AccountId, OwnerId, ProjectId, ReleaseId, Timestamp};

/// A release as stored, and how it stands beside the others of its project.
#[derive(Debug, Clone)]
pub struct ReleaseRow {
    pub id: ReleaseId,
    pub project: ProjectId,
    /// 1, 2, … per project.
    pub number: u64,
    /// Why it was made.
    pub kind: ReleaseType,
    pub state: ReleaseState,
    /// The platform it runs on.
    pub platform: Platform,
    /// The port it listens on.
    pub port: u16,
    pub message: Option<String>,
    /// The commit it was made from, as JSON.
    pub git_info: Option<String>,
    /// The client that made it.
    pub client: Option<String>,
    /// Why it ended badly.
    pub fail_reason: Option<String>,
    /// The same for a person.
    pub fail_message: Option<String>,
    /// When it was accepted.
    pub created_at: Timestamp,
    /// When it reached a terminal state.
    pub finished_at: Option<Timestamp>,
    /// What it is made of; none for images and once its artifact was cleaned up.
    pub artifact: Option<ArtifactId>,
    /// The files that its artifact was built from, when they are not the artifact themselves.
    pub origin: Option<ArtifactId>,
    /// The image it runs, when it was made from one.
    pub image: Option<String>,
    /// Whether an image was made for it, or for one that it runs again.
    pub has_image: bool,
    /// The archive it was made from, when it was.
    pub source: Option<SourceId>,
    /// Whether that archive is still there.
    pub has_source: bool,
    /// What its maker should know, as a JSON list of texts.
    pub warnings: Option<String>,
    /// Rises with every change of the release or of its project.
    pub version: i64,
    /// Whether it is the one that serves.
    pub current: bool,
    /// How many releases of its owner come before it, while it waits: those of its project, and if it needs
    /// a build, older ones of other projects that need one.
    pub queue: Option<u64>,
}

macro_rules! select_releases {
    ($tail:literal) => {
        concat!(
            "SELECT r.id, r.project_id, r.number, r.kind, r.state, r.platform, r.port, r.message,
                    r.git_info, r.client, r.fail_reason, r.fail_message, r.created_at,
                    r.finished_at, r.artifact_id, r.origin_id, r.image, r.image_id IS NOT NULL, r.source_id,
                    s.id IS NOT NULL, r.warnings, r.version + p.version,
                    COALESCE(p.current_release = r.id, FALSE),
                    CASE WHEN r.state = 'PENDING' THEN
                        (SELECT COUNT(*) FROM releases o WHERE o.project_id = r.project_id
                         AND o.number < r.number AND o.finished_at IS NULL)
                        + CASE WHEN r.platform = 'static' OR r.image_id IS NOT NULL
                                    OR r.origin_id IS NOT NULL THEN 0 ELSE
                            (SELECT COUNT(*) FROM projects q JOIN releases o ON o.project_id = q.id
                             WHERE q.owner_id = p.owner_id AND q.id <> p.id
                             AND o.finished_at IS NULL AND o.id < r.id AND o.platform <> 'static'
                             AND o.image_id IS NULL AND o.origin_id IS NULL)
                        END
                    END
             FROM releases r JOIN projects p ON p.id = r.project_id
             LEFT JOIN sources s ON s.id = r.source_id ",
            $tail
        )
    };
}

impl Record for ReleaseRow {
    fn from_row(row: &mut Row<'_>) -> Result<Self, StoreError> {
        Ok(Self {
            id: row.take()?,
            project: row.take()?,
            number: row.take()?,
            kind: row.parse()?,
            state: row.parse()?,
            platform: row.parse()?,
            port: row.take()?,
            message: row.take()?,
            git_info: row.take()?,
            client: row.take()?,
            fail_reason: row.take()?,
            fail_message: row.take()?,
            created_at: row.take()?,
            finished_at: row.take()?,
            artifact: row.take()?,
            origin: row.take()?,
            image: row.take()?,
            has_image: row.take()?,
            source: row.take()?,
            has_source: row.take()?,
            warnings: row.take()?,
            version: row.take()?,
            current: row.take()?,
            queue: row.take()?,
        })
    }
}

/// What a release runs: enough to run the same again.
#[derive(Debug, Clone)]
pub struct ReleaseSpec {
    /// The platform it runs on.
    pub platform: Platform,
    /// The port it listens on.
    pub port: u16,
    /// Settings for the runtime, sealed.
    pub settings: Vec<u8>,
    /// The image, when it was made from one.
    pub image: Option<String>,
    /// What it is made of.
    pub artifact: Option<ArtifactId>,
    /// The archive that it is made from, when it is.
    pub source: Option<SourceId>,
    /// How its files are served, as JSON of a [`SiteConfig`](estrade_model::site::SiteConfig).
    pub site: Option<String>,
    /// The image that it runs, once there is one: the release that it was made for.
    pub built: Option<ReleaseId>,
    /// The files that its artifact was built from, when they are not the artifact themselves.
    pub origin: Option<ArtifactId>,
    /// The environment variables of its instances, sealed; none: not chosen yet.
    pub env: Option<Vec<u8>>,
}

impl Record for ReleaseSpec {
    fn from_row(row: &mut Row<'_>) -> Result<Self, StoreError> {
        Ok(Self {
            platform: row.parse()?,
            port: row.take()?,
            settings: row.take()?,
            image: row.take()?,
            artifact: row.take()?,
            source: row.take()?,
            site: row.take()?,
            built: row.take()?,
            origin: row.take()?,
            env: row.take()?,
        })
    }
}

#[derive(Debug, Clone)]
pub struct ReleaseDraft {
    pub id: ReleaseId,
    pub project: ProjectId,
    /// Why it is made.
    pub kind: ReleaseType,
    pub spec: ReleaseSpec,
    pub message: Option<String>,
    /// The commit it is made from, as JSON.
    pub git_info: Option<String>,
    /// The client that makes it.
    pub client: Option<String>,
    /// When it is accepted.
    pub created_at: Timestamp,
    /// When it has waited too long.
    pub deadline: Timestamp,
}

/// Notes what the maker of a release should know, as a JSON list of texts.
pub async fn set_warnings(tx: &mut Tx, id: ReleaseId, warnings: &str) -> Result<(), StoreError> {
    tx.query("UPDATE releases SET warnings = $2, version = version + 1 WHERE id = $1")
        .bind(id)
        .bind(warnings)
        .execute()
        .await
        .map(drop)
}

/// Adds a release that waits for its turn.
pub async fn insert_release(
    tx: &mut Tx,
    draft: &ReleaseDraft,
    number: u64,
) -> Result<(), StoreError> {
    tx.query(
        "INSERT INTO releases (id, project_id, number, kind, state, platform, port, message,
             git_info, client, settings, image, artifact_id, source_id, site, created_at, deadline,
             image_id, origin_id, env, lease_until, version)
         VALUES ($1, $2, $3, $4, 'PENDING', $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16,
             $17, $18, $19, 0, 1)",
    )
    .bind(draft.id)
    .bind(draft.project)
    .bind(i64::try_from(number).map_err(StoreError::bug)?)
    .bind(draft.kind.as_str())
    .bind(draft.spec.platform.as_str())
    .bind(draft.spec.port)
    .bind(draft.message.as_deref())
    .bind(draft.git_info.as_deref())
    .bind(draft.client.as_deref())
    .bind(draft.spec.settings.as_slice())
    .bind(draft.spec.image.as_deref())
    .bind(draft.spec.artifact)
    .bind(draft.spec.source)
    .bind(draft.spec.site.as_deref())
    .bind(draft.created_at)
    .bind(draft.deadline)
    .bind(draft.spec.built)
    .bind(draft.spec.origin)
    .bind(draft.spec.env.as_deref())
    .execute()
    .await
    .map(drop)
}

/// Notes who made a release.
pub async fn set_author(tx: &mut Tx, id: ReleaseId, author: AccountId) -> Result<(), StoreError> {
    tx.query("UPDATE releases SET created_by = $2 WHERE id = $1")
        .bind(id)
        .bind(author)
        .execute()
        .await
        .map(drop)
}

/// The author of a release.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReleaseAuthor {
    pub release: ReleaseId,
    pub fullname: String,
    pub email: String,
}

impl Record for ReleaseAuthor {
    fn from_row(row: &mut Row<'_>) -> Result<Self, StoreError> {
        Ok(Self {
            release: row.take()?,
            fullname: row.take()?,
            email: row.take()?,
        })
    }
}

/// The authors of the newest `count` releases of a project up to one, as far as it is known.
pub async fn list_authors(
    db: &Db,
    project: ProjectId,
    newest: ReleaseId,
    count: u32,
) -> Result<Vec<ReleaseAuthor>, StoreError> {
    db.read(
        "SELECT r.id, a.fullname, a.email FROM
             (SELECT id, created_by FROM releases
              WHERE project_id = $1 AND number <= (SELECT number FROM releases WHERE id = $2)
              ORDER BY number DESC LIMIT $3) r
         JOIN accounts a ON a.id = r.created_by",
    )
    .bind(project)
    .bind(newest)
    .bind(count)
    .fetch_all()
    .await
}

/// What a release runs.
pub async fn find_spec(tx: &mut Tx, id: ReleaseId) -> Result<Option<ReleaseSpec>, StoreError> {
    tx.query(
        "SELECT platform, port, settings, image, artifact_id, source_id, site, image_id, origin_id,
                env
         FROM releases WHERE id = $1",
    )
    .bind(id)
    .fetch_optional()
    .await
}

/// The settings of a release, sealed.
pub async fn read_settings(db: &Db, id: ReleaseId) -> Result<Option<Vec<u8>>, StoreError> {
    db.read("SELECT settings FROM releases WHERE id = $1")
        .bind(id)
        .fetch_optional()
        .await
}

/// A page of a project's releases, newest first, strictly before `before`.
pub async fn list_releases(
    db: &Db,
    project: ProjectId,
    before: Option<ReleaseId>,
    count: u32,
    skip: u64,
) -> Result<Vec<ReleaseRow>, StoreError> {
    // By number, which is the order of commits; ids of several nodes may differ from it.
    db.read(select_releases!(
        "WHERE r.project_id = $1
           AND r.number < COALESCE((SELECT number FROM releases WHERE id = $2), 9223372036854775807)
         ORDER BY r.number DESC LIMIT $3 OFFSET $4"
    ))
    .bind(project)
    .bind(before)
    .bind(count)
    .bind(i64::try_from(skip).unwrap_or(i64::MAX))
    .fetch_all()
    .await
}

/// A release of a project that is visible.
pub async fn read_release(
    db: &Db,
    visible: ProjectFilter,
    id: ReleaseId,
) -> Result<Option<ReleaseRow>, StoreError> {
    let row: Option<ReleaseRow> = one(db.read(ONE), visible.owner(), id)
        .fetch_optional()
        .await?;
    Ok(row.filter(|row| visible.includes_own(row.project)))
}

/// The same, as the transaction sees it.
pub async fn find_release(
    tx: &mut Tx,
    visible: ProjectFilter,
    id: ReleaseId,
) -> Result<Option<ReleaseRow>, StoreError> {
    let row: Option<ReleaseRow> = one(tx.query(ONE), visible.owner(), id)
        .fetch_optional()
        .await?;
    Ok(row.filter(|row| visible.includes_own(row.project)))
}

const ONE: &str = select_releases!("WHERE r.id = $1 AND p.owner_id = $2");

fn one(query: Query<'_>, owner: OwnerId, id: ReleaseId) -> Query<'_> {
    query.bind(id).bind(owner)
}
