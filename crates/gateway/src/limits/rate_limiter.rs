//! Rate limiter: requests and tokens per minute, of keys and of workspaces. Exact on this node.
//!
//! Leaky buckets in integer arithmetic: a bucket holds what was used, a limit of N lets it leak N per minute,
//! continuously. A changed limit keeps what was used. Buckets are sharded by id; a charge takes from the key and from
//! its workspace, or from neither.

use crate::auth::{AuthContext, RateLimits};
use estrade_model::sync::MutexExt;
use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;
use tokio::time::Instant;

/// One request or token, in the units of a bucket: a microsecond gives back N of them.
const ONE: u128 = 60_000_000;
const SHARDS: usize = 64;
/// Buckets of a shard are looked through when it has grown by so many.
const PRUNE_INTERVAL: usize = 256;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unit {
    Requests,
    Tokens,
}

/// The state of a limit, as the `x-ratelimit-*` headers show it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RateLimitStatus {
    pub(crate) limit: u32,
    pub(crate) remaining: u64,
    /// Until nothing is used any more.
    pub(crate) reset: Duration,
}

/// A limit that does not let a request through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Exceeded {
    pub(crate) of_workspace: bool,
    pub(crate) unit: Unit,
    pub(crate) status: RateLimitStatus,
    /// Until this very request would be let through.
    pub(crate) retry: Duration,
}

/// How the limits stand after a request was let through: the key's, else its workspace's.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct RateLimitStatuses {
    pub(crate) requests: Option<RateLimitStatus>,
    pub(crate) tokens: Option<RateLimitStatus>,
}

/// What was taken from the buckets, to be settled or refunded.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RateLimitCharge {
    unit: Unit,
    count: u64,
    at: Instant,
    key: Option<BucketOwner>,
    workspace: Option<BucketOwner>,
}

/// Whose buckets, and how large they are.
type BucketOwner = ([u8; 12], RateLimits);

#[derive(Debug, Clone, Copy, Default)]
struct Bucket {
    used: u128,
}

impl Bucket {
    fn leak(&mut self, limit: Option<NonZeroU32>, micros: u64) {
        let leaked = limit.map_or(u128::MAX, |limit| {
            u128::from(limit.get()) * u128::from(micros)
        });
        self.used = self.used.saturating_sub(leaked);
    }

    /// Takes what is asked for. More than the whole bucket is given when it is full, else it never could be.
    fn take(&mut self, limit: Option<NonZeroU32>, count: u64) -> Result<(), Duration> {
        let Some(limit) = limit else { return Ok(()) };
        let (size, wanted) = (u128::from(limit.get()) * ONE, u128::from(count) * ONE);
        if self.used + wanted > size && self.used > 0 {
            let over = (self.used + wanted - size).min(self.used);
            return Err(micros(over.div_ceil(u128::from(limit.get()))));
        }
        self.used += wanted;
        Ok(())
    }

    fn status(self, limit: Option<NonZeroU32>) -> Option<RateLimitStatus> {
        let limit = limit?.get();
        let size = u128::from(limit) * ONE;
        Some(RateLimitStatus {
            limit,
            remaining: u64::try_from(size.saturating_sub(self.used) / ONE).unwrap_or(u64::MAX),
            reset: micros(self.used.div_ceil(u128::from(limit))),
        })
    }
}

fn micros(count: u128) -> Duration {
    Duration::from_micros(u64::try_from(count).unwrap_or(u64::MAX))
}

/// The buckets of one key or workspace.
#[derive(Debug)]
struct Buckets {
    at: Instant,
    limits: RateLimits,
    requests: Bucket,
    tokens: Bucket,
}

impl Buckets {
    fn new(now: Instant, limits: RateLimits) -> Self {
        Self {
            at: now,
            limits,
            requests: Bucket::default(),
            tokens: Bucket::default(),
        }
    }

    fn of(&mut self, unit: Unit) -> &mut Bucket {
        match unit {
            Unit::Requests => &mut self.requests,
            Unit::Tokens => &mut self.tokens,
        }
    }

    fn forward(&mut self, now: Instant, limits: RateLimits) {
        let passed = now.saturating_duration_since(self.at);
        let passed = u64::try_from(passed.as_micros()).unwrap_or(u64::MAX);
        self.requests.leak(self.limits.rpm, passed);
        self.tokens.leak(self.limits.tpm, passed);
        // Not simply `now`: what is less than a microsecond must not be lost with each request.
        self.at += Duration::from_micros(passed);
        self.limits = limits;
    }

    fn is_full(&self) -> bool {
        self.requests.used == 0 && self.tokens.used == 0
    }
}

