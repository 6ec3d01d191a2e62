//! In which order the targets of a model are tried.

use crate::upstream::catalogue::{Model, Target};
use crate::upstream::health::State;
use estrade_model::provider::Preference;
use std::sync::Arc;
use tokio::time::Instant;

/// How often a target of which nothing was measured comes first: once in so many calls.
const UNMEASURED_SHARE: u32 = 10;

impl Model {
    /// The targets that accept a call, in the order in which it shall try them; `true`: even if its breaker is
    /// open.
    ///
    /// Targets are filtered before the circuit breakers are asked: a target that is well but does not accept the
    /// call must not take the place of the last resort.
    pub(crate) fn order(
        &self,
        preference: Preference,
        now: Instant,
        accepts: impl Fn(&Target) -> bool,
    ) -> Vec<(&Arc<Target>, bool)> {
        let accepting = self.targets.iter().filter(|target| accepts(target));
        let mut order: Vec<&Arc<Target>> = accepting.collect();
        if let [only] = order[..] {
            return vec![(only, true)];
        }
        if self.weighted {
            order = by_weight(order);
        }
        prefer(&mut order, preference);
        without_broken(order, now)
    }
}

/// Random by weight; those without come after, as configured.
fn by_weight(targets: Vec<&Arc<Target>>) -> Vec<&Arc<Target>> {
    let mut order = Vec::with_capacity(targets.len());
    let (mut weighted, others): (Vec<_>, Vec<_>) = targets
        .into_iter()
        .partition(|target| target.weight.is_some());
    let weight = |target: &Target| u64::from(target.weight.unwrap_or(0));
    while !weighted.is_empty() {
        let total: u64 = weighted.iter().map(|target| weight(target)).sum();
        let mut drawn = fastrand::u64(..total.max(1));
        let chosen = weighted.iter().position(|target| {
            let here = drawn < weight(target);
            drawn = drawn.saturating_sub(weight(target));
            here
        });
        order.push(weighted.remove(chosen.unwrap_or(0)));
    }
    order.extend(others);
    order
}

/// Targets with an open breaker are left out, but for the one that was last to go: it is tried
/// last when no other is well.
fn without_broken(order: Vec<&Arc<Target>>, now: Instant) -> Vec<(&Arc<Target>, bool)> {
    let mut last: Option<(Instant, &Arc<Target>)> = None;
    let mut any_closed = false;
    let mut kept: Vec<(&Arc<Target>, bool)> = Vec::with_capacity(order.len());
    for target in order {
        match target.health.state(now) {
            State::Closed => {
                any_closed = true;
                kept.push((target, false));
            }
            State::Due => kept.push((target, false)),
            State::Open(since) if last.is_none_or(|(other, _)| since > other) => {
                last = Some((since, target));
            }
            State::Open(_) => {}
        }
    }
    if !any_closed && let Some((_, target)) = last {
        kept.push((target, true));
    }
    // All that is left are probes, and another call may take them first.
    if !any_closed && let Some(end) = kept.last_mut() {
        end.1 = true;
    }
    kept
}

/// Sorts by what a workspace prefers; what is equal stays in order.
fn prefer(order: &mut [&Arc<Target>], preference: Preference) {
    let measured: fn(&Target) -> Option<f64> = match preference {
        Preference::Order => return,
        Preference::Price => {
            return order.sort_by_key(|target| {
                // A price has two parts; most of what is paid for are prompts, three to one or so.
                let (prompt, completion) = (target.price.prompt, target.price.completion);
                i128::from(prompt.nanos()) * 3 + i128::from(completion.nanos())
            });
        }
        Preference::Latency => |target| target.health.latency(),
        Preference::Throughput => |target| target.health.throughput().map(|rate| -rate),
    };
    order.sort_by(|one, other| {
        let (one, other) = (measured(one), measured(other));
        let unknown = one.is_none().cmp(&other.is_none());
        unknown.then(one.unwrap_or(0.0).total_cmp(&other.unwrap_or(0.0)))
    });
    let unmeasured = order.iter().position(|target| measured(target).is_none());
    if let Some(at) = unmeasured
        && at > 0
        && fastrand::u32(..UNMEASURED_SHARE) == 0
    {
        order[..=at].rotate_right(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::upstream::catalogue::Catalogue;
    use crate::upstream::catalogue::tests::{break_it, build, names, provider};
    use std::time::Duration;

    #[test]
    fn targets_come_in_order_by_price_or_as_measured() {
        let catalogue = build(
            &[
                provider("a", 3, 0),
                provider("b", 1, 0),
                provider("c", 2, 0),
            ],
            &Catalogue::default(),
        );
        let (model, now) = (catalogue.model("m").unwrap(), Instant::now());
        assert_eq!(names(model, Preference::Order, now), ["a", "b", "c"]);
        assert_eq!(names(model, Preference::Price, now), ["b", "c", "a"]);
        assert_eq!(names(model, Preference::Latency, now), ["a", "b", "c"]);
        assert_eq!(model.max_price.prompt.nanos(), 3);
        let measure = |at: usize, millis, rate| {
            let first_byte = Duration::from_millis(millis);
            model.targets[at].health.measure(first_byte, Some(rate));
        };
        measure(0, 300, 10.0);
        measure(1, 200, 30.0);
        measure(2, 100, 20.0);
        assert_eq!(names(model, Preference::Latency, now), ["c", "b", "a"]);
        assert_eq!(names(model, Preference::Throughput, now), ["b", "c", "a"]);
    }

    #[test]
    fn what_was_not_measured_is_tried_now_and_then() {
        let catalogue = build(
            &[provider("a", 1, 0), provider("b", 1, 0)],
            &Catalogue::default(),
        );
        let (model, now) = (catalogue.model("m").unwrap(), Instant::now());
        model.targets[0]
            .health
            .measure(Duration::from_secs(1), None);
        let first: Vec<_> = (0..1000)
            .map(|_| names(model, Preference::Latency, now)[0].clone())
            .collect();
        let tried = first.iter().filter(|name| *name == "b").count();
        assert!((20..300).contains(&tried), "{tried}");
    }

    #[test]
    fn weights_share_the_calls() {
        let catalogue = build(
            &[
                provider("a", 1, 0),
                provider("b", 1, 1),
                provider("c", 1, 3),
            ],
            &Catalogue::default(),
        );
        let (model, now) = (catalogue.model("m").unwrap(), Instant::now());
        let firsts: Vec<_> = (0..4000)
            .map(|_| names(model, Preference::Order, now))
            .collect();
        assert!(firsts.iter().all(|order| order[2] == "a"));
        let c = firsts.iter().filter(|order| order[0] == "c").count();
        assert!((2700..3300).contains(&c), "{c}");
    }

    #[test]
    fn a_broken_target_is_left_out_but_never_the_last() {
        let catalogue = build(
            &[provider("a", 1, 0), provider("b", 1, 0)],
            &Catalogue::default(),
        );
        let (model, now) = (catalogue.model("m").unwrap(), Instant::now());
        break_it(&model.targets[0], now);
        assert_eq!(names(model, Preference::Order, now), ["b"]);
        break_it(&model.targets[1], now + Duration::from_millis(1));
        let order = model.order(Preference::Order, now, |_| true);
        assert_eq!(order.len(), 1);
        assert_eq!((&*order[0].0.upstream.name, order[0].1), ("b", true));
        let due = now + Duration::from_secs(5);
        assert_eq!(
            names(model, Preference::Order, due),
            ["a", "b"],
            "a is probed, b stays last"
        );
    }
}
