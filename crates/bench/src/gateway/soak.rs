//! Half an hour of streams that end, streams that are cut and calls: memory stays where it was.

use super::stream_load::StreamLoad;
use super::streams::{STEADY, provider};
use super::{chat, chat_with, installation, key};
use crate::load::{self, Repeat};
use crate::report::{Row, Target, Unit};
use crate::suite::Bench;
use std::time::{Duration, Instant};

/// Answered by the gateway itself.
const ECHO: &str = "estrade/echo";
const SPAN: Duration = Duration::from_mins(30);
/// Until then caches fill and threads start.
const WARM_UP: Duration = Duration::from_mins(3);
const STREAMS: usize = 50;
/// After so long all streams are cut in the middle.
const CUT_EVERY: Duration = Duration::from_secs(10);
const CALLS_FOR: Duration = Duration::from_secs(1);

pub(super) fn run(bench: &mut Bench<'_>) -> anyhow::Result<()> {
    let (_provider, upstream) = provider(bench, STEADY)?;
    let server = installation(bench, "soak", upstream)?.serve_everywhere(bench)?;
    let streamed = chat(&key(&server, "stream", false)?, true);
    let keys = server.create_keys(100)?;
    let echo = |key: &String| chat_with(ECHO, key, false);
    let mut calls = Repeat::new(keys.iter().map(echo), None);
    let (began, mut warm, mut answered) = (Instant::now(), None, 0.0);
    while began.elapsed() < SPAN {
        let mut streams = StreamLoad::open(server.ai, &streamed, STREAMS, Duration::ZERO)?;
        streams.work(CUT_EVERY)?;
        drop(streams);
        let cpu = || server.child.cpu();
        let sample = load::measure_relay(&bench.cores, server.ai, 4, CALLS_FOR, &mut calls, &cpu)?;
        answered += sample.answered;
        if warm.is_none() && began.elapsed() >= WARM_UP {
            warm = Some(server.child.memory()?);
        }
    }
    let (warm, end) = (warm.unwrap_or_default(), server.child.memory()?);
    let mebibytes = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    let row = Row::judged(
        "memory after half an hour against after three minutes",
        mebibytes(end) / mebibytes(warm),
        Unit::Times,
        Target::AtMost(1.1),
    );
    bench.report.add(row.note(format!(
        "{:.1} MiB, then {:.1} MiB; {answered:.0} calls, and {STREAMS} streams all the while",
        mebibytes(warm),
        mebibytes(end),
    )));
    server.child.stop()
}
