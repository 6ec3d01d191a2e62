//! What instances wrote, in blocks of many lines. What is in a block is the services' business.

use crate::{Db, Record, Row, StoreError, Tx, Value};
use estrade_model::{ProjectId, ReleaseId, Timestamp};

/// How far apart the first and the last line of a block may be, in nanoseconds: a query for a time reads
/// the blocks of this much around it.
pub const SPAN: i64 = 3_600_000_000_000;

/// What a block takes besides its contents: its row and its places in indexes.
pub const ROW_BYTES: i64 = 300;

/// A block that is to be written.
#[derive(Debug, Clone)]
pub struct NewLogBlock {
    pub project: ProjectId,
    pub release: ReleaseId,
    /// Of which instance, as the engine calls it.
    pub instance: String,
    /// The earliest moment of a line, in nanoseconds.
    pub first_at: i64,
    /// The latest moment of a line; at most [`SPAN`] later.
    pub last_at: i64,
    pub lines: u32,
    pub data: Vec<u8>,
}

/// A block as it is kept.
#[derive(Debug, Clone)]
pub struct LogBlock {
    /// Rises within a project in the order of commits.
    pub number: i64,
    pub release: ReleaseId,
    /// Of which instance, as the engine calls it.
    pub instance: String,
    /// The earliest moment of a line, in nanoseconds.
    pub first_at: i64,
    /// The latest moment of a line.
    pub last_at: i64,
    pub data: Vec<u8>,
}

impl Record for LogBlock {
    fn from_row(row: &mut Row<'_>) -> Result<Self, StoreError> {
        Ok(Self {
            number: row.take()?,
            release: row.take()?,
            instance: row.take()?,
            first_at: row.take()?,
            last_at: row.take()?,
            data: row.take()?,
        })
    }
}

/// Writes a block; false: its project is gone.
pub async fn insert_block(
    tx: &mut Tx,
    block: &NewLogBlock,
    now: Timestamp,
) -> Result<bool, StoreError> {
    let last: Option<Option<i64>> = tx
        .query(
            "SELECT (SELECT MAX(number) FROM log_blocks WHERE project_id = $1)
             FROM projects WHERE id = $1",
        )
        .bind(block.project)
        .fetch_optional()
        .await?;
    let Some(last) = last else {
        return Ok(false);
    };
    // Not from 1: when all blocks were removed, the next one must still sort behind them.
    let number = last.map_or(0, |last| last + 1).max(now.millis());
    put_block(tx, block, number).await?;
    Ok(true)
}

async fn put_block(tx: &mut Tx, block: &NewLogBlock, number: i64) -> Result<(), StoreError> {
    let length = i64::try_from(block.data.len()).map_err(StoreError::bug)?;
    tx.query(
        "INSERT INTO log_blocks
             (project_id, number, release_id, instance, first_at, last_at, lines, size, data)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)",
    )
    .bind(block.project)
    .bind(number)
    .bind(block.release)
    .bind(&block.instance)
    .bind(block.first_at)
    .bind(block.last_at)
    .bind(block.lines)
    .bind(length + ROW_BYTES)
    .bind(block.data.as_slice())
    .execute()
    .await
    .map(drop)
}

/// The moment of the last line that is kept of an instance.
pub async fn last_line_at(db: &Db, instance: &str) -> Result<Option<i64>, StoreError> {
    db.read("SELECT MAX(last_at) FROM log_blocks WHERE instance = $1")
        .bind(instance)
        .fetch_one()
        .await
}

/// The blocks of an instance that have lines from this moment on, in the order in which they were written.
pub async fn list_instance_blocks(
    db: &Db,
    instance: &str,
    from: i64,
) -> Result<Vec<LogBlock>, StoreError> {
    db.read(
        "SELECT number, release_id, instance, first_at, last_at, data FROM log_blocks
         WHERE instance = $1 AND last_at >= $2 ORDER BY number",
    )
    .bind(instance)
    .bind(from)
    .fetch_all()
    .await
}

/// Which blocks of a project to read.
#[derive(Debug, Clone, Copy)]
pub struct BlockRange {
    pub project: ProjectId,
    /// Only of this release.
    pub release: Option<ReleaseId>,
    /// Those that have lines from this moment on...
    pub start: i64,
    /// ...and up to this one.
    pub end: i64,
}

