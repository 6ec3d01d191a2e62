//! Leaky bucket in integer arithmetic: it holds what was used, and a limit of N lets it leak N per minute, continuously.

use estrade_model::rate::{RATE_ONE, RateUnit};
use std::num::NonZeroU32;
use std::time::Duration;

/// One request or token, in the fractions of a bucket: a microsecond gives back N of them.
pub(crate) const ONE: u128 = RATE_ONE as u128;

/// One bucket: the id of its key or workspace, and what it counts.
pub(crate) type BucketId = ([u8; 12], RateUnit);

/// The state of a limit, as the `x-ratelimit-*` headers show it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RateLimitStatus {
    pub(crate) limit: u32,
    pub(crate) remaining: u64,
    /// Until nothing is used any more.
    pub(crate) reset: Duration,
}

#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Bucket {
    pub(crate) used: u128,
}

impl Bucket {
    pub(crate) fn leak(&mut self, limit: Option<NonZeroU32>, micros: u64) {
        let leaked = limit.map_or(u128::MAX, |limit| {
            u128::from(limit.get()) * u128::from(micros)
        });
        self.used = self.used.saturating_sub(leaked);
    }

    /// Takes what is asked for. More than the whole bucket is given when it is full, else it never could be.
    pub(crate) fn take(&mut self, limit: NonZeroU32, count: u64) -> Result<(), Duration> {
        let wanted = u128::from(count) * ONE;
        if !self.has_room(limit, wanted) {
            return Err(self.retry(limit, wanted));
        }
        self.used += wanted;
        Ok(())
    }

    pub(crate) fn has_room(self, limit: NonZeroU32, wanted: u128) -> bool {
        self.used == 0 || self.used + wanted <= size(limit)
    }

    /// Until there is room for so much, when nobody else takes any.
    pub(crate) fn retry(self, limit: NonZeroU32, wanted: u128) -> Duration {
        let over = (self.used + wanted).saturating_sub(size(limit));
        micros(over.min(self.used).div_ceil(u128::from(limit.get())))
    }

    pub(crate) fn status(self, limit: NonZeroU32) -> RateLimitStatus {
        let free = size(limit).saturating_sub(self.used);
        RateLimitStatus {
            limit: limit.get(),
            remaining: u64::try_from(free / ONE).unwrap_or(u64::MAX),
            reset: micros(self.used.div_ceil(u128::from(limit.get()))),
        }
    }
}

/// What a bucket holds at most.
pub(crate) fn size(limit: NonZeroU32) -> u128 {
    u128::from(limit.get()) * ONE
}

fn micros(count: u128) -> Duration {
    Duration::from_micros(u64::try_from(count).unwrap_or(u64::MAX))
}
