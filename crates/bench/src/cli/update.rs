//! A folder of 1,000 files that the server has: deployed as it is, and with one file changed.

use super::client::{Client, time};
use super::folder::Folder;
use super::relay::Relay;
use crate::http::Connection;
use crate::installation::{Running, Site};
use crate::report::{Row, Target, Unit};
use crate::stats::median;
use crate::suite::Bench;
use anyhow::{bail, ensure};
use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

const FILES: usize = 1000;
const SIZE: usize = 20 << 10;
/// Besides hashing: the start of the program, the requests, and what the server does.
const UNCHANGED_MILLIS: f64 = 150.0;
const CHANGED_MILLIS: f64 = 400.0;
const TIMEOUT: Duration = Duration::from_secs(30);
const POLL_INTERVAL: Duration = Duration::from_millis(1);
const PROJECT: &str = "cli-update";

pub(super) fn run(bench: &mut Bench<'_>) -> anyhow::Result<()> {
    let site = Site::new(bench, "update")?;
    let server = site.serve_everywhere(bench)?;
    server.create_project(PROJECT)?;
    let folder = Folder::create(&site.directory.join("site"), FILES, SIZE, 1)?;
    let binary = bench.options.server.clone();
    let client = Client::new(&binary, site.directory.clone(), &server, PROJECT);
    client.deploy(&folder.path)?;

    count_requests(bench, &client, &folder, &server)?;
    let start = repeat(bench, || time(Command::new(&binary).arg("--version")))?;
    let row = Row::fact("start of the program", start, Unit::Milliseconds);
    bench.report.add(row.note("estrade --version"));
    let hashing = repeat(bench, || time(Command::new("b3sum").args(&folder.files)))?;
    let name = format!("b3sum of {FILES} files × {} KiB (h)", SIZE >> 10);
    bench
        .report
        .add(Row::fact(name, hashing, Unit::Milliseconds));
    let unchanged = repeat(bench, || client.deploy(&folder.path))?;
    let row = Row::judged(
        "an unchanged folder, until the command ends",
        unchanged,
        Unit::Milliseconds,
        Target::AtMost(3.0 * hashing + UNCHANGED_MILLIS),
    );
    bench.report.add(row.note("median; at most 3 h + 150 ms"));

    let mut changed = Vec::new();
    for round in 0..bench.options.rounds {
        changed.push(change(&client, &folder, &server, round)?);
    }
    let row = Row::judged(
        "one changed file, until visitors get it",
        median(changed.iter().map(|(live, _)| *live)),
        Unit::Milliseconds,
        Target::AtMost(CHANGED_MILLIS),
    );
    bench
        .report
        .add(row.note("median, from the start of the command"));
    let ended = median(changed.iter().map(|(_, ended)| *ended));
    let row = Row::fact(
        "one changed file, until the command ends",
        ended,
        Unit::Milliseconds,
    );
    bench.report.add(row.note("median"));
    server.child.stop()
}

/// The median of some rounds, after one that does not count.
fn repeat(
    bench: &Bench<'_>,
    mut measure: impl FnMut() -> anyhow::Result<f64>,
) -> anyhow::Result<f64> {
    measure()?;
    let rounds = (0..bench.options.rounds).map(|_| measure());
    Ok(median(rounds.collect::<anyhow::Result<Vec<_>>>()?))
}

/// The server is told of all files in one request, and sent none.
fn count_requests(
    bench: &mut Bench<'_>,
    client: &Client<'_>,
    folder: &Folder,
    server: &Running,
) -> anyhow::Result<()> {
    let relay = Relay::start(server.platform)?;
    client.deploy_through(&folder.path, relay.address)?;
    let requests = relay.requests();
    let digests = format!("POST /v2/projects/{PROJECT}/releases");
    let count = requests.iter().filter(|it| **it == digests).count();
    ensure!(count > 0, "the relay saw no release: {requests:?}");
    let sent = requests.iter().filter(|it| it.starts_with("PUT ")).count();
    ensure!(sent == 0, "an unchanged folder was sent: {requests:?}");
    let row = Row::judged(
        "requests with digests, of an unchanged folder",
        count as f64,
        Unit::Count,
        Target::AtMost(1.0),
    );
    let note = format!("of {} requests of the command", requests.len());
    bench.report.add(row.note(note));
    Ok(())
}

/// Changes one file and deploys: milliseconds until it is live, and until the command ends.
fn change(
    client: &Client<'_>,
    folder: &Folder,
    server: &Running,
    round: usize,
) -> anyhow::Result<(f64, f64)> {
    let file = &folder.files[FILES / 2];
    let marker = format!("round {round}");
    fs::write(file, &marker)?;
    let path = file.strip_prefix(&folder.path)?.display().to_string();
    let look = format!(
        "GET /{path} HTTP/1.1\r\nHost: {PROJECT}.localhost\r\nAccept-Encoding: identity\r\n\r\n"
    );
    let mut visitor = Connection::open(server.edge)?;
    ensure!(visitor.exchange(&look)?.body != marker.as_bytes());
    let began = Instant::now();
    let millis = || began.elapsed().as_secs_f64() * 1000.0;
    let command = client.start(&folder.path)?;
    let live = loop {
        let page = visitor.exchange(&look)?;
        if page.status == 200 && page.body == marker.as_bytes() {
            break millis();
        }
        if began.elapsed() > TIMEOUT {
            bail!("{marker} does not go live");
        }
        // Asking without a pause would take a core from what is measured.
        std::thread::sleep(POLL_INTERVAL);
    };
    let output = command.wait_with_output()?;
    let ended = millis();
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{}: {said}", output.status);
    Ok((live, ended))
}
