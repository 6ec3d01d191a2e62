//! Streams: the time until they begin, the cost of an event, and very many at once.

use super::stream_load::{StreamLoad, measure};
use super::upstream::Pace;
use super::{chat, installation, key, peers};
use crate::child::Child;
use crate::reference;
use crate::report::{Row, Target, Unit};
use crate::stats::{median, middle_half};
use crate::suite::Bench;
use anyhow::Context;
use std::fs;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// How long streams follow each other whose first bytes are waited for.
const FIRST_SPAN: Duration = Duration::from_secs(1);
/// How long events are counted: as long as two streams take that follow each other.
const EVENTS_SPAN: Duration = Duration::from_millis(1300);
/// How often all processes are started for each round that was asked for. A tenth of what an event costs is settled
/// when a process starts: many starts tell more than a long look at a few.
const STARTS: usize = 4;
/// Streams at once, with an event each 10 ms.
const STREAMS: usize = 64;
pub(super) const STEADY: Pace = Pace {
    words: 64,
    gap_ms: 10,
};
/// One short stream after the other, for the time until the first byte.
const SHORT: Pace = Pace {
    words: 2,
    gap_ms: 0,
};
/// Streams that do not end while they are counted.
const LONG: Pace = Pace {
    words: 600,
    gap_ms: 500,
};
/// Within this time streams begin that do not begin together.
const SPREAD: Duration = Duration::from_millis(200);
const HELD: usize = 5000;

pub(super) fn run(bench: &mut Bench<'_>) -> anyhow::Result<()> {
    let directory = bench.options.work.join("streams-peers");
    fs::create_dir_all(&directory)?;
    cost(bench, &directory, Duration::ZERO)?;
    cost(bench, &directory, SPREAD)?;
    first_byte(bench, &directory)?;
    hold(bench)
}

/// The streaming provider, on the core of the load.
pub(super) fn provider(bench: &Bench<'_>, pace: Pace) -> anyhow::Result<(Child, SocketAddr)> {
    let mut command = Command::new(std::env::current_exe()?);
    command
        .arg("serve-stream")
        .args(["--words", &pace.words.to_string()])
        .args(["--gap-ms", &pace.gap_ms.to_string()])
        .stdout(Stdio::piped());
    bench.cores.as_load_process(|| {
        let mut child = Child::start("the streaming provider", &mut command)?;
        let mut line = String::new();
        BufReader::new(child.output().context("no output")?).read_line(&mut line)?;
        Ok((child, reference::address_of(&line)?))
    })
}

/// Microseconds that an event costs.
struct Cost {
    ours: f64,
    nginx: f64,
    /// In an earlier build, if one is given.
    before: Option<f64>,
}

/// What an event costs. Streams that begin together have their events together, which is cheaper.
fn cost(bench: &mut Bench<'_>, directory: &Path, spread: Duration) -> anyhow::Result<()> {
    let is_judged = spread.is_zero();
    let starts = bench.options.rounds * if is_judged { STARTS } else { 1 };
    let rounds = (0..starts).map(|_| cost_once(bench, directory, spread));
    let rounds = rounds.collect::<anyhow::Result<Vec<_>>>()?;
    let ours = median(rounds.iter().map(|it| it.ours));
    let nginx = median(rounds.iter().map(|it| it.nginx));
    let ratios = || rounds.iter().map(|it| it.ours / it.nginx);
    let ratio = median(ratios());
    let (low, high) = middle_half(ratios());
    let row = if is_judged {
        let name = "CPU per event against nginx";
        Row::judged(name, ratio, Unit::Times, Target::AtMost(1.15))
    } else {
        Row::fact("… of streams that begin one by one", ratio, Unit::Times)
    };
    bench.report.add(row.note(format!(
        "{ours:.2} µs, nginx {nginx:.2} µs: {STREAMS} streams, an event each 10 ms; \
         half of {starts} starts between {low:.2} and {high:.2}"
    )));
    let before: Vec<_> = rounds
        .iter()
        .filter_map(|it| Some(it.ours / it.before?))
        .collect();
    if !before.is_empty() {
        let row = Row::fact("… against the build before", median(before), Unit::Times);
        bench.report.add(row);
    }
    Ok(())
}

