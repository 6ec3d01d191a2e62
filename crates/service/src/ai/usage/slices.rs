//! The parts of budgets that this server may spend, in memory.
//!
//! A call sets the most that it may cost aside here; when there is no room, one caller at a time
//! asks the database for more and the others wait for the same lease.

use estrade_model::Timestamp;
use estrade_model::call::{NodeId, SliceId};
use estrade_store::budgets::{Account, Wish};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Mutex, OwnedMutexGuard};

/// How long the database's word that a budget is spent is believed: other servers may give back.
const BELIEVE_FULL: Duration = Duration::from_millis(250);

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
    full: Option<(Timestamp, i64)>,
    /// Whether it is being given back, and nobody knows whether it is gone already.
    returning: bool,
    /// Whose turn it is to ask for more. Held while the database is asked.
    turn: Arc<Mutex<()>>,
}

/// What became of the wish to set something aside.
pub(super) enum Step {
    /// It is set aside.
    Reserved(SliceId),
    /// There is no room, and the database said so.
    Full,
    /// The database must be asked; wait for this turn and then try again.
    Turn(Arc<Mutex<()>>),
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

    /// Begins anew, because the server `lost` was settled. What was set aside before is void.
    pub(super) fn lose(&mut self, lost: NodeId, new: NodeId) {
        if self.node == lost {
            *self = Self::new(new, self.active);
        }
    }

    /// Sets `most` aside if there is room.
    pub(super) fn reserve(
        &mut self,
        account: &Account,
        limit: i64,
        most: i64,
        now: Timestamp,
        spare: SliceId,
    ) -> Step {
        self.active = now;
        let id = *self.by_account.entry(account.clone()).or_insert(spare);
        let slice = self.by_id.entry(id).or_insert_with(|| Slice {
            account: account.clone(),
            limit,
            amount: 0,
            used: 0,
            pending: 0,
            touched: now,
            full: None,
            returning: false,
            turn: Arc::default(),
        });
        if slice.returning {
            return Step::Turn(Arc::clone(&slice.turn));
        }
        if slice.limit != limit {
            // The budget was changed: nothing more goes out before the database was asked.
            slice.limit = limit;
            slice.amount = 0;
            slice.full = None;
        }
        if slice.used.saturating_add(most) <= slice.amount {
            slice.used += most;
            slice.pending += 1;
            slice.touched = now;
            return Step::Reserved(id);
        }
        match slice.full {
            Some((at, least)) if most >= least && now < at.after(BELIEVE_FULL) && at <= now => {
                Step::Full
            }
            _ => Step::Turn(Arc::clone(&slice.turn)),
        }
    }

    /// What to ask the database for, so that `most` fits; none when nobody knows what is there.
    pub(super) fn wish(&self, account: &Account, most: i64) -> Option<Wish> {
        let id = *self.by_account.get(account)?;
        let slice = self.by_id.get(&id).filter(|slice| !slice.returning)?;
        Some(Wish {
            node: self.node,
            slice: id,
            account: account.clone(),
            limit: slice.limit,
            used: slice.used,
            need: most,
        })
    }

    /// Notes what the database said to a wish.
    pub(super) fn leased(&mut self, wish: &Wish, amount: i64, full: Option<Timestamp>) {
        if let Some(slice) = self.by_id.get_mut(&wish.slice)
            && slice.limit == wish.limit
        {
            slice.amount = amount;
            slice.full = full.map(|at| (at, wish.need));
        }
    }

    /// A call has ended that had set `reserved` aside and has cost `cost`.
    pub(super) fn settle(&mut self, id: SliceId, reserved: i64, cost: i64, now: Timestamp) {
        if let Some(slice) = self.by_id.get_mut(&id) {
            slice.used = slice.used.saturating_sub(reserved).saturating_add(cost);
            slice.touched = now;
            slice.full = None;
        }
    }

    /// A call is closed on disk, or never went out.
    pub(super) fn done(&mut self, id: SliceId) {
        if let Some(slice) = self.by_id.get_mut(&id) {
            slice.pending = slice.pending.saturating_sub(1);
        }
    }

    /// Takes slices out of use that were not used since `before`, or whose period is over: they can
    /// be given back, up to `most` of them. Whoever needs one of them waits for its turn meanwhile.
    pub(super) fn take_idle(&mut self, before: Timestamp, now: Timestamp, most: usize) -> Idle {
        let mut idle = Idle::default();
        for (id, slice) in &mut self.by_id {
            if idle.slices.len() == most {
                break;
            }
            let over = slice.account.period.start(now) != slice.account.start;
            if slice.pending > 0 || !(over || slice.returning || slice.touched <= before) {
                continue;
            }
            if let Ok(turn) = Arc::clone(&slice.turn).try_lock_owned() {
                slice.returning = true;
                idle.slices.push(*id);
                idle.turns.push(turn);
            }
        }
        idle
    }

    /// Forgets slices that were given back.
    pub(super) fn forget(&mut self, slices: &[SliceId]) {
        for id in slices {
            if let Some(slice) = self.by_id.remove(id) {
                self.by_account.remove(&slice.account);
            }
        }
    }
}

/// Slices that are being given back.
#[derive(Default)]
pub(super) struct Idle {
    pub(super) slices: Vec<SliceId>,
    turns: Vec<OwnedMutexGuard<()>>,
}