#[derive(Default)]
struct Shard {
    buckets: HashMap<[u8; 12], Buckets>,
    prune_at: usize,
}

/// All buckets of this node.
pub(crate) struct RateLimiter {
    shards: Vec<Mutex<Shard>>,
}

impl RateLimiter {
    pub(crate) fn new() -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
        }
    }

    fn shard(&self, id: &[u8; 12]) -> MutexGuard<'_, Shard> {
        // The last byte of an id is random.
        self.shards[usize::from(id[11]) % SHARDS].lock_ignoring_poison()
    }

    /// Whether there is a limit at all.
    pub(crate) fn applies(auth: &AuthContext, unit: Unit) -> bool {
        [auth.key.rates, auth.workspace.rates]
            .into_iter()
            .any(|rates| limit(rates, unit).is_some())
    }

    /// Takes so many from the buckets of a key and of its workspace: from both, or from none. Nothing
    /// is taken where there is no limit.
    pub(crate) fn take(
        &self,
        auth: &AuthContext,
        unit: Unit,
        count: u64,
        now: Instant,
    ) -> Result<Option<(RateLimitCharge, RateLimitStatus)>, Exceeded> {
        let owner = |id: &[u8; 12], rates| limit(rates, unit).map(|_| (*id, rates));
        let key = owner(auth.key.id.as_bytes(), auth.key.rates);
        let workspace = owner(auth.workspace.id.as_bytes(), auth.workspace.rates);
        let mut charge = RateLimitCharge {
            unit,
            count,
            at: now,
            key: None,
            workspace: None,
        };
        let mut status = None;
        if let Some(key) = key {
            status = self.take_from(key, false, &charge)?;
            charge.key = Some(key);
        }
        if let Some(workspace) = workspace {
            let outcome = self.take_from(workspace, true, &charge);
            let of_workspace = outcome.inspect_err(|_| self.settle(&charge, 0, now))?;
            charge.workspace = Some(workspace);
            status = status.or(of_workspace);
        }
        Ok(status.map(|status| (charge, status)))
    }

    fn take_from(
        &self,
        (id, limits): BucketOwner,
        of_workspace: bool,
        charge: &RateLimitCharge,
    ) -> Result<Option<RateLimitStatus>, Exceeded> {
        let (unit, now) = (charge.unit, charge.at);
        let mut shard = self.shard(&id);
        shard.prune(now);
        let buckets = shard
            .buckets
            .entry(id)
            .or_insert_with(|| Buckets::new(now, limits));
        buckets.forward(now, limits);
        let limit = limit(limits, unit);
        let outcome = buckets.of(unit).take(limit, charge.count);
        let status = buckets.of(unit).status(limit);
        drop(shard);
        match outcome {
            Ok(()) => Ok(status),
            Err(retry) => Err(Exceeded {
                of_workspace,
                unit,
                status: status.unwrap_or(RateLimitStatus {
                    limit: 0,
                    remaining: 0,
                    reset: retry,
                }),
                retry,
            }),
        }
    }

    /// Replaces what was taken by what was really used.
    pub(crate) fn settle(&self, charge: &RateLimitCharge, used: u64, now: Instant) {
        let unit = charge.unit;
        let passed = now.saturating_duration_since(charge.at).as_micros();
        for (id, limits) in [charge.key, charge.workspace].into_iter().flatten() {
            let Some(limit) = limit(limits, unit) else {
                continue;
            };
            let (had, used) = (u128::from(charge.count) * ONE, u128::from(used) * ONE);
            let mut shard = self.shard(&id);
            if used > had {
                let new = || Buckets::new(now, limits);
                let buckets = shard.buckets.entry(id).or_insert_with(new);
                let limits = buckets.limits;
                buckets.forward(now, limits);
                buckets.of(unit).used += used - had;
            } else if let Some(buckets) = shard.buckets.get_mut(&id) {
                // What has leaked in the meantime is back already. Without the excess it would have been as much, unless
                // the bucket had run dry: so only the rest is refunded.
                let leaked = u128::from(limit.get()).saturating_mul(passed);
                let back = had.saturating_sub(used.max(leaked));
                let limits = buckets.limits;
                buckets.forward(now, limits);
                let bucket = buckets.of(unit);
                bucket.used = bucket.used.saturating_sub(back);
            }
        }
    }
}

fn limit(rates: RateLimits, unit: Unit) -> Option<NonZeroU32> {
    match unit {
        Unit::Requests => rates.rpm,
        Unit::Tokens => rates.tpm,
    }
}

