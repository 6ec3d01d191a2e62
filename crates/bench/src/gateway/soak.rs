//! Half an hour of streams that end, streams that are cut and calls: memory stays where it was.

use super::stream_load::StreamLoad;
use super::streams::{STEADY, provider};
use super::{chat, chat_with, installation, key};
use crate::load::{self, Repeat};
use crate::report::{Row, Target, Unit};
use crate::stats::median;
use crate::suite::Bench;
use std::time::{Duration, Instant};

/// Answered by the gateway itself.
const ECHO: &str = "estrade/echo";
const SPAN: Duration = Duration::from_mins(30);
/// Until then caches fill and threads start.
const WARM_UP: Duration = Duration::from_mins(3);
/// What is compared is the middle of so much time: one moment is as much as 3 MiB from the next, since calls are
/// written down together.
const COMPARED: Duration = Duration::from_mins(3);
const STREAMS: usize = 50;
/// After so long all streams are cut in the middle.
const CUT_INTERVAL: Duration = Duration::from_secs(10);
const CALLS_FOR: Duration = Duration::from_secs(1);

pub(super) fn run(bench: &mut Bench<'_>) -> anyhow::Result<()> {
    let (_provider, upstream) = provider(bench, STEADY)?;
    let server = installation(bench, "soak", upstream)?.serve_everywhere(bench)?;
    let streamed = chat(&key(&server, "stream", false)?, true);
    let keys = server.create_keys(100)?;
    let echo = |key: &String| chat_with(ECHO, key, false);
    let mut calls = Repeat::new(keys.iter().map(echo), None);
    let (began, mut memory, mut answered) = (Instant::now(), Vec::new(), 0.0);
    while began.elapsed() < SPAN {
        let mut streams = StreamLoad::open(server.ai, &streamed, STREAMS, Duration::ZERO)?;
        streams.work(CUT_INTERVAL)?;
        drop(streams);
        let cpu = || server.child.cpu();
        let sample = load::measure_relay(&bench.cores, server.ai, 4, CALLS_FOR, &mut calls, &cpu)?;
        answered += sample.answered;
        let mebibytes = server.child.memory()? as f64 / f64::from(1 << 20);
        memory.push((began.elapsed(), mebibytes));
    }
    let middle = |from: Duration| {
        let during = from..from + COMPARED;
        let of_it = memory.iter().filter(|(at, _)| during.contains(at));
        median(of_it.map(|(_, mebibytes)| *mebibytes))
    };
    let (warm, end) = (middle(WARM_UP), middle(SPAN.saturating_sub(COMPARED)));
    let row = Row::judged(
        "memory after half an hour against after three minutes",
        end / warm,
        Unit::Times,
        Target::AtMost(1.1),
    );
    bench.report.add(row.note(format!(
        "{warm:.1} MiB, then {end:.1} MiB; {answered:.0} calls, and {STREAMS} streams all the while",
    )));
    server.child.stop()
}
