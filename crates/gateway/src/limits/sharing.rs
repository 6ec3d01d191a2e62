//! This node's side of the shared buckets: whether there are other nodes, and a queue of the buckets that were used.

use super::bucket::BucketId;
use super::report_queue::ReportQueue;
use super::shared_bucket::SharedBucket;
use crate::shared_rates::SharedRates;
use estrade_model::sync::MutexExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use tokio::sync::Notify;

/// This node's side of the shared buckets.
#[derive(Default)]
pub(crate) struct Sharing {
    /// None: there is no other node.
    pub(super) rates: Option<Arc<dyn SharedRates>>,
    queue: Mutex<ReportQueue>,
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

    /// Puts a bucket in the queue of reports, or further ahead once a call waits for it.
    pub(super) fn enqueue(&self, id: BucketId, bucket: &mut SharedBucket) {
        let is_awaited = bucket.is_waited_for();
        match bucket.place {
            Some(place) if place.is_awaited || !is_awaited => return,
            Some(place) => {
                let Some(place) = self.queue.lock_ignoring_poison().move_ahead(place) else {
                    // It was popped, and its report will contain this call. With a second place it could be reported
                    // twice in one exchange.
                    return;
                };
                bucket.place = Some(place);
            }
            None => {
                let place = self.queue.lock_ignoring_poison().push(id, is_awaited);
                bucket.place = Some(place);
                self.queued.notify_one();
            }
        }
        if is_awaited {
            self.urgent.notify_one();
        }
    }

    pub(super) fn next_reports(&self) -> Vec<BucketId> {
        self.queue.lock_ignoring_poison().pop()
    }

    /// The buckets with calls that wait for a later exchange.
    pub(super) fn awaited(&self) -> Vec<BucketId> {
        self.queue.lock_ignoring_poison().awaited()
    }

    pub(super) fn is_awaited(&self) -> bool {
        self.queue.lock_ignoring_poison().is_awaited()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queue.lock_ignoring_poison().is_empty()
    }
}
