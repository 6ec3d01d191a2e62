//! Memory with very many keys in use.

use super::{chat, installation, peers};
use crate::load::{self, Once};
use crate::report::{Row, Target, Unit};
use crate::suite::Bench;
use std::thread::sleep;
use std::time::Duration;

const KEYS: usize = 100_000;
const SETTLE_DELAY: Duration = Duration::from_secs(3);

pub(super) fn run(bench: &mut Bench<'_>) -> anyhow::Result<()> {
    let directory = bench.options.work.join("memory-peers");
    std::fs::create_dir_all(&directory)?;
    let provider = peers::provider(bench, &directory)?;
    let server = installation(bench, "memory", provider.address)?.serve_everywhere(bench)?;
    sleep(SETTLE_DELAY);
    let mebibytes = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    let idle = mebibytes(server.child.memory()?);
    bench.report.add(Row::judged(
        "memory, idle",
        idle,
        Unit::Mebibytes,
        Target::AtMost(25.0),
    ));
    let keys = server.create_keys(KEYS)?;
    let requests = keys.iter().map(|key| chat(key, false));
    let mut calls = Once::new(requests, peers::response().len());
    load::send_all(server.ai, &mut calls)?;
    sleep(SETTLE_DELAY);
    let used = mebibytes(server.child.memory()?);
    let row = Row::judged(
        "… with 100,000 keys in use",
        used,
        Unit::Mebibytes,
        Target::AtMost(60.0),
    );
    bench
        .report
        .add(row.note("each made over HTTP and used for one call"));
    server.child.stop()
}