impl Shard {
    /// Forgets buckets that are full again; now and then, so that it costs nothing per request.
    fn prune(&mut self, now: Instant) {
        if self.buckets.len() <= self.prune_at.max(PRUNE_INTERVAL) {
            return;
        }
        self.buckets.retain(|_, buckets| {
            buckets.forward(now, buckets.limits);
            !buckets.is_full()
        });
        self.prune_at = self.buckets.len() + PRUNE_INTERVAL;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::{AuthorizedKey, AuthorizedWorkspace};
    use estrade_model::Id;
    use std::sync::Arc;

    fn rates(rpm: u32, tpm: u32) -> RateLimits {
        RateLimits {
            rpm: NonZeroU32::new(rpm),
            tpm: NonZeroU32::new(tpm),
        }
    }

    fn auth(number: u64, key: RateLimits, workspace: RateLimits) -> AuthContext {
        AuthContext {
            key: AuthorizedKey {
                id: Id::generate(1, number),
                owner: Id::generate(1, 1),
                models: None,
                cache: false,
                rates: key,
                budget: None,
            },
            workspace: Arc::new(AuthorizedWorkspace {
                id: Id::generate(1, number),
                preference: estrade_model::provider::Preference::Order,
                rates: workspace,
                budget: None,
            }),
        }
    }

    fn with_rates(of: &AuthContext, rates: RateLimits) -> AuthContext {
        let mut new = auth(0, rates, of.workspace.rates);
        new.workspace = Arc::clone(&of.workspace);
        new.key.id = of.key.id;
        new
    }

    fn request(
        limiter: &RateLimiter,
        auth: &AuthContext,
        now: Instant,
    ) -> Result<RateLimitStatus, Exceeded> {
        let charge = limiter.take(auth, Unit::Requests, 1, now)?;
        Ok(charge.unwrap().1)
    }

    fn tokens(
        limiter: &RateLimiter,
        auth: &AuthContext,
        count: u64,
        now: Instant,
    ) -> Result<(RateLimitCharge, RateLimitStatus), Exceeded> {
        Ok(limiter.take(auth, Unit::Tokens, count, now)?.unwrap())
    }

    #[test]
    fn a_bucket_is_full_at_the_start_and_refills_without_steps() {
        let (limiter, start) = (RateLimiter::new(), Instant::now());
        let auth = auth(1, rates(60, 0), rates(0, 0));
        for left in (0..60).rev() {
            let status = request(&limiter, &auth, start).unwrap();
            assert_eq!(status.remaining, left);
        }
        let unlimited = limiter.take(&auth, Unit::Tokens, 1 << 40, start).unwrap();
        assert!(unlimited.is_none());
        let refused = request(&limiter, &auth, start).unwrap_err();
        assert_eq!(
            (refused.unit, refused.of_workspace),
            (Unit::Requests, false)
        );
        assert_eq!(refused.retry, Duration::from_secs(1));
        assert_eq!(refused.status.reset, Duration::from_mins(1));
        let later = start + Duration::from_millis(999);
        assert!(request(&limiter, &auth, later).is_err());
        let later = start + Duration::from_secs(1);
        assert!(request(&limiter, &auth, later).is_ok());
        assert!(request(&limiter, &auth, later).is_err());
    }

    #[test]
    fn tokens_are_estimated_then_settled() {
        let (limiter, now) = (RateLimiter::new(), Instant::now());
        let auth = auth(2, rates(0, 100), rates(0, 0));
        let (charge, status) = tokens(&limiter, &auth, 80, now).unwrap();
        assert_eq!(status.remaining, 20);
        let refused = tokens(&limiter, &auth, 30, now).unwrap_err();
        assert_eq!(refused.unit, Unit::Tokens);
        limiter.settle(&charge, 10, now);
        let (_, status) = tokens(&limiter, &auth, 30, now).unwrap();
        assert_eq!(status.remaining, 60);
    }

    #[test]
    fn what_has_come_back_by_itself_is_not_given_back_again() {
        let (limiter, start) = (RateLimiter::new(), Instant::now());
        let auth = auth(7, rates(0, 600), rates(0, 0));
        let (slow, _) = tokens(&limiter, &auth, 600, start).unwrap();
        // All of it has come back, and somebody else has taken it.
        let later = start + Duration::from_mins(1);
        tokens(&limiter, &auth, 600, later).unwrap();
        limiter.settle(&slow, 10, later);
        assert!(tokens(&limiter, &auth, 1, later).is_err());
        // Half of it: the other half is given back.
        let much_later = later + Duration::from_mins(2);
        let (slow, _) = tokens(&limiter, &auth, 600, much_later).unwrap();
        let half = much_later + Duration::from_secs(30);
        tokens(&limiter, &auth, 300, half).unwrap();
        limiter.settle(&slow, 10, half);
        assert_eq!(tokens(&limiter, &auth, 1, half).unwrap().1.remaining, 299);
    }

    #[test]
    fn what_was_used_beyond_the_estimate_counts_from_now_on() {
        let (limiter, start) = (RateLimiter::new(), Instant::now());
        let auth = auth(8, rates(0, 600), rates(0, 0));
        let (charge, _) = tokens(&limiter, &auth, 1, start).unwrap();
        let later = start + Duration::from_mins(5);
        for shard in &limiter.shards {
            shard.lock().unwrap().buckets.clear();
        }
        limiter.settle(&charge, 601, later);
        let refused = tokens(&limiter, &auth, 1, later).unwrap_err();
        assert_eq!(refused.status.reset, Duration::from_mins(1));
        // Also when the bucket was not forgotten: what leaked before does not count.
        limiter.settle(&charge, 601, later + Duration::from_mins(5));
        assert!(tokens(&limiter, &auth, 1, later + Duration::from_mins(5)).is_err());
    }

    #[test]
    fn more_than_the_whole_bucket_goes_only_when_it_is_full() {
        let (limiter, now) = (RateLimiter::new(), Instant::now());
        let auth = auth(3, rates(0, 60), rates(0, 0));
        tokens(&limiter, &auth, 600, now).unwrap();
        let refused = tokens(&limiter, &auth, 1, now + Duration::from_mins(1)).unwrap_err();
        assert_eq!(refused.retry, Duration::from_secs(600 - 60 - 60 + 1));
        assert!(tokens(&limiter, &auth, 600, now + Duration::from_secs(599)).is_err());
        assert!(tokens(&limiter, &auth, 600, now + Duration::from_secs(601)).is_ok());
    }

    #[test]
    fn what_was_taken_is_given_back_when_the_workspace_refuses() {
        let (limiter, now) = (RateLimiter::new(), Instant::now());
        let auth = auth(4, rates(10, 1000), rates(1, 100));
        request(&limiter, &auth, now).unwrap();
        tokens(&limiter, &auth, 100, now).unwrap();
        for _ in 0..20 {
            let refused = request(&limiter, &auth, now).unwrap_err();
            assert!(refused.of_workspace, "{refused:?}");
            let refused = tokens(&limiter, &auth, 100, now).unwrap_err();
            assert!(refused.of_workspace, "{refused:?}");
        }
        let mut alone = with_rates(&auth, rates(10, 1000));
        alone.workspace = pass_without_limits(&alone);
        assert_eq!(request(&limiter, &alone, now).unwrap().remaining, 8);
        let (_, status) = tokens(&limiter, &alone, 100, now).unwrap();
        assert_eq!(status.remaining, 800);
    }

    fn pass_without_limits(of: &AuthContext) -> Arc<AuthorizedWorkspace> {
        Arc::new(AuthorizedWorkspace {
            id: of.workspace.id,
            preference: of.workspace.preference,
            rates: RateLimits::default(),
            budget: None,
        })
    }

    #[test]
    fn a_changed_limit_keeps_what_was_used() {
        let (limiter, now) = (RateLimiter::new(), Instant::now());
        let before = auth(5, rates(10, 0), rates(0, 0));
        for _ in 0..10 {
            request(&limiter, &before, now).unwrap();
        }
        let after = with_rates(&before, rates(12, 0));
        assert!(request(&limiter, &after, now).is_ok());
        assert!(request(&limiter, &after, now).is_ok());
        assert!(request(&limiter, &after, now).is_err());
    }

    #[test]
    fn full_buckets_are_forgotten() {
        let (limiter, now) = (RateLimiter::new(), Instant::now());
        for number in 0..100_000 {
            let at = now + Duration::from_millis(number);
            let auth = auth(number * 7, rates(60, 0), rates(0, 0));
            request(&limiter, &auth, at).unwrap();
        }
        let kept: usize = limiter
            .shards
            .iter()
            .map(|shard| shard.lock().unwrap().buckets.len())
            .sum();
        assert!(kept < 3 * SHARDS * PRUNE_INTERVAL, "{kept}");
    }

    #[test]
    fn many_threads_take_exactly_what_is_there() {
        let (limiter, now) = (RateLimiter::new(), Instant::now());
        let auth = auth(6, rates(500, 0), rates(0, 0));
        let admitted: usize = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8)
                .map(|_| {
                    scope.spawn(|| {
                        (0..200)
                            .filter(|_| request(&limiter, &auth, now).is_ok())
                            .count()
                    })
                })
                .collect();
            threads
                .into_iter()
                .map(|thread| thread.join().unwrap())
                .sum()
        });
        assert_eq!(admitted, 500);
    }
}
