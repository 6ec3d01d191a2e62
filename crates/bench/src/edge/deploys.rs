//! From the last byte of a request until clients get it: a release, a small change, a roll-back.

use crate::disk;
use crate::http::{self, Connection};
use crate::installation::{Running, Site};
use crate::random::Random;
use crate::report::{Row, Target, Unit};
use crate::stats::median;
use crate::suite::Bench;
use anyhow::{bail, ensure};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

const FILES: usize = 200;
const SIZE: usize = 20 << 10;
/// Files of the release that is changed in one place.
const MANY: usize = 1000;
const ROUNDS: usize = 15;
const TIMEOUT: Duration = Duration::from_secs(30);
const POLL_INTERVAL: Duration = Duration::from_micros(200);
const HOST: &str = "deploys.localhost";

pub(super) fn run(bench: &mut Bench<'_>) -> anyhow::Result<()> {
    let site = Site::new(bench, "deploys")?;
    let server = site.serve_everywhere(bench)?;
    server.create_project("deploys")?;
    let fsync = disk::fsync_millis(&site.directory, 200)?;
    bench
        .report
        .add(Row::fact("disk: one fsync (f)", fsync, Unit::Milliseconds));

    let mut took = Vec::new();
    for number in 0..ROUNDS {
        took.push(whole(&server, number)?);
    }
    let name = format!("{FILES} files × {} KiB live", SIZE >> 10);
    let row = Row::judged(
        name,
        median(took),
        Unit::Milliseconds,
        Target::AtMost(60.0 + 4.0 * fsync),
    );
    bench
        .report
        .add(row.note("median, from the last byte of the request; at most 60 ms + 4 f"));

    let row = Row::judged(
        "one changed file of 1,000, by digests",
        change(&server)?,
        Unit::Milliseconds,
        Target::AtMost(10.0 + 4.0 * fsync),
    );
    bench.report.add(row.note("median; at most 10 ms + 4 f"));
    let row = Row::judged(
        "a roll-back",
        roll_back(&server)?,
        Unit::Milliseconds,
        Target::AtMost(2.0 + 3.0 * fsync),
    );
    bench.report.add(row.note("median; at most 2 ms + 3 f"));
    server.child.stop()
}

/// Text that is different in every release.
fn text(seed: usize, size: usize) -> String {
    Random::new(seed as u64 + 1).text(size)
}

fn whole(server: &Running, number: usize) -> anyhow::Result<f64> {
    let marker = format!("whole {number}");
    let file = |file: usize| json!({"path": format!("f{file}.html"), "data": text(number * FILES + file, SIZE)});
    let files = (0..FILES).map(file);
    let files: Vec<_> = files
        .chain([json!({"path": "marker.txt", "data": marker})])
        .collect();
    let (path, body) = ("/v2/projects/deploys/releases", json!({ "files": files }));
    time_until(server, path, Some(&body), 201, &marker)
}

fn change(server: &Running) -> anyhow::Result<f64> {
    let content = |file: usize| text(9_000_000 + file, 2000);
    let entry = |path: String, data: &str| json!({"path": path, "digest": blake3::hash(data.as_bytes()).to_string(), "size": data.len()});
    let same: Vec<Value> = (1..MANY)
        .map(|file| entry(format!("f{file}.html"), &content(file)))
        .collect();
    let first: Vec<_> = (1..MANY)
        .map(|file| json!({"path": format!("f{file}.html"), "data": content(file)}))
        .collect();
    let first = first
        .into_iter()
        .chain([json!({"path": "marker.txt", "data": "start"})]);
    let body = json!({ "files": first.collect::<Vec<_>>() });
    time_until(
        server,
        "/v2/projects/deploys/releases",
        Some(&body),
        201,
        "start",
    )?;
    let mut took = Vec::new();
    for number in 0..ROUNDS {
        let marker = format!("change {number}");
        let digest = blake3::hash(marker.as_bytes()).to_string();
        let path = format!("/v2/projects/deploys/blobs/{digest}");
        let put = http::send(
            server.platform,
            &http::upload(&path, &server.token, &marker),
        )?;
        ensure!(put.status < 300, "status {}", put.status);
        let files: Vec<_> = same
            .iter()
            .cloned()
            .chain([entry("marker.txt".into(), &marker)])
            .collect();
        let body = json!({ "files": files });
        took.push(time_until(
            server,
            "/v2/projects/deploys/releases",
            Some(&body),
            201,
            &marker,
        )?);
    }
    Ok(median(took))
}

fn roll_back(server: &Running) -> anyhow::Result<f64> {
    let mut releases = Vec::new();
    for marker in ["red", "blue"] {
        releases.push((marker, server.deploy("deploys", &[("marker.txt", marker)])?));
    }
    let mut took = Vec::new();
    for number in 0..ROUNDS {
        let (marker, release) = &releases[number % 2];
        let path = format!("/v1/releases/{release}/rollback");
        took.push(time_until(server, &path, None, 200, marker)?);
    }
    Ok(median(took))
}

/// Milliseconds from the last byte of a POST until clients read the marker.
fn time_until(
    server: &Running,
    path: &str,
    body: Option<&Value>,
    status: u16,
    marker: &str,
) -> anyhow::Result<f64> {
    let text = body.map(Value::to_string);
    let request = http::request("POST", path, Some(&server.token), text.as_deref());
    let mut client = Connection::open(server.edge)?;
    let look = format!("GET /marker.txt HTTP/1.1\r\nHost: {HOST}\r\n\r\n");
    client.exchange(&look)?;
    let mut api = Connection::open(server.platform)?;
    api.write(&request)?;
    let began = Instant::now();
    let response = api.read()?;
    ensure!(
        response.status == status,
        "status {}: {}",
        response.status,
        String::from_utf8_lossy(&response.body)
    );
    loop {
        let page = client.exchange(&look)?;
        if page.status == 200 && page.body == marker.as_bytes() {
            return Ok(began.elapsed().as_secs_f64() * 1000.0);
        }
        if began.elapsed() > TIMEOUT {
            bail!("{marker} does not go live");
        }
        // Asking without a pause would take a core from what is measured.
        std::thread::sleep(POLL_INTERVAL);
    }
}
