//! When an image that the engine lost is rebuilt: retries with exponential backoff, a bounded number of times.

use estrade_model::ReleaseId;
use std::collections::HashMap;
use std::time::Duration;
use tokio::time::Instant;

/// With a first delay of a minute, the last attempt begins after about half an hour.
pub(super) const MAX_ATTEMPTS: u32 = 6;
/// Most releases that are remembered; those that are forgotten start over.
const MAX_RELEASES: usize = 10_000;

/// The attempts to rebuild images, by the live release that lost its own.
#[derive(Debug, Default)]
pub(super) struct RebuildAttempts(HashMap<ReleaseId, Attempts>);

#[derive(Debug)]
struct Attempts {
    count: u32,
    next: Instant,
    given_up: bool,
}

/// What to do about a lost image, when no attempt is under way.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Decision {
    /// Rebuild it; so many attempts have failed before.
    Attempt { earlier: u32 },
    /// The next attempt is due after this time.
    Wait(Duration),
    /// All attempts have failed. `new` is true once.
    GiveUp { new: bool },
}

impl RebuildAttempts {
    pub(super) fn decide(&mut self, release: ReleaseId, first_delay: Duration) -> Decision {
        let now = Instant::now();
        if self.0.len() >= MAX_RELEASES && !self.0.contains_key(&release) {
            self.0.retain(|_, attempts| attempts.next > now);
        }
        if self.0.len() >= MAX_RELEASES && !self.0.contains_key(&release) {
            self.0.clear();
        }
        let attempts = self.0.entry(release).or_insert(Attempts {
            count: 0,
            next: now,
            given_up: false,
        });
        if attempts.count >= MAX_ATTEMPTS {
            let new = !std::mem::replace(&mut attempts.given_up, true);
            return Decision::GiveUp { new };
        }
        if attempts.next > now {
            return Decision::Wait(attempts.next - now);
        }
        let earlier = attempts.count;
        attempts.count += 1;
        attempts.next = now + first_delay.saturating_mul(1 << earlier.min(16));
        Decision::Attempt { earlier }
    }

    /// Starts over: the next attempt is due at once.
    pub(super) fn forget(&mut self, release: ReleaseId) {
        self.0.remove(&release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DELAY: Duration = Duration::from_mins(1);

    #[tokio::test(start_paused = true)]
    async fn delays_grow_until_it_gives_up_and_a_restart_starts_over() {
        let mut rebuilds = RebuildAttempts::default();
        let release = ReleaseId::generate(1, 1);
        for earlier in 0..MAX_ATTEMPTS {
            let decided = rebuilds.decide(release, DELAY);
            assert_eq!(decided, Decision::Attempt { earlier });
            let wait = DELAY * (1 << earlier);
            if earlier + 1 < MAX_ATTEMPTS {
                assert_eq!(rebuilds.decide(release, DELAY), Decision::Wait(wait));
                tokio::time::advance(wait).await;
            }
        }
        assert_eq!(
            rebuilds.decide(release, DELAY),
            Decision::GiveUp { new: true }
        );
        tokio::time::advance(DELAY * 1000).await;
        assert_eq!(
            rebuilds.decide(release, DELAY),
            Decision::GiveUp { new: false }
        );
        rebuilds.forget(release);
        assert_eq!(
            rebuilds.decide(release, DELAY),
            Decision::Attempt { earlier: 0 }
        );
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_remembered_is_bounded() {
        let mut rebuilds = RebuildAttempts::default();
        for number in 0..10 + i64::try_from(MAX_RELEASES).unwrap() {
            let release = ReleaseId::generate(number, 1);
            rebuilds.decide(release, DELAY);
        }
        assert!(rebuilds.0.len() <= MAX_RELEASES);
    }
}
