//! The queue of unfinished releases: leases of workers, and transitions between states.
//!
//! Every transition is a compare-and-swap on the state, and on the lease where one is held.

use crate::releases::ReleaseSpec;
use crate::{Db, Record, Row, StoreError, Tx};
use estrade_model::release::{ArtifactId, ReleaseState};
use estrade_model::{OwnerId, ProjectId, ReleaseId, Timestamp};

/// A release that was claimed, as its worker needs it.
#[derive(Debug, Clone)]
pub struct ClaimedRow {
    pub id: ReleaseId,
    pub project: ProjectId,
    pub owner: OwnerId,
    /// Where it stands; not PENDING when an earlier worker did not finish.
    pub state: ReleaseState,
    /// Whether the quick variants of its artifact were made.
    pub compressed: bool,
    pub spec: ReleaseSpec,
}

impl Record for ClaimedRow {
    fn from_row(row: &mut Row<'_>) -> Result<Self, StoreError> {
        Ok(Self {
            id: row.take()?,
            project: row.take()?,
            owner: row.take()?,
            state: row.parse()?,
            compressed: row.take()?,
            spec: ReleaseSpec::from_row(row)?,
        })
    }
}

/// A release that moved on.
#[derive(Debug, Clone, Copy)]
pub struct MovedRow {
    pub project: ProjectId,
    pub number: u64,
}

impl Record for MovedRow {
    fn from_row(row: &mut Row<'_>) -> Result<Self, StoreError> {
        Ok(Self {
            project: row.take()?,
            number: row.take()?,
        })
    }
}

/// A release whose state has lasted too long.
#[derive(Debug, Clone, Copy)]
pub struct OverdueRow {
    pub id: ReleaseId,
    pub state: ReleaseState,
    /// When it was made.
    pub created_at: Timestamp,
}

impl Record for OverdueRow {
    fn from_row(row: &mut Row<'_>) -> Result<Self, StoreError> {
        Ok(Self {
            id: row.take()?,
            state: row.parse()?,
            created_at: row.take()?,
        })
    }
}

/// What a release waits for; each kind has slots of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ReleaseQueue {
    /// Files that are served, as they came or as they were built.
    Static,
    /// An image that only has to run.
    Deploy,
    /// An image that must be built or fetched first.
    Build,
}

/// A release that can be claimed.
#[derive(Debug, Clone, Copy)]
pub struct ClaimableRow {
    pub id: ReleaseId,
    /// Whether it shall run what is live when its turn comes.
    pub follows: bool,
    pub owner: OwnerId,
    /// What it waits for.
    pub queue: ReleaseQueue,
    /// Whether an earlier worker had begun to build it.
    pub building: bool,
}

impl Record for ClaimableRow {
    fn from_row(row: &mut Row<'_>) -> Result<Self, StoreError> {
        let (id, follows, owner) = (row.take()?, row.take()?, row.take()?);
        let (is_static, has_image): (bool, bool) = (row.take()?, row.take()?);
        Ok(Self {
            id,
            follows,
            owner,
            queue: match (is_static, has_image) {
                (true, _) => ReleaseQueue::Static,
                (false, true) => ReleaseQueue::Deploy,
                (false, false) => ReleaseQueue::Build,
            },
            building: row.take()?,
        })
    }
}

/// Which releases are looked for, and how many.
#[derive(Debug, Clone, Copy)]
pub struct ClaimFilter {
    /// Also those that need an engine.
    pub engine: bool,
    /// Also those that need a build; one that has begun is found anyway.
    pub builds: bool,
    /// Most of one owner and queue.
    pub per_owner: u32,
    /// Most of all.
    pub limit: u32,
}

/// Releases without a lease that are next in their project: the first of each owner, oldest first,
/// then the second of each, and so on. Those that were begun come first.
///
/// Being next never ends, since what comes before can only finish; so a claim needs no second look.
pub async fn claimable_releases(
    db: &Db,
    now: Timestamp,
    filter: ClaimFilter,
) -> Result<Vec<ClaimableRow>, StoreError> {
    db.read(
        "SELECT id, follows, owner_id, is_static, has_image, building FROM (
             SELECT w.*, ROW_NUMBER() OVER (PARTITION BY owner_id, is_static, has_image
                                            ORDER BY waits, id) AS place
             FROM (SELECT r.id, r.kind = 'ENV_UPDATE' AND r.state = 'PENDING' AS follows, p.owner_id,
                          r.platform = 'static' OR r.origin_id IS NOT NULL AS is_static,
                          r.image_id IS NOT NULL AS has_image, r.state = 'BUILDING' AS building,
                          r.state = 'PENDING' AS waits
                   FROM releases r JOIN projects p ON p.id = r.project_id
                   WHERE r.finished_at IS NULL AND r.lease_until <= $1
                     AND NOT EXISTS (SELECT 1 FROM releases o WHERE o.project_id = r.project_id
                                     AND o.number < r.number AND o.finished_at IS NULL)) w
             WHERE is_static OR ($5 AND (has_image OR building OR $2))) n
         WHERE place <= $3 ORDER BY place, id LIMIT $4",
    )
    .bind(now)
    .bind(filter.builds)
    .bind(filter.per_owner)
    .bind(filter.limit)
    .bind(filter.engine)
    .fetch_all()
    .await
}

