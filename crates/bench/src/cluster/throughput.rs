//! Static files and calls: what three nodes do per CPU-second against one.

use super::{Cluster, NODES};
use crate::http;
use crate::load::{self, Repeat, Sample};
use crate::report::{Row, Target, Unit, thousands};
use crate::stats::median;
use crate::suite::Bench;
use anyhow::ensure;
use serde_json::json;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

const SPAN: Duration = Duration::from_secs(2);
const PROJECT: &str = "bench-cluster";
const FILE_SIZE: usize = 1 << 10;
/// Answered by the gateway itself, so that no provider shares the cores.
const ECHO: &str = "estrade/echo";
const MAX_WAIT: Duration = Duration::from_secs(10);
/// What three nodes do per CPU-second against one of them.
const MIN_RATIO: f64 = 0.9;

pub(super) fn run(bench: &mut Bench<'_>) -> anyhow::Result<()> {
    let cluster = Cluster::start(bench, "throughput")?;
    let first = &cluster.nodes[0];
    let content = "x".repeat(FILE_SIZE);
    first.create_project(PROJECT)?;
    first.deploy(PROJECT, &[("index.html", &content)])?;
    let visit = format!("GET / HTTP/1.1\r\nhost: {PROJECT}.localhost\r\n\r\n");
    for node in &cluster.nodes {
        await_page(node.edge, &visit)?;
    }
    let keys = first.create_keys(1)?;
    let body = json!({"model": ECHO, "messages": [{"role": "user", "content": "hello"}]});
    let call = http::request(
        "POST",
        "/v1/chat/completions",
        Some(&keys[0]),
        Some(&body.to_string()),
    );
    let edges: Vec<_> = cluster.nodes.iter().map(|node| node.edge).collect();
    let gateways: Vec<_> = cluster.nodes.iter().map(|node| node.ai).collect();
    compare(bench, &cluster, "1 KiB files", &edges, &visit)?;
    compare(bench, &cluster, "inference calls", &gateways, &call)?;
    cluster.stop()
}

fn await_page(address: SocketAddr, visit: &str) -> anyhow::Result<()> {
    let began = Instant::now();
    while http::send(address, visit)?.status != 200 {
        ensure!(began.elapsed() < MAX_WAIT, "a node does not serve the site");
    }
    Ok(())
}

/// One node, all nodes, one node, … in the same rounds.
fn compare(
    bench: &mut Bench<'_>,
    cluster: &Cluster,
    name: &str,
    addresses: &[SocketAddr],
    request: &str,
) -> anyhow::Result<()> {
    let traffic = || Repeat::new([request.to_owned()], None);
    let mut rounds = Vec::new();
    for _ in 0..bench.options.rounds {
        let one = cluster.nodes[0].measure(addresses[0], SPAN, &mut traffic())?;
        let cpu = || cluster.cpu();
        let all = load::measure_all(&bench.cores, addresses, SPAN, &mut traffic(), &cpu)?;
        rounds.push((one, all));
    }
    let of = |value: &dyn Fn(&(Sample, Sample)) -> f64| median(rounds.iter().map(value));
    let mut fact = |nodes: &str, sample: &dyn Fn(&(Sample, Sample)) -> Sample| {
        let per_cpu = of(&|round| sample(round).per_cpu());
        let row = Row::fact(
            format!("{name} per CPU-second, {nodes}"),
            per_cpu,
            Unit::PerSecond,
        );
        bench.report.add(row.note(format!(
            "{} a second on the cores that they share, p99 {:.2} ms",
            thousands(of(&|round| sample(round).rate())),
            of(&|round| sample(round).p99),
        )));
    };
    fact("one node", &|round| round.0);
    fact(&format!("{NODES} nodes"), &|round| round.1);
    bench.report.add(Row::judged(
        format!("{name} per CPU-second, {NODES} nodes against one"),
        of(&|(one, all)| all.per_cpu() / one.per_cpu()),
        Unit::Times,
        Target::AtLeast(MIN_RATIO),
    ));
    Ok(())
}
