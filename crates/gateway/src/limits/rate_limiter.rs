//! Rate limiter: requests and tokens per minute, of keys and of workspaces.
//!
//! Leaky buckets ([`Bucket`]). A changed limit keeps what was used. Buckets are sharded by id; a charge takes from the
//! key and from its workspace, or from neither. A node that is alone decides by its own buckets, exactly. Nodes that
//! share their limits decide by what they know of the [shared ones](SharedBucket), and
//! `rate_sharing.rs` reports what they used; while these cannot be reached, each node admits its
//! share of every limit.

use super::bucket::{Bucket, BucketId, ONE, RateLimitStatus, size};
use super::shared_bucket::{Decision, Judgement, SharedBucket};
use super::sharing::Sharing;
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

/// What one call counts at most: every limit is smaller, and the shared buckets hold it.
pub(super) const MAX_COUNT: u64 = u32::MAX as u64;

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
    pub(super) unit: RateUnit,
    pub(super) count: u64,
    pub(super) at: Instant,
    /// The key's bucket and the workspace's, those that were charged.
    pub(super) owners: [Option<BucketOwner>; 2],
}

/// Whose bucket it is, and how large.
#[derive(Debug, Clone, Copy)]
pub(super) struct BucketOwner {
    pub(super) id: [u8; 12],
    pub(super) limits: RateLimits,
    /// The one of them that is charged.
    pub(super) limit: NonZeroU32,
    pub(super) of_workspace: bool,
    /// The shared bucket is told of the charge, and so of what is given back of it. What was taken while the node was
    /// alone is not: given back to the shared bucket it would be missing from what other nodes have used.
    pub(super) is_shared: bool,
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
pub(super) enum Attempt {
    /// And whether the shared bucket is told of it ([`BucketOwner::is_shared`]).
    Taken(RateLimitStatus, bool),
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

    pub(super) fn attempt(&self, owner: BucketOwner, charge: &RateLimitCharge) -> Attempt {
        // Locked before the state of sharing is read: whoever waits is seen when sharing ends.
        let mut shard = self.shard(&owner.id);
        shard.prune(charge.at);
        let is_shared = self.sharing.is_shared();
        if is_shared && !self.sharing.is_unreachable() {
            self.attempt_shared(&mut shard, owner, charge)
        } else {
            self.attempt_alone(&mut shard, owner, charge, is_shared)
        }
    }

    /// Takes by what this node knows of the shared bucket, or waits for what that decides.
    fn attempt_shared(
        &self,
        shard: &mut Shard,
        owner: BucketOwner,
        charge: &RateLimitCharge,
    ) -> Attempt {
        let (now, limit, id) = (charge.at, owner.limit, (owner.id, charge.unit));
        let wanted = u128::from(charge.count) * ONE;
        let own = forwarded(&mut shard.buckets, owner.id, now, owner.limits).of(charge.unit);
        let new = || SharedBucket::new(limit);
        let common = shard.shared.entry(id).or_insert_with(new);
        self.set_limit(id, common, limit, now);
        match common.judge(*own, wanted, self.sharing.nodes(), now) {
            Judgement::Admit => {
                own.used += wanted;
                common.change(wanted.cast_signed());
                self.sharing.enqueue(id, common);
                Attempt::Taken(common.estimate(*own, now).status(limit), true)
            }
            Judgement::Refuse => Attempt::Refused(common.estimate(*own, now), limit),
            Judgement::Ask => {
                let decision = common.ask(wanted);
                self.sharing.enqueue(id, common);
                Attempt::Waits(decision)
            }
        }
    }

    /// Takes by what this node has used: by its share of the limit when there are others that cannot be reached.
    fn attempt_alone(
        &self,
        shard: &mut Shard,
        owner: BucketOwner,
        charge: &RateLimitCharge,
        is_shared: bool,
    ) -> Attempt {
        let (now, id) = (charge.at, (owner.id, charge.unit));
        let (limits, limit) = if is_shared {
            owner.share(self.sharing.nodes())
        } else {
            (owner.limits, owner.limit)
        };
        if let Some(common) = shard.shared.get_mut(&id) {
            self.set_limit(id, common, owner.limit, now);
        }
        let own = forwarded(&mut shard.buckets, owner.id, now, limits).of(charge.unit);
        if is_shared {
            // What this node used of the whole limit must not count against its share for minutes.
            own.used = own.used.min(size(limit));
        }
        if own.take(limit, charge.count).is_err() {
            return Attempt::Refused(*own, limit);
        }
        let status = own.status(limit);
        if is_shared {
            let wanted = u128::from(charge.count) * ONE;
            self.change(&mut shard.shared, owner, charge.unit, wanted.cast_signed());
        }
        Attempt::Taken(status, is_shared)
    }