/// Lets a release that waits run what is live now: what was live when it was made may have been replaced
/// by one that was before it in the queue.
pub async fn follow_live(tx: &mut Tx, id: ReleaseId) -> Result<(), StoreError> {
    tx.query(
        "UPDATE releases SET platform = l.platform, port = l.port, settings = l.settings,
             image = l.image, artifact_id = l.artifact_id, source_id = l.source_id, site = l.site,
             image_id = l.image_id, origin_id = l.origin_id, version = releases.version + 1
         FROM releases l JOIN projects p ON p.current_release = l.id
         WHERE releases.id = $1 AND releases.state = 'PENDING' AND p.id = releases.project_id",
    )
    .bind(id)
    .execute()
    .await
    .map(drop)
}

/// Claims a release without a lease; none when another worker was faster. One that only waited must
/// begin by `begin`.
pub async fn claim_release(
    tx: &mut Tx,
    id: ReleaseId,
    lease: &str,
    until: Timestamp,
    begin: Timestamp,
    now: Timestamp,
) -> Result<Option<ClaimedRow>, StoreError> {
    tx.query(
        "UPDATE releases SET lease_owner = $2, lease_until = $3,
             deadline = CASE WHEN state = 'PENDING' AND deadline > $5 THEN $5 ELSE deadline END
         WHERE id = $1 AND finished_at IS NULL AND lease_until <= $4
         RETURNING id, project_id,
                   (SELECT p.owner_id FROM projects p WHERE p.id = releases.project_id), state,
                   EXISTS (SELECT 1 FROM artifacts a
                           WHERE a.id = releases.artifact_id AND a.compressed),
                   platform, port, settings, image, artifact_id, source_id, site, image_id,
                   origin_id, env",
    )
    .bind(id)
    .bind(lease)
    .bind(until)
    .bind(now)
    .bind(begin)
    .fetch_optional()
    .await
}

/// Puts a release back into the queue. One that was not begun may wait there for `allowed` from when it was made; the
/// deadline of one that was BUILDING stays.
pub async fn requeue_release(
    tx: &mut Tx,
    id: ReleaseId,
    lease: &str,
    allowed_millis: i64,
) -> Result<(), StoreError> {
    tx.query(
        "UPDATE releases SET lease_owner = NULL, lease_until = 0,
             deadline = CASE WHEN state = 'PENDING' THEN created_at + $3 ELSE deadline END
         WHERE id = $1 AND lease_owner = $2 AND state IN ('PENDING', 'BUILDING')",
    )
    .bind(id)
    .bind(lease)
    .bind(allowed_millis)
    .execute()
    .await
    .map(drop)
}

/// Extends a lease; false when it was lost.
pub async fn renew_lease(
    tx: &mut Tx,
    id: ReleaseId,
    lease: &str,
    until: Timestamp,
) -> Result<bool, StoreError> {
    let renewed = tx
        .query("UPDATE releases SET lease_until = $3 WHERE id = $1 AND lease_owner = $2")
        .bind(id)
        .bind(lease)
        .bind(until)
        .execute()
        .await?;
    Ok(renewed > 0)
}

/// Gives a lease back, so that another worker can go on at once.
pub async fn drop_lease(tx: &mut Tx, id: ReleaseId, lease: &str) -> Result<(), StoreError> {
    tx.query(
        "UPDATE releases SET lease_owner = NULL, lease_until = 0
         WHERE id = $1 AND lease_owner = $2",
    )
    .bind(id)
    .bind(lease)
    .execute()
    .await
    .map(drop)
}

/// Ends every lease; for a server that knows that no other one exists.
pub async fn drop_all_leases(tx: &mut Tx) -> Result<u64, StoreError> {
    tx.query(
        "UPDATE releases SET lease_owner = NULL, lease_until = 0
         WHERE finished_at IS NULL AND lease_until > 0",
    )
    .execute()
    .await
}

/// Whether a project has a release that is not finished.
pub async fn has_unfinished(db: &Db, project: ProjectId) -> Result<bool, StoreError> {
    let found: Option<ReleaseId> = db
        .read("SELECT id FROM releases WHERE project_id = $1 AND finished_at IS NULL LIMIT 1")
        .bind(project)
        .fetch_optional()
        .await?;
    Ok(found.is_some())
}

