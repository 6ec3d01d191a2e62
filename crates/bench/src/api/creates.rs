//! Durable key creations over HTTP, against what the disk can do.

use crate::disk;
use crate::http;
use crate::installation::{NewKeys, Site};
use crate::load::Sample;
use crate::report::{Row, Target, Unit, thousands};
use crate::stats::median;
use crate::suite::Bench;
use anyhow::ensure;
use serde_json::json;
use std::time::Duration;

const SPAN: Duration = Duration::from_secs(3);
const DISK_SPAN: Duration = Duration::from_secs(1);

pub(super) fn run(bench: &mut Bench<'_>) -> anyhow::Result<()> {
    let site = Site::new(bench, "creates")?;
    // On all cores: the load needs little, and the writer is a thread beside those that answer.
    let server = site.serve_everywhere(bench)?;
    check(&server.token, server.ai)?;

    let mut keys = NewKeys::endless(&server.token, "b");
    let (mut commits, mut fsyncs, mut samples) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..bench.options.rounds {
        commits.push(disk::commits_per_second(&site.directory, DISK_SPAN)?);
        fsyncs.push(disk::fsync_millis(&site.directory, 100)?);
        samples.push(server.measure(server.ai, SPAN, &mut keys)?);
    }
    server.child.stop()?;
    let stored: i64 = site
        .open()?
        .query_row("SELECT count(*) FROM keys", [], |row| row.get(0))?;
    ensure!(
        stored == i64::try_from(keys.made)? + 1,
        "{stored} keys are stored, {} were acknowledged",
        keys.made
    );

    let (commits, fsync) = (median(commits), median(fsyncs));
    let of = |value: fn(&Sample) -> f64| median(samples.iter().map(value));
    bench.report.add(Row::fact(
        "disk: SQLite commits, one thread",
        commits,
        Unit::PerSecond,
    ));
    bench
        .report
        .add(Row::fact("disk: one fsync", fsync, Unit::Milliseconds));
    let target = Target::AtLeast((6.0 * commits).min(6000.0));
    let row = Row::judged(
        "durable key creations",
        of(Sample::rate),
        Unit::PerSecond,
        target,
    );
    bench.report.add(row.note(format!(
        "{} per CPU-second, {} × the disk's commits",
        thousands(of(Sample::per_cpu)),
        thousands(of(Sample::rate) / commits),
    )));
    let target = Target::AtMost((20.0 * fsync).max(15.0));
    let row = Row::judged("… p99", of(|sample| sample.p99), Unit::Milliseconds, target);
    bench
        .report
        .add(row.note(format!("p50 {:.2} ms", of(|sample| sample.p50))));
    Ok(())
}

/// One key is made, and its name cannot be used again.
fn check(token: &str, ai: std::net::SocketAddr) -> anyhow::Result<()> {
    let body = json!({"name": "first", "workspaces": ["main"]});
    let response = http::post(ai, "/v1/keys", token, &body)?;
    ensure!(
        response.status == 201,
        "status {} instead of 201",
        response.status
    );
    let key = response.json()?;
    ensure!(
        key["name"] == "first" && key["key"].is_string(),
        "odd key: {key}"
    );
    let again = http::post(ai, "/v1/keys", token, &body)?;
    ensure!(
        again.status == 409 && again.body.is_empty(),
        "a name was given twice"
    );
    Ok(())
}