/// A page of blocks by when they end, latest first, after the one with this end and number.
pub async fn list_blocks_backward(
    db: &Db,
    range: &BlockRange,
    after: Option<(i64, i64)>,
    count: u32,
) -> Result<Vec<LogBlock>, StoreError> {
    let (at, number) = after.unwrap_or((i64::MAX, i64::MAX));
    db.read(
        "SELECT number, release_id, instance, first_at, last_at, data FROM log_blocks
         WHERE project_id = $1 AND last_at >= $2 AND last_at <= $3 AND first_at <= $4
             AND (last_at, number) < ($5, $6) AND release_id = COALESCE($7, release_id)
         ORDER BY last_at DESC, number DESC LIMIT $8",
    )
    .bind(range.project)
    .bind(range.start)
    .bind(range.end.saturating_add(SPAN))
    .bind(range.end)
    .bind(at)
    .bind(number)
    .bind(range.release)
    .bind(count)
    .fetch_all()
    .await
}

/// A page of blocks by when they begin, earliest first, after the one with this beginning and number.
pub async fn list_blocks_forward(
    db: &Db,
    range: &BlockRange,
    after: Option<(i64, i64)>,
    count: u32,
) -> Result<Vec<LogBlock>, StoreError> {
    let (at, number) = after.unwrap_or((i64::MIN, i64::MIN));
    db.read(
        "SELECT number, release_id, instance, first_at, last_at, data FROM log_blocks
         WHERE project_id = $1 AND first_at >= $2 AND first_at <= $3 AND last_at >= $4
             AND (first_at, number) > ($5, $6) AND release_id = COALESCE($7, release_id)
         ORDER BY first_at, number LIMIT $8",
    )
    .bind(range.project)
    .bind(range.start.saturating_sub(SPAN))
    .bind(range.end)
    .bind(range.start)
    .bind(at)
    .bind(number)
    .bind(range.release)
    .bind(count)
    .fetch_all()
    .await
}

/// A page of blocks in the order in which they were written, above a number.
pub async fn list_blocks_above(
    db: &Db,
    project: ProjectId,
    number: i64,
    count: u32,
) -> Result<Vec<LogBlock>, StoreError> {
    db.read(
        "SELECT number, release_id, instance, first_at, last_at, data FROM log_blocks
         WHERE project_id = $1 AND number > $2 ORDER BY number LIMIT $3",
    )
    .bind(project)
    .bind(number)
    .bind(count)
    .fetch_all()
    .await
}

/// A page of blocks against the order in which they were written, below a number.
pub async fn list_blocks_below(
    db: &Db,
    project: ProjectId,
    number: i64,
    count: u32,
) -> Result<Vec<LogBlock>, StoreError> {
    db.read(
        "SELECT number, release_id, instance, first_at, last_at, data FROM log_blocks
         WHERE project_id = $1 AND number < $2 ORDER BY number DESC LIMIT $3",
    )
    .bind(project)
    .bind(number)
    .bind(count)
    .fetch_all()
    .await
}

/// How large a block is, and where it belongs.
#[derive(Debug, Clone)]
pub struct BlockSize {
    pub instance: String,
    pub number: i64,
    pub release: ReleaseId,
    /// The earliest moment of a line, in nanoseconds.
    pub first_at: i64,
    /// The latest moment of a line.
    pub last_at: i64,
    /// What it takes, its row included.
    pub size: i64,
}

impl Record for BlockSize {
    fn from_row(row: &mut Row<'_>) -> Result<Self, StoreError> {
        Ok(Self {
            instance: row.take()?,
            number: row.take()?,
            release: row.take()?,
            first_at: row.take()?,
            last_at: row.take()?,
            size: row.take()?,
        })
    }
}

/// The sizes of a project's blocks that end in a span of time, by instance and in the order in which they
/// were written.
pub async fn list_sizes(
    db: &Db,
    project: ProjectId,
    times: std::ops::Range<i64>,
    limit: u32,
) -> Result<Vec<BlockSize>, StoreError> {
    db.read(
        "SELECT instance, number, release_id, first_at, last_at, size FROM log_blocks
         WHERE project_id = $1 AND last_at >= $2 AND last_at < $3
         ORDER BY instance, number LIMIT $4",
    )
    .bind(project)
    .bind(times.start)
    .bind(times.end)
    .bind(limit)
    .fetch_all()
    .await
}

/// The blocks of an instance from one number to another.
pub async fn list_blocks_of(
    db: &Db,
    project: ProjectId,
    instance: &str,
    (from, to): (i64, i64),
) -> Result<Vec<LogBlock>, StoreError> {
    db.read(
        "SELECT number, release_id, instance, first_at, last_at, data FROM log_blocks
         WHERE project_id = $1 AND instance = $2 AND number >= $3 AND number <= $4
         ORDER BY number",
    )
    .bind(project)
    .bind(instance)
    .bind(from)
    .bind(to)
    .fetch_all()
    .await
}

