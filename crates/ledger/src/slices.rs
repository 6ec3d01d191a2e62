//! Slices: the parts of budgets that this server has leased, in memory.
//!
//! A reservation is an addition under a short lock. Only when a slice has no room is the database asked, by one caller
//! per slice; the others wait on the slice's lease lock. Invariant: `used <= amount` holds after each reservation, and
//! a slice with pending calls is never returned, so what is returned is certainly not spent.

use estrade_model::Timestamp;
use estrade_model::call::{LedgerNodeId, SliceId};
use estrade_store::budgets::{Account, LeaseRequest};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Mutex, OwnedMutexGuard};

/// Negative cache: how long a refused lease is remembered. Short, because other servers may return slices. Prevents a
/// transaction per refused call once a budget is spent.
const EXHAUSTED_TTL: Duration = Duration::from_millis(250);

struct Slice {
    account: Account,
    /// The whole budget at the time of the lease.
    limit: i64,
    /// What is leased.
    amount: i64,
    /// Costs of settled calls plus reservations of open ones.
    used: i64,
    /// Calls whose closed row is not on disk.
    pending: u32,
    touched: Timestamp,
    /// When the database last refused a lease, and for how much.
    exhausted: Option<(Timestamp, i64)>,
    /// It is being returned, and whether the transaction was committed is unknown.
    returning: bool,
    /// Held while the database is asked for a lease, or while the slice is returned.
    lease_lock: Arc<Mutex<()>>,
}

pub(crate) enum ReserveOutcome {
    Reserved(SliceId),
    /// No room, and the database said so a moment ago.
    Exhausted,
    /// Ask the database under this lock, after another try.
    NeedsLease(Arc<Mutex<()>>),
}

pub(crate) struct Slices {
    /// This server's node; another one after it was settled as dead.
    pub(crate) node: LedgerNodeId,
    /// Whether the database has the node.
    pub(crate) registered: bool,
    /// Time of the last reservation.
    pub(crate) active: Timestamp,
    by_account: HashMap<Account, SliceId>,
    by_id: HashMap<SliceId, Slice>,
}

impl Slices {
    pub(crate) fn new(node: LedgerNodeId, now: Timestamp) -> Self {
        Self {
            node,
            registered: false,
            active: now,
            by_account: HashMap::new(),
            by_id: HashMap::new(),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }

    /// Starts over as another node, because `old` was settled or has nothing. Its reservations are void.
    pub(crate) fn replace_node(&mut self, old: LedgerNodeId, new: LedgerNodeId) {
        if self.node == old {
            *self = Self::new(new, self.active);
        }
    }

    /// Reserves `max_cost` if there is room.
    pub(crate) fn reserve(
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
            // The budget was changed: the lease may exceed the new one, so the database is asked first.
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

    /// The lease that `max_cost` needs; none while the slice is being returned.
    pub(crate) fn lease_request(&self, account: &Account, max_cost: i64) -> Option<LeaseRequest> {
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

    /// Applies the result of a lease request, unless the budget was changed meanwhile.
    pub(crate) fn apply_lease(
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

    /// Replaces a reservation by the cost of the call.
    pub(crate) fn settle(&mut self, id: SliceId, reserved: i64, cost: i64, now: Timestamp) {
        if let Some(slice) = self.by_id.get_mut(&id) {
            slice.used = slice.used.saturating_sub(reserved).saturating_add(cost);
            slice.touched = now;
            slice.exhausted = None;
        }
    }

    /// The closed row of a call is on disk, or the call never went out.
    pub(crate) fn release(&mut self, id: SliceId) {
        if let Some(slice) = self.by_id.get_mut(&id) {
            slice.pending = slice.pending.saturating_sub(1);
        }
    }

    /// Takes slices out of use that were not used since `before`, or whose period is over, up to `max_count`. Their
    /// lease locks are held until the result is dropped: who needs one waits, and then finds it gone or usable.
    pub(crate) fn begin_return(
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

    /// Removes slices that were returned.
    pub(crate) fn remove(&mut self, slices: &[SliceId]) {
        for id in slices {
            if let Some(slice) = self.by_id.remove(id) {
                self.by_account.remove(&slice.account);
            }
        }
    }
}

/// Slices that are being returned, with their lease locks.
#[derive(Default)]
pub(crate) struct ReturningSlices {
    pub(crate) slices: Vec<SliceId>,
    locks: Vec<OwnedMutexGuard<()>>,
}
