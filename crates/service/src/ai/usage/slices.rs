//! The parts of budgets that this server may spend, in memory.
//!
//! A call sets the most that it may cost aside here; when there is no room, one caller at a time
//! asks the database for more and the others wait for the same lease.

use estrade_model::Timestamp;
use estrade_model::call::{NodeId, SliceId};
use estrade_store::budgets::{Account, LeaseRequest};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Mutex, OwnedMutexGuard};

/// How long the database's word that a budget is spent is believed: other servers may give back.
const EXHAUSTED_TTL: Duration = Duration::from_millis(250);

/// A part of a budget.
struct Slice {
    account: Account,
    /// The budget that it was leased of.
    limit: i64,
    /// How much it has.
    amount: i64,
    /// What closed calls have cost and open ones may cost.
    used: i64,
    /// Calls that are not closed on disk.
    pending: u32,
    touched: Timestamp,
    /// When the database last said that so much does not fit.
    exhausted: Option<(Timestamp, i64)>,
    /// Whether it is being given back, and nobody knows whether it is gone already.
    returning: bool,
    /// Whose turn it is to ask for more. Held while the database is asked.
    lease_lock: Arc<Mutex<()>>,
}

/// What became of the request to set something aside.
pub(super) enum ReserveOutcome {
    /// It is set aside.
    Reserved(SliceId),
    /// There is no room, and the database said so.
    Exhausted,
    /// The database must be asked; wait for this turn and then try again.
    NeedsLease(Arc<Mutex<()>>),
}

/// All slices of this server.
pub(super) struct Slices {
    /// As whom it leases; another one after it was settled.
    pub(super) node: NodeId,
    /// Whether the database knows that one.
    pub(super) registered: bool,
    /// When something was last set aside.
    pub(super) active: Timestamp,
    by_account: HashMap<Account, SliceId>,
    by_id: HashMap<SliceId, Slice>,
}

impl Slices {
    pub(super) fn new(node: NodeId, now: Timestamp) -> Self {
        Self {
            node,
            registered: false,
            active: now,
            by_account: HashMap::new(),
            by_id: HashMap::new(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }

    /// Begins anew, because the server `old` was settled. What was set aside before is void.
    pub(super) fn replace_node(&mut self, old: NodeId, new: NodeId) {
        if self.node == old {
            *self = Self::new(new, self.active);
        }
    }

    /// Sets `max_cost` aside if there is room.
    pub(super) fn reserve(
        &mut self,
        account: &Account,
        limit: i64,
        max_cost: i64,
        now: Timestamp,
        new_id: SliceId,
    ) -> ReserveOutcome {
        self.active = now;
        let id = *self.by_account.entry(account.clone()).or_insert(new_id);
        let slice = self.by_id.entry(id).or_insert_with(|| Slice {
            account: account.clone(),
            limit,
            amount: 0,
            used: 0,
            pending: 0,
            touched: now,
            exhausted: None,
            returning: false,
            lease_lock: Arc::default(),
        });
        if slice.returning {
            return ReserveOutcome::NeedsLease(Arc::clone(&slice.lease_lock));
        }
        if slice.limit != limit {
            // The budget was changed: nothing more goes out before the database was asked.
            slice.limit = limit;
            slice.amount = 0;
            slice.exhausted = None;
        }
        if slice.used.saturating_add(max_cost) <= slice.amount {
            slice.used += max_cost;
            slice.pending += 1;
            slice.touched = now;
            return ReserveOutcome::Reserved(id);
        }
        match slice.exhausted {
            Some((at, least))
                if max_cost >= least && now < at.after(EXHAUSTED_TTL) && at <= now =>
            {
                ReserveOutcome::Exhausted
            }
            _ => ReserveOutcome::NeedsLease(Arc::clone(&slice.lease_lock)),
        }
    }

    /// What to ask the database for, so that `max_cost` fits; none when nobody knows what is there.
    pub(super) fn lease_request(&self, account: &Account, max_cost: i64) -> Option<LeaseRequest> {
        let id = *self.by_account.get(account)?;
        let slice = self.by_id.get(&id).filter(|slice| !slice.returning)?;
        Some(LeaseRequest {
            node: self.node,
            slice: id,
            account: account.clone(),
            limit: slice.limit,
            used: slice.used,
            need: max_cost,
        })
    }

    /// Notes what the database said to a request.
    pub(super) fn apply_lease(
        &mut self,
        request: &LeaseRequest,
        amount: i64,
        exhausted: Option<Timestamp>,
    ) {
        if let Some(slice) = self.by_id.get_mut(&request.slice)
            && slice.limit == request.limit
        {
            slice.amount = amount;
            slice.exhausted = exhausted.map(|at| (at, request.need));
        }
    }

    /// A call has ended that had set `reserved` aside and has cost `cost`.
    pub(super) fn settle(&mut self, id: SliceId, reserved: i64, cost: i64, now: Timestamp) {
        if let Some(slice) = self.by_id.get_mut(&id) {
            slice.used = slice.used.saturating_sub(reserved).saturating_add(cost);
            slice.touched = now;
            slice.exhausted = None;
        }
    }

    /// A call is closed on disk, or never went out.
    pub(super) fn release(&mut self, id: SliceId) {
        if let Some(slice) = self.by_id.get_mut(&id) {
            slice.pending = slice.pending.saturating_sub(1);
        }
    }

    /// Takes slices out of use that were not used since `before`, or whose period is over: they can
    /// be given back, up to `max_count` of them. Whoever needs one of them waits for its turn meanwhile.
    pub(super) fn begin_return(
        &mut self,
        before: Timestamp,
        now: Timestamp,
        max_count: usize,
    ) -> ReturningSlices {
        let mut idle = ReturningSlices::default();
        for (id, slice) in &mut self.by_id {
            if idle.slices.len() == max_count {
                break;
            }
            let over = slice.account.period.start(now) != slice.account.start;
            if slice.pending > 0 || !(over || slice.returning || slice.touched <= before) {
                continue;
            }
            if let Ok(lock) = Arc::clone(&slice.lease_lock).try_lock_owned() {
                slice.returning = true;
                idle.slices.push(*id);
                idle.locks.push(lock);
            }
        }
        idle
    }

    /// Forgets slices that were given back.
    pub(super) fn remove(&mut self, slices: &[SliceId]) {
        for id in slices {
            if let Some(slice) = self.by_id.remove(id) {
                self.by_account.remove(&slice.account);
            }
        }
    }
}

/// Slices that are being given back.
#[derive(Default)]
pub(super) struct ReturningSlices {
    pub(super) slices: Vec<SliceId>,
    locks: Vec<OwnedMutexGuard<()>>,
}