/// Puts blocks with these numbers in the place of all blocks of their instance from one number to another, if
/// those are as many as when the new ones were made of them.
pub async fn replace_blocks(
    tx: &mut Tx,
    blocks: &[(i64, NewLogBlock)],
    (from, to): (i64, i64),
    count: usize,
) -> Result<(), StoreError> {
    let Some((_, block)) = blocks.first() else {
        return Ok(());
    };
    let found: i64 = tx
        .query(
            "SELECT COUNT(*) FROM log_blocks
             WHERE project_id = $1 AND instance = $2 AND number >= $3 AND number <= $4",
        )
        .bind(block.project)
        .bind(&block.instance)
        .bind(from)
        .bind(to)
        .fetch_one()
        .await?;
    if u64::try_from(found) != Ok(count as u64) {
        return Ok(());
    }
    tx.query(
        "DELETE FROM log_blocks
         WHERE project_id = $1 AND instance = $2 AND number >= $3 AND number <= $4",
    )
    .bind(block.project)
    .bind(&block.instance)
    .bind(from)
    .bind(to)
    .execute()
    .await?;
    for (number, block) in blocks {
        put_block(tx, block, *number).await?;
    }
    Ok(())
}

/// A project that has logs.
#[derive(Debug, Clone)]
pub struct LoggedProject {
    pub id: ProjectId,
    pub plan: String,
    /// How many bytes its logs take.
    pub size: i64,
}

impl Record for LoggedProject {
    fn from_row(row: &mut Row<'_>) -> Result<Self, StoreError> {
        Ok(Self {
            id: row.take()?,
            plan: row.take()?,
            size: row.take()?,
        })
    }
}

/// The next project that has logs, in the order of ids.
pub async fn next_logged_project(
    db: &Db,
    after: Option<ProjectId>,
) -> Result<Option<LoggedProject>, StoreError> {
    db.read(
        "SELECT p.id, p.plan,
                (SELECT CAST(SUM(size) AS BIGINT) FROM log_blocks b WHERE b.project_id = p.id)
         FROM projects p
         WHERE p.id = (SELECT MIN(project_id) FROM log_blocks WHERE project_id > $1)",
    )
    .bind(after.map_or(Value::Text(String::new()), Value::from))
    .fetch_optional()
    .await
}

/// Removes up to `most` blocks of a project that end before a moment; how many that were.
pub async fn prune_by_age(
    db: &Db,
    project: ProjectId,
    before: i64,
    limit: u32,
) -> Result<u64, StoreError> {
    db.transact(move |tx| {
        Box::pin(async move {
            tx.query(
                "DELETE FROM log_blocks WHERE project_id = $1 AND number IN
                 (SELECT number FROM log_blocks WHERE project_id = $1 AND last_at < $2
                  ORDER BY last_at LIMIT $3)",
            )
            .bind(project)
            .bind(before)
            .bind(limit)
            .execute()
            .await
        })
    })
    .await
}

/// Removes those of the oldest `most` blocks of a project that it takes to free so many bytes; how many
/// bytes they had.
pub async fn prune_by_size(
    db: &Db,
    project: ProjectId,
    bytes: i64,
    limit: u32,
) -> Result<i64, StoreError> {
    db.transact(move |tx| {
        Box::pin(async move {
            let oldest: Vec<Oldest> = tx
                .query(
                    "SELECT last_at, number, size FROM log_blocks WHERE project_id = $1
                     ORDER BY last_at, number LIMIT $2",
                )
                .bind(project)
                .bind(limit)
                .fetch_all()
                .await?;
            let (mut freed, mut last) = (0, None);
            for block in oldest {
                if freed >= bytes {
                    break;
                }
                freed += block.size;
                last = Some((block.last_at, block.number));
            }
            let Some((at, number)) = last else {
                return Ok(0);
            };
            tx.query(
                "DELETE FROM log_blocks
                 WHERE project_id = $1 AND (last_at, number) <= ($2, $3)",
            )
            .bind(project)
            .bind(at)
            .bind(number)
            .execute()
            .await?;
            Ok::<_, StoreError>(freed)
        })
    })
    .await
}

struct Oldest {
    last_at: i64,
    number: i64,
    size: i64,
}

impl Record for Oldest {
    fn from_row(row: &mut Row<'_>) -> Result<Self, StoreError> {
        Ok(Self {
            last_at: row.take()?,
            number: row.take()?,
            size: row.take()?,
        })
    }
}
