//! Memory with very many keys in use.

use super::{chat, installation, peers};
use crate::load::{self, Repeat, Traffic};
use crate::report::{Row, Target, Unit};
use crate::suite::Bench;
use std::thread::sleep;
use std::time::Duration;

const KEYS: usize = 100_000;
const SETTLE: Duration = Duration::from_secs(3);

pub(super) fn run(bench: &mut Bench<'_>) -> anyhow::Result<()> {
    let directory = bench.options.work.join("memory-peers");
    std::fs::create_dir_all(&directory)?;
    let provider = peers::provider(bench, &directory)?;
    let server = installation(bench, "memory", provider.address)?.serve_everywhere(bench)?;
    sleep(SETTLE);
    let mebibytes = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    let idle = mebibytes(server.child.memory()?);
    bench.report.add(Row::judged(
        "memory, idle",
        idle,
        Unit::Mebibytes,
        Target::AtMost(25.0),
    ));
    let keys = server.create_keys(KEYS)?;
    let mut calls = Once {
        calls: Repeat::new(keys.iter().map(|key| chat(key, false)), None),
        left: KEYS,
    };
    load::send_all(server.ai, &mut calls)?;
    sleep(SETTLE);
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

/// Every request once.
struct Once {
    calls: Repeat,
    left: usize,
}

impl Traffic for Once {
    fn request(&mut self, out: &mut Vec<u8>) -> bool {
        let more = self.left > 0;
        self.left = self.left.saturating_sub(1);
        more && self.calls.request(out)
    }

    fn answer(&mut self, status: u16, body: &[u8]) -> anyhow::Result<()> {
        self.calls.answer(status, body)
    }
}
