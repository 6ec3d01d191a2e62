//! A probe for health checks: an attempt tells whether something works.
//!
//! One task attempts, and only on request, so that one attempt is under way however many ask.

use estrade_model::error::error_chain;
use estrade_model::sync::MutexExt;
use std::error::Error;
use std::future::Future;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

/// How long a request waits for an attempt.
const RESPONSE_TIMEOUT: Duration = Duration::from_millis(500);

/// What a probe allows itself.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ProbeTimes {
    /// How long a good outcome counts.
    pub(crate) success_ttl: Duration,
    /// How long a bad one does.
    pub(crate) failure_ttl: Duration,
    /// An attempt that takes longer has failed, even if it should succeed later.
    pub(crate) attempt_timeout: Duration,
}

/// What came of the last attempt.
#[derive(Debug, Clone, Copy)]
struct Outcome {
    good: bool,
    at: Option<Instant>,
}

/// Whether something works.
pub(crate) struct OnDemandProbe {
    times: ProbeTimes,
    wanted: Notify,
    outcome: watch::Sender<Outcome>,
    /// When the attempt began that is under way.
    began: Mutex<Option<Instant>>,
}

impl OnDemandProbe {
    /// A probe that has not attempted anything yet; [`Self::run`] does.
    pub(crate) fn new(times: ProbeTimes) -> Self {
        let outcome = Outcome {
            good: true,
            at: None,
        };
        Self {
            times,
            wanted: Notify::new(),
            outcome: watch::Sender::new(outcome),
            began: Mutex::default(),
        }
    }

    /// Whether it works, as far as can be found out within half a second.
    pub(crate) async fn is_good(&self) -> bool {
        let mut outcomes = self.outcome.subscribe();
        let last = *outcomes.borrow_and_update();
        let good_for = if last.good {
            self.times.success_ttl
        } else {
            self.times.failure_ttl
        };
        if last.at.is_some_and(|at| at.elapsed() < good_for) {
            return last.good;
        }
        self.wanted.notify_one();
        match timeout(RESPONSE_TIMEOUT, outcomes.changed()).await {
            Ok(_) => outcomes.borrow().good,
            Err(_) => last.good && !self.is_stuck(),
        }
    }

    fn is_stuck(&self) -> bool {
        let began = *self.began();
        began.is_some_and(|at| at.elapsed() >= self.times.attempt_timeout)
    }

    fn began(&self) -> MutexGuard<'_, Option<Instant>> {
        self.began.lock_ignoring_poison()
    }

    /// Attempts on each request until `stop` is cancelled. Logs `failed` and `works_again` once per outage.
    pub(crate) async fn run<E: Error + 'static, A: Future<Output = Result<(), E>>>(
        &self,
        stop: &CancellationToken,
        attempt: impl Fn() -> A,
        failed: &'static str,
        works_again: &'static str,
    ) {
        while stop
            .run_until_cancelled(self.wanted.notified())
            .await
            .is_some()
        {
            *self.began() = Some(Instant::now());
            let Some(attempted) = stop.run_until_cancelled(attempt()).await else {
                return;
            };
            *self.began() = None;
            let before = self.outcome.send_replace(Outcome {
                good: attempted.is_ok(),
                at: Some(Instant::now()),
            });
            match attempted {
                Err(error) if before.good => {
                    tracing::error!(error = error_chain(&error), "{failed}");
                }
                Ok(()) if !before.good => tracing::info!("{works_again}"),
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    const TIMES: ProbeTimes = ProbeTimes {
        success_ttl: Duration::from_secs(10),
        failure_ttl: Duration::from_secs(1),
        attempt_timeout: Duration::from_secs(3),
    };

    /// A probe whose attempts do what the test says.
    fn start<A: Future<Output = io::Result<()>> + Send>(
        attempt: impl Fn() -> A + Send + Sync + 'static,
    ) -> (Arc<OnDemandProbe>, tokio::task::JoinSet<()>) {
        let probe = Arc::new(OnDemandProbe::new(TIMES));
        let mut tasks = tokio::task::JoinSet::new();
        let running = Arc::clone(&probe);
        tasks.spawn(async move {
            let stop = CancellationToken::new();
            running.run(&stop, attempt, "failed", "works again").await;
        });
        (probe, tasks)
    }

    #[tokio::test(start_paused = true)]
    async fn an_outcome_counts_for_its_time() {
        let attempts = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&attempts);
        let (probe, _tasks) = start(move || {
            let number = counted.fetch_add(1, Ordering::SeqCst);
            async move {
                if number == 0 {
                    return Err(io::ErrorKind::Other.into());
                }
                Ok(())
            }
        });
        let made = || attempts.load(Ordering::SeqCst);
        for _ in 0..5 {
            assert!(!probe.is_good().await);
        }
        assert_eq!(made(), 1);
        tokio::time::advance(TIMES.failure_ttl).await;
        for _ in 0..5 {
            assert!(probe.is_good().await);
        }
        assert_eq!(made(), 2);
        tokio::time::advance(TIMES.success_ttl).await;
        assert!(probe.is_good().await);
        assert_eq!(made(), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn an_attempt_that_does_not_end_has_failed() {
        let (probe, _tasks) = start(std::future::pending);
        assert!(probe.is_good().await, "it may still succeed");
        tokio::time::advance(TIMES.attempt_timeout).await;
        assert!(!probe.is_good().await);
    }
}
