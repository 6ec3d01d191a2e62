//! Taking from the buckets of a call, one after the other: done at once when this node can decide, else a future.

use super::bucket::{Bucket, ONE, RateLimitStatus};
use super::rate_limiter::{
    Attempt, BucketOwner, Exceeded, MAX_COUNT, RateLimitCharge, RateLimiter, limit,
};
use super::shared_bucket::Decision;
use crate::auth::AuthContext;
use estrade_model::rate::RateUnit;
use futures_util::future::BoxFuture;
use std::num::NonZeroU32;
use tokio::sync::oneshot;
use tokio::time::Instant;

/// What came of taking from the buckets of a call.
pub(crate) type TakeOutcome = Result<Option<(RateLimitCharge, RateLimitStatus)>, Exceeded>;

/// [`RateLimiter::take`], which is mostly done at once.
pub(crate) enum Taking<'l> {
    Done(TakeOutcome),
    Waits(BoxFuture<'l, TakeOutcome>),
}

impl RateLimiter {
    /// Takes so many from the buckets of a key and of its workspace: from both, or from none. Nothing
    /// is taken where there is no limit. Waits only for a shared bucket that has to decide.
    pub(crate) fn take(
        &self,
        auth: &AuthContext,
        unit: RateUnit,
        count: u64,
        now: Instant,
    ) -> Taking<'_> {
        let owner = |id: &[u8; 12], limits, of_workspace| {
            Some(BucketOwner {
                id: *id,
                limits,
                limit: limit(limits, unit)?,
                of_workspace,
                is_shared: false,
            })
        };
        let key = owner(auth.key.id.as_bytes(), auth.key.rates, false);
        let workspace = owner(auth.workspace.id.as_bytes(), auth.workspace.rates, true);
        let charge = RateLimitCharge {
            unit,
            count: count.min(MAX_COUNT),
            at: now,
            owners: [None; 2],
        };
        PendingCharge::new(self, charge, [key, workspace]).take()
    }
}

/// A charge that is being taken, bucket by bucket. It is refunded when the caller leaves meanwhile.
pub(super) struct PendingCharge<'l> {
    limiter: &'l RateLimiter,
    charge: RateLimitCharge,
    /// The buckets that are not charged yet.
    left: [Option<BucketOwner>; 2],
    /// Of the first bucket.
    status: Option<RateLimitStatus>,
    has_waited: bool,
    is_finished: bool,
}

enum Progress {
    Done(TakeOutcome),
    Waits(BucketOwner, oneshot::Receiver<Decision>),
}

impl<'l> PendingCharge<'l> {
    pub(super) fn new(
        limiter: &'l RateLimiter,
        charge: RateLimitCharge,
        left: [Option<BucketOwner>; 2],
    ) -> Self {
        Self {
            limiter,
            charge,
            left,
            status: None,
            has_waited: false,
            is_finished: false,
        }
    }

    pub(super) fn take(mut self) -> Taking<'l> {
        match self.advance() {
            Progress::Done(outcome) => Taking::Done(outcome),
            // Boxed, as it is rare and every call carries its future.
            Progress::Waits(owner, decision) => Taking::Waits(Box::pin(self.wait(owner, decision))),
        }
    }

    /// Goes on until it is done or a bucket has to be waited for.
    fn advance(&mut self) -> Progress {
        while let Some(owner) = self.left.iter_mut().find_map(Option::take) {
            match self.limiter.attempt(owner, &self.charge) {
                Attempt::Taken(status, is_shared) => self.add(owner, status, is_shared),
                Attempt::Refused(bucket, limit) => {
                    return Progress::Done(Err(self.refuse(owner, bucket, limit)));
                }
                Attempt::Waits(decision) => return Progress::Waits(owner, decision),
            }
        }
        self.is_finished = true;
        Progress::Done(Ok(self.status.map(|status| (self.charge, status))))
    }

    async fn wait(
        mut self,
        mut owner: BucketOwner,
        mut decision: oneshot::Receiver<Decision>,
    ) -> TakeOutcome {
        self.has_waited = true;
        loop {
            match Undecided::wait(self.limiter, owner, &self.charge, decision).await {
                Attempt::Taken(status, is_shared) => self.add(owner, status, is_shared),
                Attempt::Refused(bucket, limit) => return Err(self.refuse(owner, bucket, limit)),
                // The shared buckets were lost and found while it waited.
                Attempt::Waits(again) => {
                    decision = again;
                    continue;
                }
            }
            match self.advance() {
                Progress::Done(outcome) => return outcome,
                Progress::Waits(next, its) => (owner, decision) = (next, its),
            }
        }
    }

    fn add(&mut self, owner: BucketOwner, status: RateLimitStatus, is_shared: bool) {
        let owner = BucketOwner { is_shared, ..owner };
        self.charge.owners[usize::from(owner.of_workspace)] = Some(owner);
        self.status = self.status.or(Some(status));
    }

    fn refuse(&mut self, owner: BucketOwner, bucket: Bucket, limit: NonZeroU32) -> Exceeded {
        // What has leaked during a wait is back already.
        let now = if self.has_waited {
            Instant::now()
        } else {
            self.charge.at
        };
        self.refund(now);
        Exceeded {
            of_workspace: owner.of_workspace,
            unit: self.charge.unit,
            status: bucket.status(limit),
            retry: bucket.retry(limit, u128::from(self.charge.count) * ONE),
        }
    }

    fn refund(&mut self, now: Instant) {
        self.is_finished = true;
        self.limiter.settle(&self.charge, 0, now);
    }
}

impl Drop for PendingCharge<'_> {
    fn drop(&mut self) {
        if !self.is_finished {
            self.refund(Instant::now());
        }
    }
}

/// A call that waits for a shared bucket. A caller who leaves meanwhile gives back what it may have been granted.
struct Undecided<'l> {
    limiter: &'l RateLimiter,
    /// Of the one bucket.
    charge: RateLimitCharge,
    decision: oneshot::Receiver<Decision>,
}

impl<'l> Undecided<'l> {
    async fn wait(
        limiter: &'l RateLimiter,
        owner: BucketOwner,
        charge: &RateLimitCharge,
        decision: oneshot::Receiver<Decision>,
    ) -> Attempt {
        let granted = BucketOwner {
            is_shared: true,
            ..owner
        };
        let charge = RateLimitCharge {
            owners: [Some(granted), None],
            ..*charge
        };
        let mut undecided = Undecided {
            limiter,
            charge,
            decision,
        };
        match (&mut undecided.decision).await {
            Ok(Decision::Granted(bucket)) => Attempt::Taken(bucket.status(owner.limit), true),
            Ok(Decision::Refused(bucket)) => Attempt::Refused(bucket, owner.limit),
            Ok(Decision::Unreachable) | Err(_) => limiter.attempt(owner, &charge),
        }
    }
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
