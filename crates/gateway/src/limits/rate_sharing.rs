//! Sharing of rate limits with other nodes: a queue of buckets that were used, and the exchange that reports them.
//!
//! One exchange at a time. Buckets that are used meanwhile wait together for the next one, so that the number of
//! statements does not grow with the number of calls.

use super::rate_limiter::{BucketId, RateLimiter};
use super::shared_bucket::SharedBucket;
use estrade_model::rate::{RateReply, RateReport};
use estrade_model::sync::MutexExt;
use futures_util::future::BoxFuture;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout};

/// Buckets of one exchange.
const MAX_REPORTS: usize = 256;
/// Longer than an exchange takes, shorter than a call may wait.
const EXCHANGE_TIMEOUT: Duration = Duration::from_secs(1);
/// Between two exchanges that no call waits for.
const REPORT_DELAY: Duration = Duration::from_millis(10);
/// Between attempts while the shared buckets cannot be reached.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// The buckets that all nodes of an installation share.
pub trait SharedRates: Send + Sync + 'static {
    /// Whether there is no other node for certain: then this one decides by itself.
    fn is_alone(&self) -> bool;

    /// How many nodes are alive, as far as this one knows.
    fn nodes(&self) -> usize;

    /// Adds what was used and grants what there is room for: a reply to each report, in order.
    fn exchange<'a>(
        &'a self,
        reports: &'a [RateReport],
    ) -> BoxFuture<'a, Result<Vec<RateReply>, SharedRatesUnavailable>>;
}

/// The shared buckets cannot be reached. The cause was logged.
#[derive(Debug, Clone, Copy)]
pub struct SharedRatesUnavailable;

/// This node's side of the shared buckets.
#[derive(Default)]
pub(crate) struct Sharing {
    /// None: there is no other node.
    rates: Option<Arc<dyn SharedRates>>,
    /// Each bucket is in it once at most.
    queue: Mutex<Vec<BucketId>>,
    queued: Notify,
    /// A call waits.
    urgent: Notify,
    is_unreachable: AtomicBool,
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

    fn next_reports(&self) -> Vec<BucketId> {
        let mut queue = self.queue.lock_ignoring_poison();
        let count = queue.len().min(MAX_REPORTS);
        queue.drain(..count).collect()
    }

    fn is_empty(&self) -> bool {
        self.queue.lock_ignoring_poison().is_empty()
    }
}

impl RateLimiter {
    /// Reports what is used, for ever.
    pub(crate) async fn share(&self) {
        loop {
            self.sharing.queued.notified().await;
            while !self.sharing.is_empty() {
                if !self.exchange().await {
                    sleep(RETRY_DELAY).await;
                }
            }
            tokio::select! {
                () = sleep(REPORT_DELAY) => {}
                () = self.sharing.urgent.notified() => {}
            }
        }
    }

    /// Reports what is left before the process ends, once, and lets no call wait from now on.
    pub(crate) async fn stop_sharing(&self) {
        while !self.sharing.is_empty() && self.exchange().await {}
        self.sharing.is_unreachable.store(true, Ordering::Relaxed);
        for id in self.sharing.next_reports() {
            self.finish_report(id, None, Instant::now());
        }
    }

    /// One exchange; false when the shared buckets could not be reached.
    async fn exchange(&self) -> bool {
        let Some(rates) = &self.sharing.rates else {
            return true;
        };
        let now = Instant::now();
        let ids = self.sharing.next_reports().into_iter();
        let reported = ids.filter_map(|id| Some((id, self.report(id, now)?)));
        let (ids, reports): (Vec<_>, Vec<_>) = reported.unzip();
        if reports.is_empty() {
            return true;
        }
        let replies = timeout(EXCHANGE_TIMEOUT, rates.exchange(&reports)).await;
        let replies = match replies {
            Ok(Ok(replies)) if replies.len() == reports.len() => Some(replies),
            _ => None,
        };
        // Before calls are told: those that have to decide by themselves look at it.
        let is_reached = replies.is_some();
        let was_unreachable = (self.sharing.is_unreachable).swap(!is_reached, Ordering::Relaxed);
        if was_unreachable == is_reached {
            report_state(is_reached);
        }
        let mut replies = replies.into_iter().flatten();
        let now = Instant::now();
        for id in ids {
            self.finish_report(id, replies.next(), now);
        }
        is_reached
    }
}

fn report_state(is_reached: bool) {
    if is_reached {
        tracing::info!("rate limits are shared with the other nodes again");
    } else {
        tracing::warn!(
            "rate limits cannot be shared with the other nodes: each admits its share of every limit"
        );
    }
}
