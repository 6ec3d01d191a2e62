//! From the moment an instance begins to listen until clients get it.

use super::engine::Engine;
use super::{Stage, release, shell, stage};
use crate::http;
use crate::installation::Running;
use crate::random::Random;
use crate::report::{Row, Target, Unit};
use crate::stats::median;
use crate::suite::Bench;
use anyhow::{Context, ensure};
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

const ROUNDS: usize = 15;
const TIMEOUT: Duration = Duration::from_mins(1);
const POLL_INTERVAL: Duration = Duration::from_millis(1);

pub(super) fn run(bench: &mut Bench<'_>) -> anyhow::Result<()> {
    let engine = Engine::find()?;
    let Stage { things, server } = stage(bench, &engine, "ready", true)?;
    server.create("ready", "docker", "nano")?;
    let (mut random, mut took) = (Random::new(5), Vec::new());
    for _ in 0..ROUNDS {
        // Anywhere between two looks of whoever waits for it.
        took.push(listening(&server, 300 + random.next() % 1700)?);
        things.wait_for(1)?;
    }
    server.child.stop()?;
    let slowest = took.iter().copied().fold(0.0, f64::max);
    let row = Row::judged(
        "an instance listens to first 200 over the edge",
        median(took),
        Unit::Milliseconds,
        Target::AtMost(150.0),
    );
    bench.report.add(row.note(format!(
        "median of {ROUNDS}, which begin to listen after 0.3 to 2 s; the slowest {slowest:.0} ms"
    )));
    Ok(())
}

/// Milliseconds from the time that an app has written down until clients read it.
fn listening(server: &Running, after: u64) -> anyhow::Result<f64> {
    let began = now()?;
    let seconds = Duration::from_millis(after).as_secs_f64();
    let command = shell(&format!(
        "sleep {seconds} && date +%s.%N >/tmp/www/index.html"
    ));
    let path = "/v2/projects/ready/releases";
    let body = release(&command).to_string();
    let request = http::request("POST", path, Some(&server.token), Some(&body));
    let response = http::send(server.platform, &request)?;
    ensure!(response.status == 201, "status {}", response.status);
    let (request, asked) = (
        "GET / HTTP/1.1\r\nHost: ready.localhost\r\nConnection: close\r\n\r\n",
        Instant::now(),
    );
    loop {
        let page = http::send(server.edge, request)?;
        let seen = now()?;
        let since: Option<f64> = std::str::from_utf8(&page.body)
            .ok()
            .and_then(|text| text.trim().parse().ok());
        // The release before it has an earlier time.
        if let (200, Some(since)) = (page.status, since.filter(|since| *since > began)) {
            return Ok((seen - since) * 1000.0);
        }
        ensure!(asked.elapsed() < TIMEOUT, "it does not go live");
        sleep(POLL_INTERVAL);
    }
}

/// Seconds since the epoch, as `date` has them.
fn now() -> anyhow::Result<f64> {
    #[expect(
        clippy::disallowed_methods,
        reason = "compared with the clock of another process"
    )]
    let now = SystemTime::now();
    let since = now.duration_since(UNIX_EPOCH);
    Ok(since.context("a clock before the epoch")?.as_secs_f64())
}
