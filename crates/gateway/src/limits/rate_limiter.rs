//! Rate limiter: requests and tokens per minute, of keys and of workspaces.
//!
//! Leaky buckets ([`Bucket`]). A changed limit keeps what was used. Buckets are sharded by id; a charge takes from the
//! key and from its workspace, or from neither. A node that is alone decides by its own buckets, exactly. Nodes that
//! share their limits decide by what they know of the [shared ones](super::shared_bucket), and
//! [`rate_sharing`](super::rate_sharing) reports what they used; while these cannot be reached, each node admits its
//! share of every limit.

use super::bucket::{Bucket, ONE, RateLimitStatus};
use super::rate_sharing::Sharing;
use super::shared_bucket::{Decision, Judgement, SharedBucket};
use crate::auth::{AuthContext, RateLimits};
use estrade_model::rate::{RateReply, RateReport, RateUnit};
use estrade_model::sync::MutexExt;
use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::Instant;

const SHARDS: usize = 64;
/// Buckets of a shard are looked through when it has grown by so many.
const PRUNE_INTERVAL: usize = 256;
/// What a call is told that could not be decided.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// A limit that does not let a request through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Exceeded {
    pub(crate) of_workspace: bool,
    pub(crate) unit: RateUnit,
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
    unit: RateUnit,
    count: u64,
    at: Instant,
    key: Option<BucketOwner>,
    workspace: Option<BucketOwner>,
}

/// Whose bucket it is, and how large.
#[derive(Debug, Clone, Copy)]
struct BucketOwner {
    id: [u8; 12],
    limits: RateLimits,
    /// The one of them that is charged.
    limit: NonZeroU32,
}

impl BucketOwner {
    /// What one of so many nodes may admit by itself.
    fn share(self, nodes: usize) -> (RateLimits, NonZeroU32) {
        let nodes = u32::try_from(nodes).unwrap_or(u32::MAX).max(1);
        let of_one =
            |limit: NonZeroU32| NonZeroU32::new(limit.get() / nodes).unwrap_or(NonZeroU32::MIN);
        let limits = RateLimits {
            rpm: self.limits.rpm.map(of_one),
            tpm: self.limits.tpm.map(of_one),
        };
        (limits, of_one(self.limit))
    }
}