/// Unfinished releases whose deadline has passed.
pub async fn overdue_releases(
    db: &Db,
    now: Timestamp,
    limit: u32,
) -> Result<Vec<OverdueRow>, StoreError> {
    db.read(
        "SELECT id, state, created_at FROM releases
         WHERE finished_at IS NULL AND deadline <= $1 ORDER BY id LIMIT $2",
    )
    .bind(now)
    .bind(limit)
    .fetch_all()
    .await
}

/// Moves a release to another unfinished state; none when it is not in `from` or the lease was lost.
pub async fn advance_release(
    tx: &mut Tx,
    id: ReleaseId,
    (from, to): (ReleaseState, ReleaseState),
    lease: &str,
    deadline: Timestamp,
) -> Result<Option<MovedRow>, StoreError> {
    tx.query(
        "UPDATE releases SET state = $3, deadline = $5, version = version + 1
         WHERE id = $1 AND state = $2 AND lease_owner = $4 RETURNING project_id, number",
    )
    .bind(id)
    .bind(from.as_str())
    .bind(to.as_str())
    .bind(lease)
    .bind(deadline)
    .fetch_optional()
    .await
}

/// How a release ended.
#[derive(Debug)]
pub struct FinishedRelease<'e> {
    /// The terminal state.
    pub state: ReleaseState,
    pub at: Timestamp,
    /// A stable code and words for a person, when it ended badly.
    pub failure: Option<(&'e str, &'e str)>,
}

/// Moves a release to a terminal state; none when it is not in `from`, or `lease` was lost.
///
/// Without a lease it is ended under its worker, whose next transition fails.
pub async fn finish_release(
    tx: &mut Tx,
    id: ReleaseId,
    from: ReleaseState,
    lease: Option<&str>,
    finished: &FinishedRelease<'_>,
) -> Result<Option<MovedRow>, StoreError> {
    let (reason, message) = finished.failure.unzip();
    tx.query(
        "UPDATE releases SET state = $3, finished_at = $4, fail_reason = $5, fail_message = $6,
             lease_owner = NULL, lease_until = 0, version = version + 1
         WHERE id = $1 AND state = $2 AND (CAST($7 AS TEXT) IS NULL OR lease_owner = $7)
         RETURNING project_id, number",
    )
    .bind(id)
    .bind(from.as_str())
    .bind(finished.state.as_str())
    .bind(finished.at)
    .bind(reason)
    .bind(message)
    .bind(lease)
    .fetch_optional()
    .await
}

/// Whether a worker still holds a release that is being built, as the transaction sees it.
pub async fn holds_build(tx: &mut Tx, id: ReleaseId, lease: &str) -> Result<bool, StoreError> {
    let held: Option<i64> = tx
        .query("SELECT version FROM releases WHERE id = $1 AND lease_owner = $2 AND state = $3")
        .bind(id)
        .bind(lease)
        .bind(ReleaseState::Building.as_str())
        .fetch_optional()
        .await?;
    Ok(held.is_some())
}

/// Notes what a release was built to, and how it is served; `origin` are the files it was built from,
/// when they were an artifact as well.
pub async fn set_build(
    tx: &mut Tx,
    id: ReleaseId,
    artifact: ArtifactId,
    origin: Option<ArtifactId>,
    site: Option<&str>,
) -> Result<(), StoreError> {
    tx.query(
        "UPDATE releases SET artifact_id = $2, origin_id = $3, site = $4, version = version + 1
         WHERE id = $1",
    )
    .bind(id)
    .bind(artifact)
    .bind(origin)
    .bind(site)
    .execute()
    .await
    .map(drop)
}

/// Notes which image a release runs, and where that listens.
pub async fn set_image(
    tx: &mut Tx,
    id: ReleaseId,
    image: ReleaseId,
    port: u16,
) -> Result<(), StoreError> {
    tx.query("UPDATE releases SET image_id = $2, port = $3, version = version + 1 WHERE id = $1")
        .bind(id)
        .bind(image)
        .bind(port)
        .execute()
        .await
        .map(drop)
}

/// Stores the environment of a release's instances, unless there is one already; false when the lease
/// was lost.
pub async fn set_env(
    tx: &mut Tx,
    id: ReleaseId,
    lease: &str,
    env: &[u8],
) -> Result<bool, StoreError> {
    let set = tx
        .query("UPDATE releases SET env = COALESCE(env, $3) WHERE id = $1 AND lease_owner = $2")
        .bind(id)
        .bind(lease)
        .bind(env)
        .execute()
        .await?;
    Ok(set > 0)
}
