//! `GET /v1/projects` with 20 projects, against a minimal server on the same database.

use crate::child::Child;
use crate::installation::Site;
use crate::load::{self, Repeat, Sample};
use crate::report::{Row, Target, Unit, thousands};
use crate::stats::median;
use crate::suite::Bench;
use crate::{http, reference};
use anyhow::{Context, ensure};
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::time::Duration;

const PROJECTS: usize = 20;
const SPAN: Duration = Duration::from_secs(2);
const PATH: &str = "/v1/projects";

pub(super) fn run(bench: &mut Bench<'_>) -> anyhow::Result<()> {
    let site = Site::new(bench, "projects")?;
    let server = site.serve(bench)?;
    for number in 0..PROJECTS {
        server.create_project(&format!("bench-{number}"))?;
    }
    let edge = format!("localhost:{}", server.edge.port());
    let arguments = ["--owner", &site.account()?, "--edge", &edge, "--database"];
    let mut command = reference_command("serve-projects")?;
    command.args(arguments).arg(site.database());
    let (minimal, minimal_address) = start_reference(bench, &mut command)?;

    let ours = http::get(server.platform, PATH, Some(&server.token))?;
    let theirs = http::get(minimal_address, PATH, None)?;
    ensure!(ours.status == 200, "status {} instead of 200", ours.status);
    let count = ours.json()?["projects"].as_array().map(Vec::len);
    ensure!(count == Some(PROJECTS), "{count:?} projects");
    ensure!(
        ours.body == theirs.body,
        "the reference answers something else"
    );

    let request = http::request("GET", PATH, Some(&server.token), None);
    let mut traffic = Repeat::new([request], Some(ours.body.len()));
    let mut pairs = Vec::new();
    for _ in 0..bench.options.rounds {
        let theirs = load::measure(&bench.cores, minimal_address, SPAN, &mut traffic, &|| {
            minimal.cpu()
        })?;
        let ours = server.measure(server.platform, SPAN, &mut traffic)?;
        pairs.push((ours, theirs));
    }
    server.child.stop()?;
    drop(minimal);
    compare(
        bench,
        "GET /v1/projects, 20 projects",
        "minimal hyper + SQLite",
        0.5,
        &pairs,
    );
    Ok(())
}

/// Starts a reference server on the server's cores; it says where it listens.
pub(super) fn start_reference(
    bench: &Bench<'_>,
    command: &mut Command,
) -> anyhow::Result<(Child, SocketAddr)> {
    bench.cores.as_server(|| {
        let mut child = Child::start("the reference server", command.stdout(Stdio::piped()))?;
        let mut line = String::new();
        BufReader::new(child.output().context("no output")?).read_line(&mut line)?;
        Ok((child, reference::address_of(&line)?))
    })
}

/// This tool as a reference server.
pub(super) fn reference_command(name: &str) -> anyhow::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg(name);
    Ok(command)
}

/// Adds the rows of a comparison: judged by requests/s or by requests per CPU-second, whichever is worse.
pub(super) fn compare(
    bench: &mut Bench<'_>,
    name: &str,
    other: &str,
    least: f64,
    pairs: &[(Sample, Sample)],
) {
    let ours = |value: fn(&Sample) -> f64| median(pairs.iter().map(|(ours, _)| value(ours)));
    let theirs = |value: fn(&Sample) -> f64| median(pairs.iter().map(|(_, theirs)| value(theirs)));
    let by_rate = median(
        pairs
            .iter()
            .map(|(ours, theirs)| ours.rate() / theirs.rate()),
    );
    let by_cpu = median(
        pairs
            .iter()
            .map(|(ours, theirs)| ours.per_cpu() / theirs.per_cpu()),
    );
    let reference = Row::fact(other, theirs(Sample::rate), Unit::PerSecond);
    bench.report.add(reference.note(format!(
        "{} per CPU-second",
        thousands(theirs(Sample::per_cpu))
    )));
    let product = Row::fact(name, ours(Sample::rate), Unit::PerSecond);
    bench.report.add(product.note(format!(
        "{} per CPU-second, p50 {:.2} ms, p99 {:.2} ms",
        thousands(ours(Sample::per_cpu)),
        ours(|sample| sample.p50),
        ours(|sample| sample.p99),
    )));
    let row = Row::judged(
        "… against that",
        by_rate.min(by_cpu),
        Unit::Times,
        Target::AtLeast(least),
    );
    bench.report.add(row.note(format!(
        "by requests/s {by_rate:.3}, by CPU time {by_cpu:.3}; the lower counts"
    )));
}
