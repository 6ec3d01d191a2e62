//! Requests to the bucket, repeated with exponential backoff and full jitter while they fail in a way that may pass.
//!
//! Every request here can be repeated: an object is put under a name of its own, and deleting twice is deleting once.

use std::future::Future;
use std::time::{Duration, Instant};

use tokio::time::{sleep, timeout};

use super::failure::Failure;
use super::outage::{Admission, Outage};

const MAX_ATTEMPTS: u32 = 6;
const MIN_DELAY: Duration = Duration::from_millis(100);
const MAX_DELAY: Duration = Duration::from_secs(2);
/// No attempt begins later than this after the first one.
const TOTAL_LIMIT: Duration = Duration::from_secs(10);

/// Makes a request until it succeeds, is refused, or there were enough attempts. `limit` is the time for one of them,
/// `probe` asks whether the bucket answers at all: after an outage, and before one is declared.
pub(super) async fn with_retries<T, R, P>(
    outage: &Outage,
    limit: Duration,
    probe: impl Fn() -> P,
    mut request: impl FnMut() -> R,
) -> Result<T, Failure>
where
    R: Future<Output = Result<T, Failure>>,
    P: Future<Output = bool>,
{
    match outage.admit() {
        Admission::Granted => {}
        Admission::Refused => return Err(still_out()),
        Admission::Probe(right) => {
            if !probe().await {
                return Err(still_out());
            }
            right.succeeded();
        }
    }
    let began = Instant::now();
    let mut attempt = 0;
    loop {
        let outcome = timeout(limit, request()).await;
        let failure = match outcome.unwrap_or_else(|_| Err(Failure::timeout())) {
            Ok(value) => {
                outage.end();
                return Ok(value);
            }
            Err(failure) if !failure.is_transient() => return Err(failure),
            Err(failure) => failure,
        };
        attempt += 1;
        let delay = jittered_delay(attempt);
        let is_late = began.elapsed() + delay > TOTAL_LIMIT;
        if attempt == MAX_ATTEMPTS || is_late || outage.is_open() {
            // Not for one object that cannot be read or one body that is too slow: all others would fail with it.
            if !outage.is_open() && !probe().await {
                outage.begin();
            }
            return Err(failure);
        }
        sleep(delay).await;
    }
}

fn still_out() -> Failure {
    Failure::transient("it did not answer a moment ago")
}

/// Full jitter: those who failed at the same moment do not come back at the same moment.
fn jittered_delay(attempt: u32) -> Duration {
    let max = MIN_DELAY.saturating_mul(1 << attempt.min(8)).min(MAX_DELAY);
    max.mul_f64(fastrand::f64())
}