    /// A limit that was changed is reported even if nothing more is used: calls that are refused report nothing.
    fn set_limit(&self, id: BucketId, common: &mut SharedBucket, limit: NonZeroU32, now: Instant) {
        if common.set_limit(limit, now) {
            self.sharing.enqueue(id, common);
        }
    }

    /// Replaces what was taken by what was really used.
    pub(crate) fn settle(&self, charge: &RateLimitCharge, used: u64, now: Instant) {
        let unit = charge.unit;
        let passed = now.saturating_duration_since(charge.at).as_micros();
        for owner in charge.owners.into_iter().flatten() {
            let BucketOwner {
                id, limits, limit, ..
            } = owner;
            let used = u128::from(used.min(MAX_COUNT)) * ONE;
            let had = u128::from(charge.count) * ONE;
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
                if back > 0 && owner.is_shared {
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
        let common = shard.shared.get_mut(&id)?;
        common.report(id, own.unwrap_or_default())
    }

    /// The reply to a report of a bucket, or that there was none.
    pub(super) fn finish_report(&self, id: BucketId, reply: Reply, now: Instant) {
        let mut shard = self.shard(&id.0);
        let shard = &mut *shard;
        let Some(common) = shard.shared.get_mut(&id) else {
            return;
        };
        let mut unknown = Bucket::default();
        let own = own_bucket(&mut shard.buckets, id, now).unwrap_or(&mut unknown);
        match reply {
            Reply::Arrived(reply) => common.apply(reply, own, now),
            Reply::Refused => common.give_up(*own, false),
            Reply::Late => common.give_up(*own, true),
        }
        if common.needs_report() {
            self.sharing.enqueue(id, common);
        }
    }
}

/// What came of a report.
#[derive(Debug, Clone, Copy)]
pub(super) enum Reply {
    Arrived(RateReply),
    /// The database cannot be reached.
    Refused,
    /// Nothing was heard in time: the report may have arrived.
    Late,
}

impl RateLimiter {
    /// Lets the calls that wait for a bucket decide by themselves.
    pub(super) fn release_waiting(&self, id: BucketId) {
        if let Some(common) = self.shard(&id.0).shared.get_mut(&id) {
            common.release_waiting();
        }
    }

    /// The same for all buckets.
    pub(super) fn release_all(&self) {
        for shard in &self.shards {
            let mut shard = shard.lock_ignoring_poison();
            for common in shard.shared.values_mut() {
                common.release_waiting();
            }
        }
    }
}

/// The buckets of a key or workspace as they are now, with these limits from now on.
fn forwarded(
    buckets: &mut HashMap<[u8; 12], Buckets>,
    id: [u8; 12],
    now: Instant,
    limits: RateLimits,
) -> &mut Buckets {
    let buckets = (buckets.entry(id)).or_insert_with(|| Buckets::new(now, limits));
    buckets.forward(now, limits);
    buckets
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

pub(super) fn limit(rates: RateLimits, unit: RateUnit) -> Option<NonZeroU32> {
    match unit {
        RateUnit::Requests => rates.rpm,
        RateUnit::Tokens => rates.tpm,
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
impl RateLimiter {
    pub(super) const MAX_UNPRUNED: usize = 3 * SHARDS * PRUNE_INTERVAL;

    pub(super) fn bucket_count(&self) -> usize {
        let shards = self.shards.iter();
        shards
            .map(|shard| shard.lock_ignoring_poison().buckets.len())
            .sum()
    }

    /// What this node has used of a bucket, in whole units.
    pub(super) fn own_used(&self, id: BucketId, now: Instant) -> u128 {
        let mut shard = self.shard(&id.0);
        own_bucket(&mut shard.buckets, id, now).map_or(0, |own| own.used.div_ceil(ONE))
    }

    pub(super) fn forget_all(&self) {
        for shard in &self.shards {
            shard.lock_ignoring_poison().buckets.clear();
        }
    }
}
