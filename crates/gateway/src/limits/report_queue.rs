//! The buckets that are to be reported.
//!
//! Those that calls wait for come first: a tenant who uses very many buckets must not delay the answers to others.

use super::bucket::BucketId;
use std::collections::BTreeMap;

/// Buckets of one exchange.
pub(super) const MAX_REPORTS: usize = 256;
/// How many of them may be buckets that no call waits for, however many are waited for.
const RESERVED_REPORTS: usize = MAX_REPORTS / 4;

/// Where a bucket is in the queue of reports.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    number: u64,
    /// Calls wait for the bucket.
    pub(super) is_awaited: bool,
}

/// The buckets to be reported, by the number of their place. Each is in it once at most.
#[derive(Default)]
pub(super) struct ReportQueue {
    awaited: BTreeMap<u64, BucketId>,
    others: BTreeMap<u64, BucketId>,
    last_number: u64,
}

impl ReportQueue {
    pub(super) fn push(&mut self, id: BucketId, is_awaited: bool) -> Place {
        self.last_number += 1;
        let number = self.last_number;
        let queue = if is_awaited {
            &mut self.awaited
        } else {
            &mut self.others
        };
        queue.insert(number, id);
        Place { number, is_awaited }
    }

    pub(super) fn pop(&mut self) -> Vec<BucketId> {
        let reserved = self.others.len().min(RESERVED_REPORTS);
        let mut ids = Vec::new();
        pop_first(&mut self.awaited, MAX_REPORTS - reserved, &mut ids);
        pop_first(&mut self.others, MAX_REPORTS - ids.len(), &mut ids);
        ids
    }

    /// Another place for a bucket that a call waits for now; none when it was popped.
    pub(super) fn move_ahead(&mut self, place: Place) -> Option<Place> {
        let id = self.others.remove(&place.number)?;
        Some(self.push(id, true))
    }

    pub(super) fn awaited(&self) -> Vec<BucketId> {
        self.awaited.values().copied().collect()
    }

    pub(super) fn is_awaited(&self) -> bool {
        !self.awaited.is_empty()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.awaited.is_empty() && self.others.is_empty()
    }
}

fn pop_first(queue: &mut BTreeMap<u64, BucketId>, count: usize, ids: &mut Vec<BucketId>) {
    let next = std::iter::from_fn(|| queue.pop_first());
    ids.extend(next.take(count).map(|(_, id)| id));
}