/// One bucket: whose it is, and of what.
pub(crate) type BucketId = ([u8; 12], RateUnit);

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

    fn of(&mut self, unit: RateUnit) -> &mut Bucket {
        match unit {
            RateUnit::Requests => &mut self.requests,
            RateUnit::Tokens => &mut self.tokens,
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
    shared: HashMap<BucketId, SharedBucket>,
    prune_at: usize,
}

/// All buckets of this node.
pub(crate) struct RateLimiter {
    shards: Vec<Mutex<Shard>>,
    pub(super) sharing: Sharing,
}

/// What came of an attempt to take from one bucket.
enum Attempt {
    Taken(RateLimitStatus),
    Refused(Bucket, NonZeroU32),
    Waits(oneshot::Receiver<Decision>),
}

impl RateLimiter {
    pub(crate) fn new(sharing: Sharing) -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            sharing,
        }
    }

    fn shard(&self, id: &[u8; 12]) -> MutexGuard<'_, Shard> {
        // The last byte of an id is random.
        self.shards[usize::from(id[11]) % SHARDS].lock_ignoring_poison()
    }

    /// Whether there is a limit at all.
    pub(crate) fn applies(auth: &AuthContext, unit: RateUnit) -> bool {
        [auth.key.rates, auth.workspace.rates]
            .into_iter()
            .any(|rates| limit(rates, unit).is_some())
    }

    /// Takes so many from the buckets of a key and of its workspace: from both, or from none. Nothing
    /// is taken where there is no limit. Waits only for a shared bucket that has to decide.
    pub(crate) async fn take(
        &self,
        auth: &AuthContext,
        unit: RateUnit,
        count: u64,
        now: Instant,
    ) -> Result<Option<(RateLimitCharge, RateLimitStatus)>, Exceeded> {
        let owner = |id: &[u8; 12], limits| {
            let limit = limit(limits, unit)?;
            let id = *id;
            Some(BucketOwner { id, limits, limit })
        };
        let key = owner(auth.key.id.as_bytes(), auth.key.rates);
        let workspace = owner(auth.workspace.id.as_bytes(), auth.workspace.rates);
        let mut pending = PendingCharge::new(self, unit, count, now);
        let mut status = None;
        if let Some(key) = key {
            status = Some(self.take_from(key, false, &pending.charge).await?);
            pending.charge.key = Some(key);
        }
        if let Some(workspace) = workspace {
            let of_workspace = self.take_from(workspace, true, &pending.charge).await;
            let of_workspace = of_workspace.inspect_err(|_| pending.refund(now))?;
            pending.charge.workspace = Some(workspace);
            status = status.or(Some(of_workspace));
        }
        let charge = pending.finish();
        Ok(status.map(|status| (charge, status)))
    }

    async fn take_from(
        &self,
        owner: BucketOwner,
        of_workspace: bool,
        charge: &RateLimitCharge,
    ) -> Result<RateLimitStatus, Exceeded> {
        let mut attempt = self.attempt(owner, charge);
        if let Attempt::Waits(decision) = attempt {
            // Boxed, as it is rare and every call carries its future.
            attempt = Box::pin(self.wait(owner, charge, decision)).await;
        }
        match attempt {
            Attempt::Taken(status) => Ok(status),
            Attempt::Refused(bucket, limit) => Err(Exceeded {
                of_workspace,
                unit: charge.unit,
                status: bucket.status(limit),
                retry: bucket.retry(limit, u128::from(charge.count) * ONE),
            }),
            // The shared buckets were lost and found while it waited: rare enough to be refused.
            Attempt::Waits(_) => Err(Exceeded {
                of_workspace,
                unit: charge.unit,
                status: Bucket::default().status(owner.limit),
                retry: RETRY_DELAY,
            }),
        }
    }

    fn attempt(&self, owner: BucketOwner, charge: &RateLimitCharge) -> Attempt {
        let (id, unit, now) = (owner.id, charge.unit, charge.at);
        let wanted = u128::from(charge.count) * ONE;
        let (nodes, is_shared) = (self.sharing.nodes(), self.sharing.is_shared());
        let decides_alone = !is_shared || self.sharing.is_unreachable();
        let (in_force, limit) = if is_shared && decides_alone {
            owner.share(nodes)
        } else {
            (owner.limits, owner.limit)
        };
        let mut shard = self.shard(&id);
        let shard = &mut *shard;
        shard.prune(now);
        let new = || Buckets::new(now, in_force);
        let buckets = shard.buckets.entry(id).or_insert_with(new);
        buckets.forward(now, in_force);
        let own = buckets.of(unit);
        if decides_alone {
            if own.take(limit, charge.count).is_err() {
                return Attempt::Refused(*own, limit);
            }
            if is_shared {
                self.change(&mut shard.shared, owner, unit, wanted.cast_signed());
            }
            return Attempt::Taken(own.status(limit));
        }
        let new = || SharedBucket::new(limit);
        let shared = shard.shared.entry((id, unit)).or_insert_with(new);
        shared.set_limit(limit);
        match shared.judge(*own, wanted, nodes, now) {
            Judgement::Admit => {
                own.used += wanted;
                shared.change(wanted.cast_signed());
                self.sharing.enqueue((id, unit), shared);
                Attempt::Taken(shared.estimate(*own, now).status(limit))
            }
            Judgement::Refuse => Attempt::Refused(shared.estimate(*own, now), limit),
            Judgement::Ask => {
                let decision = shared.ask(wanted);
                self.sharing.enqueue((id, unit), shared);
                Attempt::Waits(decision)
            }
        }
    }

    /// Waits for what the shared bucket decides. A caller who leaves meanwhile gives back what it may have been granted.
    async fn wait(
        &self,
        owner: BucketOwner,
        charge: &RateLimitCharge,
        decision: oneshot::Receiver<Decision>,
    ) -> Attempt {
        let mut undecided = Undecided {
            limiter: self,
            charge: RateLimitCharge {
                key: Some(owner),
                workspace: None,
                ..*charge
            },
            decision,
        };
        match (&mut undecided.decision).await {
            Ok(Decision::Granted(bucket)) => Attempt::Taken(bucket.status(owner.limit)),
            Ok(Decision::Refused(bucket)) => Attempt::Refused(bucket, owner.limit),
            Ok(Decision::Unreachable) | Err(_) => self.attempt(owner, charge),
        }
    }

    /// Replaces what was taken by what was really used.
    pub(crate) fn settle(&self, charge: &RateLimitCharge, used: u64, now: Instant) {
        let unit = charge.unit;
        let passed = now.saturating_duration_since(charge.at).as_micros();
        for owner in [charge.key, charge.workspace].into_iter().flatten() {
            let BucketOwner { id, limits, limit } = owner;
            let (had, used) = (u128::from(charge.count) * ONE, u128::from(used) * ONE);
            let mut shard = self.shard(&id);
            let shard = &mut *shard;
            if used > had {
                let new = || Buckets::new(now, limits);
                let buckets = shard.buckets.entry(id).or_insert_with(new);
                let limits_now = buckets.limits;
                buckets.forward(now, limits_now);
                buckets.of(unit).used += used - had;
                if self.sharing.is_shared() {
                    let more = (used - had).cast_signed();
                    self.change(&mut shard.shared, owner, unit, more);
                }
            } else if let Some(buckets) = shard.buckets.get_mut(&id) {
                // What has leaked in the meantime is back already. Without the excess it would have been as much, unless
                // the bucket had run dry: so only the rest is refunded.
                let leaked = u128::from(limit.get()).saturating_mul(passed);
                let back = had.saturating_sub(used.max(leaked));
                let limits_now = buckets.limits;
                buckets.forward(now, limits_now);
                let bucket = buckets.of(unit);
                bucket.used = bucket.used.saturating_sub(back);
                if back > 0 && self.sharing.is_shared() {
                    self.change(&mut shard.shared, owner, unit, -back.cast_signed());
                }
            }
        }
    }

    /// Notes for the next report what was used here or is given back.
    fn change(
        &self,
        shared: &mut HashMap<BucketId, SharedBucket>,
        owner: BucketOwner,
        unit: RateUnit,
        by: i128,
    ) {
        let id = (owner.id, unit);
        let new = || SharedBucket::new(owner.limit);
        let shared = shared.entry(id).or_insert_with(new);
        shared.change(by);
        self.sharing.enqueue(id, shared);
    }

    /// What is to be reported of a bucket.
    pub(super) fn report(&self, id: BucketId, now: Instant) -> Option<RateReport> {
        let mut shard = self.shard(&id.0);
        let shard = &mut *shard;
        let own = own_bucket(&mut shard.buckets, id, now).copied();
        let shared = shard.shared.get_mut(&id)?;
        shared.report(id, own.unwrap_or_default())
    }

    /// The reply to a report of a bucket, or that there was none.
    pub(super) fn finish_report(&self, id: BucketId, reply: Option<RateReply>, now: Instant) {
        let mut shard = self.shard(&id.0);
        let shard = &mut *shard;
        let Some(shared) = shard.shared.get_mut(&id) else {
            return;
        };
        match reply {
            Some(reply) => {
                let mut unknown = Bucket::default();
                let own = own_bucket(&mut shard.buckets, id, now).unwrap_or(&mut unknown);
                shared.apply(reply, own, now);
            }
            None => shared.give_up(),
        }
        if shared.needs_report() {
            self.sharing.enqueue(id, shared);
        }
    }
}

