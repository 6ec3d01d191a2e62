//! What this node has seen of the others, and what follows from it.

use estrade_model::Timestamp;
use estrade_model::node::NodeId;
use estrade_store::failure_detector::FailureDetector;
use estrade_store::nodes::NodeRow;
use std::collections::HashMap;
use std::time::Duration;
use tokio::time::Instant;

/// How often a node renews its row and reads the others'.
pub(super) const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(2);
/// A node that has not renewed its row for so long is down: an interval, the four seconds that a heartbeat may take, and
/// one for a machine that is busy. It counts from when the last renewal was seen, an interval after it at most, and is
/// over at the fourth look from there. So a death is found within ten seconds; no multiple of the interval, which a look
/// could miss by a millisecond.
pub(super) const FAILURE_TIMEOUT: Duration = Duration::from_secs(7);
/// How long a look at the list proves that there is no other node: until the next but one.
pub(super) const PROOF_LIFETIME: Duration = Duration::from_secs(4);

/// What is known of another node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Liveness {
    Alive,
    /// Its row was old when it was seen first, so it most likely has ended. It may also be that the database was away.
    Stale,
    /// Its row has not moved for the whole timeout.
    Down,
}

struct Sighting {
    seen_at: Timestamp,
    liveness: Liveness,
}

/// The other nodes.
#[derive(Default)]
pub(super) struct View {
    detector: FailureDetector<NodeId, Timestamp>,
    others: HashMap<NodeId, Sighting>,
    /// When a node that was alive was missing from the list.
    departed: Option<Instant>,
}

impl View {
    /// Takes a list of all nodes that was read at `now`; `this` is the one that reads.
    pub(super) fn observe(&mut self, this: NodeId, rows: &[NodeRow], now: Instant) {
        let others = || rows.iter().filter(|row| row.id != this);
        let markers = others().map(|row| (row.id, row.seen_at));
        let dead = self.detector.observe(markers, FAILURE_TIMEOUT, now);
        let before = std::mem::take(&mut self.others);
        for row in others() {
            let liveness = match before.get(&row.id) {
                _ if dead.contains(&row.id) => Liveness::Down,
                // Also after an outage of the database, which makes the detector start over: what was down stays down
                // until it moves.
                Some(last) if last.seen_at == row.seen_at => last.liveness,
                None if row.silence > FAILURE_TIMEOUT => Liveness::Stale,
                Some(_) | None => Liveness::Alive,
            };
            let seen_at = row.seen_at;
            self.others.insert(row.id, Sighting { seen_at, liveness });
        }
        let is_gone = |(id, last): (&NodeId, &Sighting)| {
            last.liveness == Liveness::Alive && !self.others.contains_key(id)
        };
        if before.iter().any(is_gone) {
            self.departed = Some(now);
        }
    }

    /// How many others are alive.
    pub(super) fn alive(&self) -> usize {
        let is_alive = |other: &&Sighting| other.liveness == Liveness::Alive;
        self.others.values().filter(is_alive).count()
    }

    pub(super) fn is_alive(&self, id: NodeId) -> bool {
        let seen = self.others.get(&id);
        seen.is_some_and(|other| other.liveness == Liveness::Alive)
    }

    /// Whether each of the others was seen to stand still for the whole timeout, or left some time ago: a row may also
    /// be missing because the database lost it in a failover, and then its node adds it again.
    pub(super) fn is_certainly_alone(&self, now: Instant) -> bool {
        let is_down = |other: &Sighting| other.liveness == Liveness::Down;
        let left_lately = |at: Instant| now - at < PROOF_LIFETIME;
        self.others.values().all(is_down) && !self.departed.is_some_and(left_lately)
    }

    /// Whether a node was seen to stand still, so that its row may be removed.
    pub(super) fn is_down(&self, id: NodeId) -> bool {
        let seen = self.others.get(&id);
        seen.is_some_and(|other| other.liveness == Liveness::Down)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use estrade_model::Id;
    use estrade_model::node::NodeAddresses;

    fn row(id: NodeId, seen_at: i64, silence: u64) -> NodeRow {
        NodeRow {
            id,
            hostname: "host".into(),
            version: "1".into(),
            addresses: NodeAddresses::default(),
            has_engine: false,
            started_at: Timestamp::from_millis(0),
            seen_at: Timestamp::from_millis(seen_at),
            silence: Duration::from_secs(silence),
        }
    }

    /// A view and the times of its looks, one per heartbeat.
    struct Watch {
        view: View,
        this: NodeId,
        start: Instant,
    }

    impl Watch {
        fn new() -> Self {
            Self {
                view: View::default(),
                this: Id::generate(1, 1),
                start: Instant::now(),
            }
        }

        /// Looks so many seconds after the start; how many others are alive, and whether it is certain that none is.
        fn look(&mut self, second: u64, rows: &[NodeRow]) -> (usize, bool) {
            let now = self.start + Duration::from_secs(second);
            let own = row(self.this, 0, 0);
            let rows: Vec<_> = rows.iter().cloned().chain([own]).collect();
            self.view.observe(self.this, &rows, now);
            (self.view.alive(), self.view.is_certainly_alone(now))
        }
    }

    #[test]
    fn a_node_that_stands_still_is_down_until_it_moves() {
        let (mut watch, other) = (Watch::new(), Id::generate(1, 2));
        assert_eq!(watch.look(0, &[]), (0, true));
        for second in [2, 4, 6, 8] {
            assert_eq!(watch.look(second, &[row(other, 5, 0)]), (1, false));
        }
        assert_eq!(watch.look(10, &[row(other, 5, 8)]), (0, true));
        assert!(watch.view.is_down(other));
        assert_eq!(watch.look(12, &[row(other, 12, 0)]), (1, false));
    }

    #[test]
    fn after_an_outage_everyone_is_what_they_were() {
        let (mut watch, down, alive) = (Watch::new(), Id::generate(1, 2), Id::generate(1, 3));
        for second in (0..=8).step_by(2) {
            let moving = i64::try_from(second).unwrap();
            watch.look(second, &[row(down, 5, 0), row(alive, moving, 0)]);
        }
        assert_eq!(watch.look(8, &[row(down, 5, 8), row(alive, 8, 0)]).0, 1);
        // Nobody could renew for a minute.
        let rows = [row(down, 5, 60), row(alive, 8, 60)];
        assert_eq!(watch.look(68, &rows), (1, false));
        assert!(watch.view.is_down(down));
        assert!(watch.view.is_alive(alive));
    }

    #[test]
    fn an_old_row_that_is_new_to_a_node_counts_as_down_and_proves_nothing() {
        let (mut watch, old) = (Watch::new(), Id::generate(1, 2));
        for second in [0, 2, 4, 6] {
            assert_eq!(watch.look(second, &[row(old, 5, 9)]), (0, false));
            assert!(!watch.view.is_down(old));
        }
        assert_eq!(watch.look(8, &[row(old, 5, 17)]), (0, true));
    }

    #[test]
    fn a_row_that_is_gone_counts_no_more_and_proves_nothing_for_a_while() {
        let (mut watch, other) = (Watch::new(), Id::generate(1, 2));
        assert_eq!(watch.look(0, &[row(other, 5, 0)]), (1, false));
        assert_eq!(watch.look(2, &[]), (0, false));
        assert_eq!(watch.look(4, &[]), (0, false));
        assert_eq!(watch.look(6, &[]), (0, true));
    }
}
