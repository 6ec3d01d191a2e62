//! From the start of the process until it is ready, on an existing data directory.

use crate::installation::{Running, Site};
use crate::report::{Row, Target, Unit, thousands};
use crate::stats::median;
use crate::suite::Bench;

/// Starts the server several times; the last one stays.
pub(super) fn measure(bench: &mut Bench<'_>, site: &Site) -> anyhow::Result<Running> {
    let mut millis = Vec::new();
    let mut running = site.serve(bench)?;
    for _ in 0..bench.options.rounds.max(5) {
        running.child.stop()?;
        running = site.serve(bench)?;
        millis.push(running.took.as_secs_f64() * 1000.0);
    }
    let worst = millis.iter().copied().fold(0.0, f64::max);
    let name = format!(
        "start to ready, {} keys",
        thousands(bench.options.keys as f64)
    );
    let row = Row::judged(
        name,
        median(millis),
        Unit::Milliseconds,
        Target::AtMost(150.0),
    );
    bench
        .report
        .add(row.note(format!("the slowest took {worst:.0} ms")));
    Ok(running)
}
