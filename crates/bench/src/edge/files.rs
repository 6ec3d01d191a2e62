//! Files of three sizes on two virtual hosts, beside nginx and caddy.

use super::peers::{self, Peer};
use crate::http;
use crate::installation::Site;
use crate::load::{self, Repeat, Sample};
use crate::random::Random;
use crate::report::{Row, Target, Unit, thousands};
use crate::stats::median;
use crate::suite::Bench;
use anyhow::ensure;
use std::fmt::Write as _;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

const HOSTS: [&str; 2] = ["bench-one.localhost", "bench-two.localhost"];
const SPAN: Duration = Duration::from_millis(1500);

/// A file, and what is asked of its speed.
struct Case {
    name: &'static str,
    file: &'static str,
    size: usize,
    /// Requests per CPU-second against nginx, at least.
    nginx: f64,
    /// The same against caddy.
    caddy: Option<f64>,
}

const CASES: [Case; 3] = [
    Case {
        name: "1 KiB",
        file: "k1.txt",
        size: 1 << 10,
        nginx: 1.0,
        caddy: Some(3.0),
    },
    Case {
        name: "16 KiB",
        file: "k16.txt",
        size: 16 << 10,
        nginx: 1.0,
        caddy: Some(3.0),
    },
    Case {
        name: "1 MiB",
        file: "m1.txt",
        size: 1 << 20,
        nginx: 0.8,
        caddy: None,
    },
];

pub(super) fn run(bench: &mut Bench<'_>) -> anyhow::Result<()> {
    let site = Site::new(bench, "files")?;
    let server = site.serve(bench)?;
    let contents: Vec<String> = CASES.iter().map(|case| text(case.size)).collect();
    for host in HOSTS {
        let project = host.trim_end_matches(".localhost");
        server.create_project(project)?;
        let files: Vec<_> = CASES
            .iter()
            .zip(&contents)
            .map(|(case, content)| (case.file, content.as_str()))
            .collect();
        server.deploy(project, &files)?;
        write_files(&site.directory, host, &contents)?;
    }
    let nginx = peers::nginx(bench, &site.directory, &HOSTS)?;
    let caddy = peers::caddy(bench, &site.directory, &HOSTS)?;
    for (case, content) in CASES.iter().zip(&contents) {
        for address in [server.edge, nginx.address, caddy.address] {
            check(address, case, content)?;
        }
        let mut rounds = Vec::new();
        for _ in 0..bench.options.rounds {
            let ours = server.measure(server.edge, SPAN, &mut traffic(case))?;
            rounds.push((
                ours,
                measure(bench, &nginx, case)?,
                measure(bench, &caddy, case)?,
            ));
        }
        report(bench, case, &rounds);
    }
    server.child.stop()
}

/// Words, so that it is text, but without end repeating.
fn text(size: usize) -> String {
    let mut random = Random::new(7);
    let mut text = String::with_capacity(size + 16);
    while text.len() < size {
        // Writing to a string cannot fail.
        let _ = write!(text, "{:x} ", random.next());
    }
    text.truncate(size);
    text
}

fn write_files(directory: &Path, host: &str, contents: &[String]) -> anyhow::Result<()> {
    let root = peers::root(directory, host);
    fs::create_dir_all(&root)?;
    for (case, content) in CASES.iter().zip(contents) {
        fs::write(root.join(case.file), content)?;
    }
    Ok(())
}

fn request(host: &str, case: &Case) -> String {
    format!("GET /{} HTTP/1.1\r\nHost: {host}\r\n\r\n", case.file)
}

fn traffic(case: &Case) -> Repeat {
    Repeat::new(HOSTS.map(|host| request(host, case)), Some(case.size))
}

fn check(address: SocketAddr, case: &Case, content: &str) -> anyhow::Result<()> {
    for host in HOSTS {
        let response = http::send(address, &request(host, case))?;
        ensure!(
            response.status == 200,
            "status {} at {address}",
            response.status
        );
        ensure!(
            response.body == content.as_bytes(),
            "another content at {address}"
        );
    }
    Ok(())
}

fn measure(bench: &Bench<'_>, peer: &Peer, case: &Case) -> anyhow::Result<Sample> {
    load::measure(
        &bench.cores,
        peer.address,
        SPAN,
        &mut traffic(case),
        &|| peer.child.cpu(),
    )
}

fn report(bench: &mut Bench<'_>, case: &Case, rounds: &[(Sample, Sample, Sample)]) {
    let name = case.name;
    let of = |which: fn(&(Sample, Sample, Sample)) -> Sample, value: fn(&Sample) -> f64| {
        median(rounds.iter().map(|round| value(&which(round))))
    };
    for (server, which) in [
        (
            "estrade",
            (|round| round.0) as fn(&(Sample, Sample, Sample)) -> Sample,
        ),
        ("nginx", |round| round.1),
        ("caddy", |round| round.2),
    ] {
        let row = Row::fact(
            format!("{name}, {server}, per CPU-second"),
            of(which, Sample::per_cpu),
            Unit::PerSecond,
        );
        bench.report.add(row.note(format!(
            "{} requests/s, p50 {:.2} ms, p99 {:.2} ms",
            thousands(of(which, Sample::rate)),
            of(which, |sample| sample.p50),
            of(which, |sample| sample.p99),
        )));
    }
    let ratio = |theirs: fn(&(Sample, Sample, Sample)) -> Sample, value: fn(&Sample) -> f64| {
        median(
            rounds
                .iter()
                .map(|round| value(&round.0) / value(&theirs(round))),
        )
    };
    let nginx = ratio(|round| round.1, Sample::per_cpu);
    bench.report.add(Row::judged(
        format!("{name} against nginx"),
        nginx,
        Unit::Times,
        Target::AtLeast(case.nginx),
    ));
    let p99 = ratio(|round| round.1, |sample| sample.p99);
    bench.report.add(Row::judged(
        format!("{name}, p99 against nginx"),
        p99,
        Unit::Times,
        Target::AtMost(1.2),
    ));
    if let Some(least) = case.caddy {
        let caddy = ratio(|round| round.2, Sample::per_cpu);
        bench.report.add(Row::judged(
            format!("{name} against caddy"),
            caddy,
            Unit::Times,
            Target::AtLeast(least),
        ));
    }
}
