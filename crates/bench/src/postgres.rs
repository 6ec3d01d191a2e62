//! The PostgreSQL that `./bench` starts for the suites that need one.

use anyhow::{Context, ensure};
use std::process::Command;

/// A database of its own.
pub(crate) fn create_database(name: &str) -> anyhow::Result<String> {
    let server = std::env::var("ESTRADE_TEST_POSTGRES");
    let server = server.context("ESTRADE_TEST_POSTGRES is not set; ./bench sets it")?;
    let name = format!("bench_{name}");
    query(&server, &format!("DROP DATABASE IF EXISTS {name}"))?;
    query(&server, &format!("CREATE DATABASE {name}"))?;
    let (server, _) = server.rsplit_once('/').context("no database")?;
    Ok(format!("{server}/{name}"))
}

/// What comes to a database some minutes after it was filled: statistics for its plans, and pages that need no clean-up.
/// As `pgbench` does before it measures, so that autovacuum does not run beside what is measured.
pub(crate) fn settle(url: &str) -> anyhow::Result<()> {
    query(url, "VACUUM ANALYZE")?;
    query(url, "CHECKPOINT").map(drop)
}

/// Runs a statement; returns what it says as text.
pub(crate) fn query(url: &str, sql: &str) -> anyhow::Result<String> {
    let run = Command::new("psql")
        .args([
            url,
            "--quiet",
            "--tuples-only",
            "--no-align",
            "--command",
            sql,
        ])
        .output()
        .context("psql")?;
    let error = String::from_utf8_lossy(&run.stderr);
    ensure!(run.status.success(), "psql: {}: {error}", run.status);
    Ok(String::from_utf8(run.stdout)?.trim().to_owned())
}
