//! Failure detector: which nodes have stopped renewing their deadlines.
//!
//! A node is dead when its deadline did not change during the whole timeout while this server could observe the
//! database without a gap. Prevents two false alarms: after an outage of the database, in which nobody could renew, the
//! first server back does not settle the others; and a node whose clock is behind is alive as long as its deadline
//! moves, because only changes are compared and not clocks.

use estrade_model::Timestamp;
use estrade_model::call::NodeId;
use estrade_store::budgets::LedgerNode;
use std::collections::HashMap;
use std::time::Duration;
use tokio::time::Instant;

/// Observations further apart than half of the timeout, and than this, start over: a node may have been unable to
/// renew in between.
const MAX_OBSERVATION_GAP: Duration = Duration::from_secs(2);

/// The deadlines of other nodes, and since when each has not changed.
#[derive(Default)]
pub(crate) struct FailureDetector {
    seen: HashMap<NodeId, (Timestamp, Instant)>,
    last_observed: Option<Instant>,
}

impl FailureDetector {
    /// Takes an observation; returns the nodes whose deadline has not changed for `timeout`.
    pub(crate) fn observe(
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
        // A gap between observations: nobody could renew.
        assert!(
            detector
                .observe(&[dead, behind], timeout, second(30))
                .is_empty()
        );
        // A node that was gone from the list starts over.
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
