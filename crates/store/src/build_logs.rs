//! The build logs of releases, line by line.

use crate::{Db, Record, Row, StoreError, Tx, Value};
use estrade_model::{ReleaseId, Timestamp};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LineRow {
    /// When; unique and rising within a release.
    pub at: Timestamp,
    /// The text, without its line end.
    pub line: String,
}

impl Record for LineRow {
    fn from_row(row: &mut Row<'_>) -> Result<Self, StoreError> {
        Ok(Self {
            at: row.take()?,
            line: row.take()?,
        })
    }
}

/// Adds lines after those that a release has.
pub async fn append_lines(
    tx: &mut Tx,
    release: ReleaseId,
    lines: &[String],
    now: Timestamp,
) -> Result<(), StoreError> {
    if lines.is_empty() {
        return Ok(());
    }
    let last: Option<i64> = tx
        .query("SELECT MAX(at) FROM build_logs WHERE release_id = $1")
        .bind(release)
        .fetch_one()
        .await?;
    // Several lines of one millisecond, and clocks that go back, must not make two times alike.
    let first = now.millis().max(last.map_or(0, |last| last + 1));
    let row =
        |(at, line): (i64, &String)| -> Vec<Value> { vec![release.into(), at.into(), line.into()] };
    tx.execute_many(
        "INSERT INTO build_logs (release_id, at, line) VALUES ($1, $2, $3)",
        (first..).zip(lines).map(row).collect(),
    )
    .await
}

/// The lines of a release strictly after `since`, oldest first, at most `count` of them.
pub async fn list_lines(
    db: &Db,
    release: ReleaseId,
    since: Option<Timestamp>,
    count: u32,
) -> Result<Vec<LineRow>, StoreError> {
    db.read(
        "SELECT at, line FROM build_logs WHERE release_id = $1 AND at > $2 ORDER BY at LIMIT $3",
    )
    .bind(release)
    .bind(since.map_or(i64::MIN, Timestamp::millis))
    .bind(count)
    .fetch_all()
    .await
}
