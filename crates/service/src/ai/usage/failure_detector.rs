//! Servers that seem to be dead.
//!
//! While the database is away nobody can renew a deadline, and the first one back must not take the
//! others for dead. So a server is settled only after it stood still for as long as a deadline in
//! which it could have said something: because we could look and write all that time.

use estrade_model::Timestamp;
use estrade_model::call::NodeId;
use estrade_store::budgets::LedgerNode;
use std::collections::HashMap;
use std::time::Duration;
use tokio::time::Instant;

/// Looks that are further apart than half of the timeout, and than this, prove nothing.
const MAX_OBSERVATION_GAP: Duration = Duration::from_secs(2);

/// The deadlines of other servers, and since when they were not moved.
#[derive(Default)]
pub(super) struct FailureDetector {
    seen: HashMap<NodeId, (Timestamp, Instant)>,
    last_observed: Option<Instant>,
}

impl FailureDetector {
    /// Notes the deadlines; returns those that were not moved for `timeout`.
    pub(super) fn observe(
        &mut self,
        nodes: &[LedgerNode],
        timeout: Duration,
        now: Instant,
    ) -> Vec<LedgerNode> {
        let gap = (timeout / 2).max(MAX_OBSERVATION_GAP);
        let before = std::mem::take(&mut self.seen);
        let known = self.last_observed.is_some_and(|at| now - at <= gap);
        self.last_observed = Some(now);
        let mut dead = Vec::new();
        for node in nodes {
            // By its own clock, which may be behind ours: one that moves is alive.
            let since = match before.get(&node.id) {
                Some((deadline, since)) if known && *deadline == node.deadline => *since,
                _ => now,
            };
            self.seen.insert(node.id, (node.deadline, since));
            if now - since >= timeout {
                dead.push(*node);
            }
        }
        dead
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use estrade_model::Id;

    #[test]
    fn only_who_stands_still_all_the_time_is_dead() {
        let node = |deadline| LedgerNode {
            id: Id::generate(1, 2),
            deadline: Timestamp::from_millis(deadline),
        };
        let (start, timeout) = (Instant::now(), Duration::from_secs(10));
        let second = |number| start + Duration::from_secs(number);
        let (dead, mut behind) = (node(5), node(5));
        let mut detector = FailureDetector::default();
        for number in 0..10 {
            behind.deadline = Timestamp::from_millis(5 + i64::try_from(number).unwrap());
            let found = detector.observe(&[dead, behind], timeout, second(number));
            assert!(found.is_empty(), "{number}");
        }
        assert_eq!(
            detector.observe(&[dead, behind], timeout, second(10)),
            [dead]
        );
        // Nobody could look for a while: nobody could renew.
        assert!(
            detector
                .observe(&[dead, behind], timeout, second(30))
                .is_empty()
        );
        // Who was gone from the list begins anew.
        assert!(detector.observe(&[behind], timeout, second(34)).is_empty());
        assert!(
            detector
                .observe(&[dead, behind], timeout, second(38))
                .is_empty()
        );
        assert_eq!(
            detector.observe(&[dead, behind], timeout, second(40)),
            [behind]
        );
    }
}
