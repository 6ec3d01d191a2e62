//! Failure detector: which nodes have stopped renewing their rows.
//!
//! A node is dead when its marker (a deadline, the time of its last heartbeat) did not change during the whole timeout
//! while this server could observe the database without a gap. Prevents two false alarms: after an outage of the
//! database, in which nobody could renew, the first server back does not settle the others; and a node whose clock is
//! behind is alive as long as its marker moves, because only changes are compared and not clocks.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::Duration;
use tokio::time::Instant;

/// Observations further apart than half of the timeout, and than this, start over: a node may have been unable to
/// renew in between.
const MAX_OBSERVATION_GAP: Duration = Duration::from_secs(2);

/// The markers of other nodes, and since when each has not changed.
pub struct FailureDetector<I, M> {
    seen: HashMap<I, (M, Instant)>,
    last_observed: Option<Instant>,
}

impl<I, M> Default for FailureDetector<I, M> {
    fn default() -> Self {
        Self {
            seen: HashMap::new(),
            last_observed: None,
        }
    }
}

impl<I: Copy + Eq + Hash, M: Eq> FailureDetector<I, M> {
    /// Takes an observation; returns the nodes whose marker has not changed for `timeout`.
    pub fn observe(
        &mut self,
        nodes: impl IntoIterator<Item = (I, M)>,
        timeout: Duration,
        now: Instant,
    ) -> Vec<I> {
        let gap = (timeout / 2).max(MAX_OBSERVATION_GAP);
        let before = std::mem::take(&mut self.seen);
        let known = self.last_observed.is_some_and(|at| now - at <= gap);
        self.last_observed = Some(now);
        let mut dead = Vec::new();
        for (id, marker) in nodes {
            let since = match before.get(&id) {
                Some((last, since)) if known && *last == marker => *since,
                _ => now,
            };
            self.seen.insert(id, (marker, since));
            if now - since >= timeout {
                dead.push(id);
            }
        }
        dead
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_who_stands_still_all_the_time_is_dead() {
        let (start, timeout) = (Instant::now(), Duration::from_secs(10));
        let second = |number| start + Duration::from_secs(number);
        let (dead, behind) = (("dead", 5), "behind");
        let mut detector = FailureDetector::default();
        for number in 0..10 {
            let found = detector.observe([dead, (behind, number)], timeout, second(number));
            assert!(found.is_empty(), "{number}");
        }
        let behind = (behind, 9);
        let observed = detector.observe([dead, behind], timeout, second(10));
        assert_eq!(observed, ["dead"]);
        // A gap between observations: nobody could renew.
        let observed = detector.observe([dead, behind], timeout, second(30));
        assert!(observed.is_empty());
        // A node that was gone from the list starts over.
        assert!(detector.observe([behind], timeout, second(34)).is_empty());
        let observed = detector.observe([dead, behind], timeout, second(38));
        assert!(observed.is_empty());
        let observed = detector.observe([dead, behind], timeout, second(40));
        assert_eq!(observed, ["behind"]);
    }
}
