//! `/v1/keys/authorize` with warm keys, against a bare server; and with very many keys stored.

use super::projects::{compare, reference_command, start_reference};
use super::{seed, start};
use crate::http;
use crate::installation::{Running, Site};
use crate::load::{self, Repeat, Sample};
use crate::report::{Row, Target, Unit, thousands};
use crate::stats::median;
use crate::suite::Bench;
use anyhow::ensure;
use std::time::Duration;

/// Keys made over HTTP, and all that the small installation has.
const WARM: usize = 1000;
const SPAN: Duration = Duration::from_millis(1500);
const PATH: &str = "/v1/keys/authorize";

pub(super) fn run(bench: &mut Bench<'_>) -> anyhow::Result<()> {
    let small = Site::new(bench, "small")?.serve(bench)?;
    let small_keys = small.create_keys(WARM)?;
    let large_site = Site::new(bench, "large")?;
    let large = large_site.serve(bench)?;
    let large_keys = large.create_keys(WARM)?;
    large.child.stop()?;
    seed::add_keys(&large_site, bench.options.keys.saturating_sub(WARM as u64))?;
    let large = start::measure(bench, &large_site)?;
    let (bare, bare_address) = start_reference(bench, &mut reference_command("serve-empty")?)?;
    check(&small, &small_keys[0])?;
    check(&large, &large_keys[0])?;

    let request = |key: &String| http::request("GET", PATH, Some(key), None);
    let one = |keys: &[String]| Repeat::new(keys.iter().take(1).map(request), Some(0));
    let all = |keys: &[String]| Repeat::new(keys.iter().map(request), Some(0));
    let (mut few, mut many) = (one(&small_keys), one(&large_keys));
    let (mut few_turns, mut many_turns) = (all(&small_keys), all(&large_keys));
    let mut rounds = Vec::new();
    for _ in 0..bench.options.rounds {
        rounds.push(Round {
            bare: load::measure(&bench.cores, bare_address, SPAN, &mut few, &|| bare.cpu())?,
            few: small.measure(small.ai, SPAN, &mut few)?,
            many: large.measure(large.ai, SPAN, &mut many)?,
            few_turns: small.measure(small.ai, SPAN, &mut few_turns)?,
            many_turns: large.measure(large.ai, SPAN, &mut many_turns)?,
        });
    }
    small.child.stop()?;
    large.child.stop()?;
    report(bench, &rounds);
    Ok(())
}

/// One window of each server, one after the other.
struct Round {
    bare: Sample,
    few: Sample,
    many: Sample,
    few_turns: Sample,
    many_turns: Sample,
}

fn report(bench: &mut Bench<'_>, rounds: &[Round]) {
    let pairs: Vec<_> = rounds.iter().map(|round| (round.few, round.bare)).collect();
    compare(
        bench,
        "authorize, one warm key",
        "bare hyper, empty 200",
        0.6,
        &pairs,
    );
    let keys = thousands(bench.options.keys as f64);
    let cost = |sample: &Sample| 1e6 / sample.per_cpu();
    let middle = |of: fn(&Round) -> &Sample| median(rounds.iter().map(|round| cost(of(round))));
    let ratio = |many: fn(&Round) -> &Sample, few: fn(&Round) -> &Sample| {
        median(
            rounds
                .iter()
                .map(|round| cost(many(round)) / cost(few(round))),
        )
    };
    let costs = |few, many| {
        format!(
            "CPU time per request {:.2} → {:.2} µs",
            middle(few),
            middle(many)
        )
    };

    let value = ratio(|round| &round.many, |round| &round.few);
    let row = Row::judged(
        format!("authorize, cost of {keys} keys"),
        value,
        Unit::Times,
        Target::AtMost(1.2),
    );
    bench
        .report
        .add(row.note(costs(|round| &round.few, |round| &round.many)));
    let value = ratio(|round| &round.many_turns, |round| &round.few_turns);
    let row = Row::judged(
        "… 1,000 warm keys in turn",
        value,
        Unit::Times,
        Target::AtMost(1.2),
    );
    bench
        .report
        .add(row.note(costs(|round| &round.few_turns, |round| &round.many_turns)));
}

/// A good key gets in with an empty 200 that names it, another token does not.
fn check(server: &Running, key: &str) -> anyhow::Result<()> {
    let response = http::get(server.ai, PATH, Some(key))?;
    ensure!(
        response.status == 200 && response.body.is_empty(),
        "status {} for a good key",
        response.status
    );
    let id = response.header("x-key-id").unwrap_or_default();
    ensure!(id.len() == 24, "x-key-id is {id:?}");
    let refused = http::get(server.ai, PATH, Some(&server.token))?;
    ensure!(
        refused.status == 401,
        "status {} for an account's token",
        refused.status
    );
    Ok(())
}
