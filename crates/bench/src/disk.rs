//! What this disk can do: commits of one SQLite connection, and one fsync.

use crate::stats::median;
use rusqlite::Connection;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

/// Commits per second of one thread: WAL, `synchronous=FULL`, one small insert each.
pub(crate) fn commits_per_second(directory: &Path, span: Duration) -> anyhow::Result<f64> {
    let database = Connection::open(directory.join("commits.db"))?;
    database.pragma_update(None, "journal_mode", "WAL")?;
    database.pragma_update(None, "synchronous", "FULL")?;
    database.execute_batch("CREATE TABLE IF NOT EXISTS t (id INTEGER PRIMARY KEY, text TEXT)")?;
    let mut insert = database.prepare("INSERT INTO t (text) VALUES ('one tiny row')")?;
    let (began, mut count) = (Instant::now(), 0.0);
    while began.elapsed() < span {
        insert.execute([])?;
        count += 1.0;
    }
    Ok(count / began.elapsed().as_secs_f64())
}

/// How long one fsync takes after a page was appended, in milliseconds.
pub(crate) fn fsync_millis(directory: &Path, times: usize) -> anyhow::Result<f64> {
    let mut file = File::create(directory.join("fsync"))?;
    let mut took = Vec::with_capacity(times);
    for _ in 0..times {
        file.write_all(&[1; 4096])?;
        let began = Instant::now();
        file.sync_all()?;
        took.push(began.elapsed().as_secs_f64() * 1000.0);
    }
    Ok(median(took))
}
