//! This node's side of the shared buckets: whether there are other nodes, and a queue of the buckets that were used.

use super::bucket::BucketId;
use super::shared_bucket::SharedBucket;
use crate::shared_rates::SharedRates;
use estrade_model::sync::MutexExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use tokio::sync::Notify;

/// Buckets of one exchange.
const MAX_REPORTS: usize = 256;

/// This node's side of the shared buckets.
#[derive(Default)]
pub(crate) struct Sharing {
    /// None: there is no other node.
    pub(super) rates: Option<Arc<dyn SharedRates>>,
    /// Each bucket is in it once at most.
    queue: Mutex<Vec<BucketId>>,
    pub(super) queued: Notify,
    /// A call waits.
    pub(super) urgent: Notify,
    pub(super) is_unreachable: AtomicBool,
}

impl Sharing {
    pub(crate) fn new(rates: Option<Arc<dyn SharedRates>>) -> Self {
        Self {
            rates,
            ..Self::default()
        }
    }

    /// Whether other nodes may use the same limits.
    pub(super) fn is_shared(&self) -> bool {
        self.rates.as_ref().is_some_and(|rates| !rates.is_alone())
    }

    pub(super) fn nodes(&self) -> usize {
        self.rates.as_ref().map_or(1, |rates| rates.nodes().max(1))
    }

    pub(super) fn is_unreachable(&self) -> bool {
        self.is_unreachable.load(Ordering::Relaxed)
    }

    /// Puts a bucket in the queue of reports.
    pub(super) fn enqueue(&self, id: BucketId, bucket: &mut SharedBucket) {
        if !std::mem::replace(&mut bucket.is_queued, true) {
            self.queue.lock_ignoring_poison().push(id);
            self.queued.notify_one();
        }
        if bucket.is_waited_for() {
            self.urgent.notify_one();
        }
    }

    pub(super) fn next_reports(&self) -> Vec<BucketId> {
        let mut queue = self.queue.lock_ignoring_poison();
        let count = queue.len().min(MAX_REPORTS);
        queue.drain(..count).collect()
    }

    /// The buckets that wait for the next exchange.
    pub(super) fn queued(&self) -> Vec<BucketId> {
        self.queue.lock_ignoring_poison().clone()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queue.lock_ignoring_poison().is_empty()
    }
}
