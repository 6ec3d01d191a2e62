//! Rate limits per credential.
//!
//! One small limiter per credential, in a cache of bounded size: a client with endless credentials
//! evicts limiters, it does not grow the process.

use governor::clock::{Clock, DefaultClock};
use governor::middleware::StateInformationMiddleware;
use governor::state::{InMemoryState, NotKeyed};
use governor::{Quota, RateLimiter};
use quick_cache::sync::Cache;
use std::convert::Infallible;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

type Limiter = RateLimiter<NotKeyed, InMemoryState, DefaultClock, StateInformationMiddleware>;

/// How many credentials are watched at once.
const MAX_LIMITERS: usize = 100_000;

/// Where a credential stands with its limit: the values of the `RateLimit-*` headers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RateLimitStatus {
    /// How many requests may come at once.
    pub limit: u32,
    /// How many of them are left.
    pub remaining: u32,
    /// When all of them are there again.
    pub reset: Duration,
    /// When the next request is taken; zero unless the limit is reached.
    pub retry_after: Duration,
}

/// A limit for each credential.
pub struct RateLimits {
    limit: Option<Limit>,
}

struct Limit {
    quota: Quota,
    clock: DefaultClock,
    limiters: Cache<Vec<u8>, Arc<Limiter>>,
}

impl RateLimits {
    /// So many requests per second, and so many at once. A rate of 0 is no limit.
    pub fn new(per_second: u32, burst: u32) -> Self {
        let limit = NonZeroU32::new(per_second).map(|rate| Limit {
            quota: Quota::per_second(rate).allow_burst(NonZeroU32::new(burst).unwrap_or(rate)),
            clock: DefaultClock::default(),
            limiters: Cache::new(MAX_LIMITERS),
        });
        Self { limit }
    }

    /// Counts one request of a credential; `None` when there is no limit, an error when it is reached.
    ///
    /// `credential` is any short stable key of it (an id, a hash), never the secret itself.
    pub fn check(&self, credential: &[u8]) -> Result<Option<RateLimitStatus>, RateLimitStatus> {
        self.limit
            .as_ref()
            .map(|limit| limit.check(credential))
            .transpose()
    }
}

impl Limit {
    fn check(&self, credential: &[u8]) -> Result<RateLimitStatus, RateLimitStatus> {
        let fresh =
            || Ok::<_, Infallible>(Arc::new(RateLimiter::direct(self.quota).with_middleware()));
        let Ok(limiter) = self.limiters.get_or_insert_with(credential, fresh);
        match limiter.check() {
            Ok(state) => Ok(self.status(state.remaining_burst_capacity(), Duration::ZERO)),
            Err(refusal) => {
                let wait = refusal.wait_time_from(self.clock.now());
                Err(self.status(0, wait))
            }
        }
    }

    fn status(&self, remaining: u32, retry_after: Duration) -> RateLimitStatus {
        let limit = self.quota.burst_size().get();
        RateLimitStatus {
            limit,
            remaining,
            reset: self.quota.replenish_interval() * limit.saturating_sub(remaining),
            retry_after,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_credential_has_its_own_bucket() {
        let limits = RateLimits::new(1, 3);
        for left in [2, 1, 0] {
            let status = limits.check(b"first-caller").unwrap().unwrap();
            assert_eq!((status.limit, status.remaining), (3, left));
        }
        let Err(status) = limits.check(b"first-caller") else {
            panic!("not limited")
        };
        assert_eq!(status.remaining, 0);
        assert!(
            status.retry_after > Duration::ZERO && status.retry_after <= Duration::from_secs(1)
        );
        assert!(limits.check(b"other-caller").is_ok());
    }

    #[test]
    fn zero_is_off() {
        let limits = RateLimits::new(0, 0);
        assert!((0..10_000).all(|_| limits.check(b"caller").unwrap().is_none()));
    }
}
