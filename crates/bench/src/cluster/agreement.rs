//! How soon the third node serves what the first has deployed, and refuses a key that the first has deleted.

use super::Cluster;
use crate::http;
use crate::installation::Running;
use crate::report::{Row, Target, Unit};
use crate::stats::percentile;
use crate::suite::Bench;
use anyhow::{Context, ensure};
use serde_json::json;
use std::time::{Duration, Instant};

const PROJECT: &str = "bench-agreement";
/// Of each kind, for each round.
const PER_ROUND: usize = 40;
/// 99 of 100 within so many milliseconds.
const MAX_P99: f64 = 1000.0;
/// How long one may take at all.
const MAX_WAIT: Duration = Duration::from_secs(20);

pub(super) fn run(bench: &mut Bench<'_>) -> anyhow::Result<()> {
    let cluster = Cluster::start(bench, "agreement")?;
    let (a, c) = (&cluster.nodes[0], &cluster.nodes[2]);
    a.create_project(PROJECT)?;
    let count = bench.options.rounds * PER_ROUND;
    let (mut served, mut refused) = (Vec::new(), Vec::new());
    for number in 0..count {
        served.push(deploy(a, c, number)?);
        refused.push(revoke(a, c, number)?);
    }
    report(bench, "READY on one node until served by another", served);
    report(
        bench,
        "key deleted on one node until refused by another",
        refused,
    );
    cluster.stop()
}

/// Asks until the answer is the one; when it was, in nanoseconds.
fn time_until(mut ask: impl FnMut() -> anyhow::Result<bool>) -> anyhow::Result<u64> {
    let began = Instant::now();
    while !ask()? {
        ensure!(began.elapsed() < MAX_WAIT, "the other node does not follow");
    }
    Ok(u64::try_from(began.elapsed().as_nanos())?)
}

fn deploy(a: &Running, c: &Running, number: usize) -> anyhow::Result<u64> {
    let page = format!("<h1>{number}</h1>");
    a.deploy(PROJECT, &[("index.html", &page)])?;
    let visit = format!("GET / HTTP/1.1\r\nhost: {PROJECT}.localhost\r\n\r\n");
    let mut connection = http::Connection::open(c.edge)?;
    time_until(|| Ok(connection.exchange(&visit)?.body == page.as_bytes()))
}

fn revoke(a: &Running, c: &Running, number: usize) -> anyhow::Result<u64> {
    let body = json!({"name": format!("revoked-{number}"), "workspaces": ["main"]});
    let made = http::post(a.ai, "/v1/keys", &a.token, &body)?;
    ensure!(made.status == 201, "a key: status {}", made.status);
    let made = made.json()?;
    let (id, key) = (made["_id"].as_str(), made["key"].as_str());
    let (id, key) = id.zip(key).context("no key")?;
    let call = json!({"model": "estrade/echo", "messages": [{"role": "user", "content": "hello"}]});
    let path = "/v1/chat/completions";
    let call = http::request("POST", path, Some(key), Some(&call.to_string()));
    let status = |node: &Running| anyhow::Ok(http::send(node.ai, &call)?.status);
    ensure!(status(c)? == 200, "the key does not work on the other node");
    let delete = http::request("DELETE", &format!("/v1/keys/{id}"), Some(&a.token), None);
    // Its 204 has no length to be read by, so what the node does says when it is done.
    let mut deletion = http::Connection::open(a.ai)?;
    deletion.write(&delete)?;
    time_until(|| Ok(status(a)? == 401))?;
    time_until(|| Ok(status(c)? == 401))
}

fn report(bench: &mut Bench<'_>, name: &str, mut times: Vec<u64>) {
    times.sort_unstable();
    let millis = |percent| percentile(&times, percent) as f64 / 1e6;
    let row = Row::judged(
        format!("{name}, p99"),
        millis(99),
        Unit::Milliseconds,
        Target::AtMost(MAX_P99),
    );
    bench.report.add(row.note(format!(
        "p50 {:.2} ms, the slowest of {} took {:.2} ms",
        millis(50),
        times.len(),
        millis(100),
    )));
}