/// What this node has used of a bucket, without what has leaked.
fn own_bucket(
    buckets: &mut HashMap<[u8; 12], Buckets>,
    (id, unit): BucketId,
    now: Instant,
) -> Option<&mut Bucket> {
    let buckets = buckets.get_mut(&id)?;
    let limits = buckets.limits;
    buckets.forward(now, limits);
    Some(buckets.of(unit))
}

fn limit(rates: RateLimits, unit: RateUnit) -> Option<NonZeroU32> {
    match unit {
        RateUnit::Requests => rates.rpm,
        RateUnit::Tokens => rates.tpm,
    }
}

/// A charge that is refunded when the caller leaves while it waits.
struct PendingCharge<'l> {
    limiter: &'l RateLimiter,
    charge: RateLimitCharge,
    is_finished: bool,
}

impl<'l> PendingCharge<'l> {
    fn new(limiter: &'l RateLimiter, unit: RateUnit, count: u64, now: Instant) -> Self {
        Self {
            limiter,
            charge: RateLimitCharge {
                unit,
                count,
                at: now,
                key: None,
                workspace: None,
            },
            is_finished: false,
        }
    }

    fn refund(&mut self, now: Instant) {
        self.is_finished = true;
        self.limiter.settle(&self.charge, 0, now);
    }

    fn finish(mut self) -> RateLimitCharge {
        self.is_finished = true;
        self.charge
    }
}

impl Drop for PendingCharge<'_> {
    fn drop(&mut self) {
        if !self.is_finished {
            self.refund(Instant::now());
        }
    }
}

