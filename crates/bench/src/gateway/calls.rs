//! Calls that are answered at once: 64 connections, and one.

use super::{chat, installation, key, peers};
use crate::http;
use crate::load::{self, Repeat, Sample};
use crate::report::{Row, Target, Unit, thousands};
use crate::stats::median;
use crate::suite::Bench;
use anyhow::ensure;
use std::net::SocketAddr;
use std::time::Duration;

const SPAN: Duration = Duration::from_secs(2);
const ONE_SPAN: Duration = Duration::from_secs(1);

pub(super) fn run(bench: &mut Bench<'_>) -> anyhow::Result<()> {
    let directory = bench.options.work.join("calls-peers");
    std::fs::create_dir_all(&directory)?;
    let provider = peers::provider(bench, &directory)?;
    let nginx = peers::proxy(
        bench,
        &directory,
        provider.address,
        true,
        &peers::replace_key(),
    )?;
    let crabllm = peers::crabllm(bench, &directory, provider.address)?;
    let server = installation(bench, "calls", provider.address)?.serve(bench)?;
    let (plain, budgeted) = (
        key(&server, "plain", false)?,
        key(&server, "budgeted", true)?,
    );
    let (ours, theirs) = (chat(&plain, false), chat("sk-bench-crab", false));
    let with_budget = chat(&budgeted, false);
    for (address, request) in [
        (server.ai, &ours),
        (server.ai, &with_budget),
        (nginx.address, &ours),
    ] {
        check(address, request)?;
    }

    let mut rounds = Vec::new();
    for _ in 0..bench.options.rounds {
        let at = |address: SocketAddr, request: &str, connections, span, cpu: &dyn Fn() -> _| {
            let mut traffic = Repeat::new([request.to_owned()], None);
            load::measure_relay(&bench.cores, address, connections, span, &mut traffic, cpu)
        };
        let (us, proxy) = (|| server.child.cpu(), || nginx.child.cpu());
        rounds.push(Round {
            ours: at(server.ai, &ours, 64, SPAN, &us)?,
            nginx: at(nginx.address, &ours, 64, SPAN, &proxy)?,
            budgeted: at(server.ai, &with_budget, 64, SPAN, &us)?,
            crabllm: match &crabllm {
                Some(peer) => Some(at(peer.address, &theirs, 64, SPAN, &|| peer.child.cpu())?),
                None => None,
            },
            direct_one: at(provider.address, &ours, 1, ONE_SPAN, &|| {
                provider.child.cpu()
            })?,
            ours_one: at(server.ai, &ours, 1, ONE_SPAN, &us)?,
            nginx_one: at(nginx.address, &ours, 1, ONE_SPAN, &proxy)?,
        });
    }
    report(bench, &rounds);
    server.child.stop()
}

struct Round {
    ours: Sample,
    nginx: Sample,
    budgeted: Sample,
    crabllm: Option<Sample>,
    direct_one: Sample,
    ours_one: Sample,
    nginx_one: Sample,
}

fn check(address: SocketAddr, request: &str) -> anyhow::Result<()> {
    let response = http::send(address, request)?;
    let text = String::from_utf8_lossy(&response.body);
    ensure!(response.status == 200, "status {}: {text}", response.status);
    ensure!(text == peers::response(), "another response: {text}");
    Ok(())
}

fn cost(sample: &Sample) -> f64 {
    1e6 / sample.per_cpu()
}

fn report(bench: &mut Bench<'_>, rounds: &[Round]) {
    let of = |value: &dyn Fn(&Round) -> f64| median(rounds.iter().map(value));
    let mut fact = |name: &str, sample: &dyn Fn(&Round) -> Sample| {
        let row = Row::fact(
            format!("{name}, CPU per call"),
            of(&|r| cost(&sample(r))),
            Unit::Microseconds,
        );
        bench.report.add(row.note(format!(
            "{} calls/s, p50 {:.2} ms, p99 {:.2} ms",
            thousands(of(&|r| sample(r).rate())),
            of(&|r| sample(r).p50),
            of(&|r| sample(r).p99),
        )));
    };
    fact("nginx, bare proxy", &|r| r.nginx);
    fact(
        "estrade, key with a budget (on disk before it goes out)",
        &|r| r.budgeted,
    );
    if rounds.iter().all(|r| r.crabllm.is_some()) {
        fact("crabllm", &|r| r.crabllm.unwrap_or(r.nginx));
    }
    fact("estrade, one connection", &|r| r.ours_one);
    fact("nginx, one connection", &|r| r.nginx_one);
    let note = format!(
        "{} calls/s, p50 {:.2} ms, p99 {:.2} ms",
        thousands(of(&|r| r.ours.rate())),
        of(&|r| r.ours.p50),
        of(&|r| r.ours.p99),
    );
    let row = Row::judged(
        "estrade, CPU per call",
        of(&|r| cost(&r.ours)),
        Unit::Microseconds,
        Target::AtMost(30.0),
    );
    bench.report.add(row.note(note));
    let mut ratio = |name: &str, value: f64, target: Target| {
        bench
            .report
            .add(Row::judged(name, value, Unit::Times, target));
    };
    ratio(
        "calls/s against nginx",
        of(&|r| r.ours.rate() / r.nginx.rate()),
        Target::AtLeast(0.65),
    );
    if rounds.iter().all(|r| r.crabllm.is_some()) {
        ratio(
            "calls/s against crabllm",
            of(&|r| r.ours.rate() / r.crabllm.map_or(f64::INFINITY, |it| it.rate())),
            Target::AtLeast(2.0),
        );
    }
    ratio(
        "one connection, added p50 against nginx's",
        of(&|r| (r.ours_one.p50 - r.direct_one.p50) / (r.nginx_one.p50 - r.direct_one.p50)),
        Target::AtMost(1.6),
    );
}
