//! Sharing of rate limits with other nodes: the exchange that reports what was used.
//!
//! One exchange at a time. Buckets that are used meanwhile wait together for the next one, so that the number of
//! statements does not grow with the number of calls.

use super::rate_limiter::{RateLimiter, Reply};
use std::pin::pin;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout};

/// Longer than an exchange takes, shorter than a call may wait.
const EXCHANGE_TIMEOUT: Duration = Duration::from_secs(1);
/// Between two exchanges that no call waits for.
const REPORT_DELAY: Duration = Duration::from_millis(10);
/// Between attempts while the shared buckets cannot be reached.
const RETRY_DELAY: Duration = Duration::from_secs(1);

impl RateLimiter {
    /// Reports what is used, for ever.
    pub(crate) async fn share(&self) {
        loop {
            if self.sharing.is_empty() {
                self.sharing.queued.notified().await;
            }
            if !self.exchange().await {
                sleep(RETRY_DELAY).await;
            }
            self.pause().await;
        }
    }

    /// Waits between two exchanges, also under load when the queue is never empty, but not while a call waits.
    async fn pause(&self) {
        let mut pause = pin!(sleep(REPORT_DELAY));
        while !self.sharing.is_awaited() {
            tokio::select! {
                () = &mut pause => return,
                () = self.sharing.urgent.notified() => {}
            }
        }
    }

    /// Reports what is left before the process ends, once, and lets no call wait from now on.
    pub(crate) async fn stop_sharing(&self) {
        while !self.sharing.is_empty() && self.exchange().await {}
        self.sharing.is_unreachable.store(true, Ordering::Relaxed);
        self.release_all();
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
        let outcome = timeout(EXCHANGE_TIMEOUT, rates.exchange(&reports)).await;
        let replies: Vec<_> = match outcome {
            Ok(Ok(all)) if all.len() == reports.len() => {
                all.into_iter().map(Reply::Arrived).collect()
            }
            Ok(_) => vec![Reply::Refused; reports.len()],
            Err(_) => vec![Reply::Late; reports.len()],
        };
        let is_reached = matches!(replies.first(), Some(Reply::Arrived(_)));
        // Before calls are told: those that have to decide by themselves look at it.
        let was_unreachable = (self.sharing.is_unreachable).swap(!is_reached, Ordering::Relaxed);
        if was_unreachable == is_reached {
            report_state(is_reached);
        }
        let now = Instant::now();
        for (id, reply) in ids.into_iter().zip(replies) {
            self.finish_report(id, reply, now);
        }
        if !is_reached {
            // Those of later exchanges would wait for as many timeouts.
            for id in self.sharing.awaited() {
                self.release_waiting(id);
            }
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