/// A call that waits for a shared bucket.
struct Undecided<'l> {
    limiter: &'l RateLimiter,
    /// Of the one bucket.
    charge: RateLimitCharge,
    decision: oneshot::Receiver<Decision>,
}

impl Drop for Undecided<'_> {
    fn drop(&mut self) {
        self.decision.close();
        // Granted, and nobody took it.
        if let Ok(Decision::Granted(_)) = self.decision.try_recv() {
            self.limiter.settle(&self.charge, 0, Instant::now());
        }
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
        self.shared.retain(|_, shared| shared.is_needed(now));
        self.prune_at = self.buckets.len() + PRUNE_INTERVAL;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::{AuthorizedKey, AuthorizedWorkspace};
    use estrade_model::Id;
    use futures_util::FutureExt;
    use std::sync::Arc;

    type Taken = Result<Option<(RateLimitCharge, RateLimitStatus)>, Exceeded>;

    /// What a node that is alone decides, which never waits.
    fn take(
        limiter: &RateLimiter,
        auth: &AuthContext,
        unit: RateUnit,
        count: u64,
        now: Instant,
    ) -> Taken {
        let taken = limiter.take(auth, unit, count, now);
        taken.now_or_never().expect("nothing to wait for")
    }

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
        let charge = take(limiter, auth, RateUnit::Requests, 1, now)?;
        Ok(charge.unwrap().1)
    }

    fn tokens(
        limiter: &RateLimiter,
        auth: &AuthContext,
        count: u64,
        now: Instant,
    ) -> Result<(RateLimitCharge, RateLimitStatus), Exceeded> {
        Ok(take(limiter, auth, RateUnit::Tokens, count, now)?.unwrap())
    }

    #[test]
    fn a_bucket_is_full_at_the_start_and_refills_without_steps() {
        let (limiter, start) = (RateLimiter::new(Sharing::default()), Instant::now());
        let auth = auth(1, rates(60, 0), rates(0, 0));
        for left in (0..60).rev() {
            let status = request(&limiter, &auth, start).unwrap();
            assert_eq!(status.remaining, left);
        }
        let unlimited = take(&limiter, &auth, RateUnit::Tokens, 1 << 40, start).unwrap();
        assert!(unlimited.is_none());
        let refused = request(&limiter, &auth, start).unwrap_err();
        assert_eq!(
            (refused.unit, refused.of_workspace),
            (RateUnit::Requests, false)
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
        let (limiter, now) = (RateLimiter::new(Sharing::default()), Instant::now());
        let auth = auth(2, rates(0, 100), rates(0, 0));
        let (charge, status) = tokens(&limiter, &auth, 80, now).unwrap();
        assert_eq!(status.remaining, 20);
        let refused = tokens(&limiter, &auth, 30, now).unwrap_err();
        assert_eq!(refused.unit, RateUnit::Tokens);
        limiter.settle(&charge, 10, now);
        let (_, status) = tokens(&limiter, &auth, 30, now).unwrap();
        assert_eq!(status.remaining, 60);
    }

    #[test]
    fn what_has_come_back_by_itself_is_not_given_back_again() {
        let (limiter, start) = (RateLimiter::new(Sharing::default()), Instant::now());
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
        let (limiter, start) = (RateLimiter::new(Sharing::default()), Instant::now());
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
        let (limiter, now) = (RateLimiter::new(Sharing::default()), Instant::now());
        let auth = auth(3, rates(0, 60), rates(0, 0));
        tokens(&limiter, &auth, 600, now).unwrap();
        let refused = tokens(&limiter, &auth, 1, now + Duration::from_mins(1)).unwrap_err();
        assert_eq!(refused.retry, Duration::from_secs(600 - 60 - 60 + 1));
        assert!(tokens(&limiter, &auth, 600, now + Duration::from_secs(599)).is_err());
        assert!(tokens(&limiter, &auth, 600, now + Duration::from_secs(601)).is_ok());
    }

    #[test]
    fn what_was_taken_is_given_back_when_the_workspace_refuses() {
        let (limiter, now) = (RateLimiter::new(Sharing::default()), Instant::now());
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
        let (limiter, now) = (RateLimiter::new(Sharing::default()), Instant::now());
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
        let (limiter, now) = (RateLimiter::new(Sharing::default()), Instant::now());
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
        let (limiter, now) = (RateLimiter::new(Sharing::default()), Instant::now());
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
