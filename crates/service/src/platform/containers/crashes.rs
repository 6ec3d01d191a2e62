//! Instances that ended by themselves: how often, and when to try again.

use estrade_model::ReleaseId;
use estrade_runtime::InstanceId;
use std::collections::{HashMap, HashSet};
use std::hash::Hash;
use std::time::Duration;
use tokio::time::Instant;

/// The first pause before another try; each next one is twice as long.
const MIN_RETRY_DELAY: Duration = Duration::from_secs(1);
const MAX_RETRY_DELAY: Duration = Duration::from_mins(1);
/// An instance that ran this long had got over what made it crash before.
const STABLE_PERIOD: Duration = Duration::from_mins(1);
/// This many in a row are a loop.
const LOOP_THRESHOLD: u32 = 3;
/// Most instances that are remembered: those of releases that are long gone are forgotten.
const MAX_INSTANCES: usize = 10_000;

pub(super) struct Crashes<C = InstanceId> {
    by_number: HashMap<(ReleaseId, u32), Crash<C>>,
    /// Those that were stopped because their disk was full.
    full: HashSet<C>,
}

struct Crash<C> {
    /// In a row.
    count: u32,
    /// The container that crashed last, so that one crash is counted once; none: there was no container.
    last: Option<C>,
    at: Instant,
    next: Instant,
}

/// What one crash means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Verdict {
    /// Whether it was not known yet.
    pub(super) new: bool,
    /// Whether the instance keeps crashing.
    pub(super) looping: bool,
    /// How long to wait before the next try.
    pub(super) wait: Duration,
}

impl<C> Default for Crashes<C> {
    fn default() -> Self {
        Self {
            by_number: HashMap::new(),
            full: HashSet::new(),
        }
    }
}

impl<C: Clone + Eq + Hash> Crashes<C> {
    /// Notes that an instance ended after it ran for so long.
    pub(super) fn note(
        &mut self,
        (release, number): (ReleaseId, u32),
        container: Option<&C>,
        ran: Duration,
    ) -> Verdict {
        let now = Instant::now();
        self.forget_old(now);
        let crash = self
            .by_number
            .entry((release, number))
            .or_insert_with(|| Crash {
                count: 0,
                last: None,
                at: now,
                next: now,
            });
        let new = container.is_none() || crash.last.as_ref() != container;
        if new {
            crash.count = if ran >= STABLE_PERIOD {
                1
            } else {
                crash.count + 1
            };
            crash.last = container.cloned();
            crash.at = now;
            // The first one is tried again at once.
            let pause = match crash.count {
                1 => Duration::ZERO,
                count => MIN_RETRY_DELAY
                    .saturating_mul(1 << (count - 2).min(16))
                    .min(MAX_RETRY_DELAY),
            };
            crash.next = now + pause;
        }
        Verdict {
            new,
            looping: crash.count >= LOOP_THRESHOLD,
            wait: crash.next.saturating_duration_since(now),
        }
    }

    /// How long the instance of that number must still wait, if it crashed.
    pub(super) fn wait(&self, release: ReleaseId, number: u32) -> Option<Duration> {
        let crash = self.by_number.get(&(release, number))?;
        let wait = crash.next.saturating_duration_since(Instant::now());
        (!wait.is_zero()).then_some(wait)
    }

    /// Whether any instance of a release crashed lately.
    pub(super) fn is_crash_looping(&self, release: ReleaseId) -> bool {
        let now = Instant::now();
        // From when it could run again: until then it cannot have shown anything.
        let lately =
            |crash: &Crash<C>| crash.count >= LOOP_THRESHOLD && now < crash.next + STABLE_PERIOD;
        self.by_number
            .iter()
            .any(|((it, _), crash)| *it == release && lately(crash))
    }

    /// Forgets the crashes of a release: it may start at once.
    pub(super) fn forget(&mut self, release: ReleaseId) {
        self.by_number.retain(|(it, _), _| *it != release);
    }

    fn forget_old(&mut self, now: Instant) {
        if self.by_number.len() >= MAX_INSTANCES {
            self.by_number
                .retain(|_, crash| now - crash.at < MAX_RETRY_DELAY * 2);
        }
    }

    /// Notes that an instance is stopped because its disk is full.
    pub(super) fn note_full(&mut self, container: &C) {
        self.full.insert(container.clone());
    }

    /// Whether that was why it ended.
    pub(super) fn take_full(&mut self, container: &C) -> bool {
        self.full.remove(container)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn release() -> ReleaseId {
        ReleaseId::generate(1, 1)
    }

    #[tokio::test(start_paused = true)]
    async fn pauses_grow_and_a_long_life_makes_them_short_again() {
        let mut crashes: Crashes<String> = Crashes::default();
        let key = (release(), 1);
        let mut note = |container: &str, ran| {
            crashes.note(key, Some(&container.to_owned()), Duration::from_secs(ran))
        };
        let waits: Vec<_> = ["a", "b", "c", "d"].iter().map(|it| note(it, 1)).collect();
        let seconds: Vec<_> = waits.iter().map(|it| it.wait.as_secs()).collect();
        assert_eq!(seconds, [0, 1, 2, 4]);
        let looping: Vec<_> = waits.iter().map(|it| it.looping).collect();
        assert_eq!(looping, [false, false, true, true]);
        assert!(!note("d", 1).new);
        let many: Vec<_> = (0..20).map(|n| note(&format!("x{n}"), 1)).collect();
        assert_eq!(many.last().unwrap().wait, MAX_RETRY_DELAY);
        let settled = note("e", 61);
        assert_eq!((settled.looping, settled.wait), (false, Duration::ZERO));
    }
}