/// One start of all processes. They are new each time: what one happens to get from the kernel at its start makes a
/// tenth of difference for as long as it runs.
fn cost_once(bench: &Bench<'_>, directory: &Path, spread: Duration) -> anyhow::Result<Cost> {
    let (_provider, upstream) = provider(bench, STEADY)?;
    let at = |address, request: &str, cpu: &dyn Fn() -> _| {
        let streams = (STREAMS, spread);
        let it = measure(&bench.cores, address, request, streams, EVENTS_SPAN, cpu)?;
        anyhow::Ok(1e6 * it.cpu / it.events.max(1.0))
    };
    let of_build = |build: &Path| {
        let site = installation(bench, "stream-cost", upstream)?;
        let server = site.serve_build(build, bench)?;
        let request = chat(&key(&server, "stream", false)?, true);
        let cost = at(server.ai, &request, &|| server.child.cpu())?;
        server.child.stop()?;
        fs::remove_dir_all(site.directory)?;
        anyhow::Ok((cost, request))
    };
    let (ours, request) = of_build(&bench.options.server)?;
    let nginx = peers::proxy(bench, directory, upstream, false, &peers::replace_key())?;
    let theirs = at(nginx.address, &request, &|| nginx.child.cpu())?;
    let before = bench.options.before.as_ref();
    Ok(Cost {
        ours,
        nginx: theirs,
        before: before
            .map(|build| anyhow::Ok(of_build(build)?.0))
            .transpose()?,
    })
}

fn first_byte(bench: &mut Bench<'_>, directory: &Path) -> anyhow::Result<()> {
    let (provider, upstream) = provider(bench, SHORT)?;
    let nginx = peers::proxy(bench, directory, upstream, false, &peers::replace_key())?;
    let server = installation(bench, "stream-first", upstream)?.serve(bench)?;
    let request = chat(&key(&server, "stream", false)?, true);
    let mut rounds = Vec::new();
    for _ in 0..bench.options.rounds {
        let at = |address, cpu: &dyn Fn() -> _| {
            let one = (1, Duration::ZERO);
            measure(&bench.cores, address, &request, one, FIRST_SPAN, cpu)
        };
        let direct = at(upstream, &|| provider.cpu())?.first;
        let ours = at(server.ai, &|| server.child.cpu())?.first;
        let theirs = at(nginx.address, &|| nginx.child.cpu())?.first;
        rounds.push((ours - direct, theirs - direct));
    }
    let ratio = median(rounds.iter().map(|(ours, theirs)| ours / theirs));
    let row = Row::judged(
        "added time to first byte against nginx's",
        ratio,
        Unit::Times,
        Target::AtMost(2.0),
    );
    bench.report.add(row.note(format!(
        "{:.3} ms, nginx {:.3} ms",
        median(rounds.iter().map(|it| it.0)),
        median(rounds.iter().map(|it| it.1)),
    )));
    server.child.stop()
}

fn hold(bench: &mut Bench<'_>) -> anyhow::Result<()> {
    raise_limit()?;
    let (_provider, upstream) = provider(bench, LONG)?;
    let server = installation(bench, "stream-hold", upstream)?.serve_everywhere(bench)?;
    let request = chat(&key(&server, "stream", false)?, true);
    let before = server.child.memory()?;
    let mut load = StreamLoad::open(server.ai, &request, HELD, Duration::ZERO)?;
    load.wait_until_all_begun(Duration::from_mins(1))?;
    load.work(Duration::from_secs(3))?;
    let held = server.child.memory()?.saturating_sub(before) as f64 / f64::from(1 << 20);
    let row = Row::fact("5,000 streams held, memory", held, Unit::Mebibytes);
    bench
        .report
        .add(row.note(format!("{:.1} KiB each", held * 1024.0 / HELD as f64)));
    drop(load);
    server.child.stop()
}

/// As many open files as the system lets us have.
fn raise_limit() -> anyhow::Result<()> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        ..limit
    };
    setrlimit(Resource::Nofile, raised).context("cannot raise the limit of open files")
}
