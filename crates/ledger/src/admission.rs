//! Admission: reserves the cost of a call in the budgets of its key and workspace, and records the call as open.
//!
//! Reservations are made in memory, in this server's [slices](crate::slices); the database is asked only when a slice
//! has no room. Invariant: the sum of reservations and settled costs of a slice is at most what was leased, and the
//! sum of all leases at most the budget. So no number of servers and parallel calls can exceed a budget.

use crate::ledger::{DATABASE_TIMEOUT, Ledger};
use crate::limits::{MAX_COST_NANOS, clamp};
use crate::reservation_guard::ReservationGuard;
use crate::slices::ReserveOutcome;
use estrade_model::Timestamp;
use estrade_model::admission::{Admission, AdmissionError, CallEstimate};
use estrade_model::amount::Amount;
use estrade_model::auth::AuthContext;
use estrade_model::call::{BudgetReservation, Call, LedgerNodeId, SliceId, Tokens};
use estrade_model::error::error_chain;
use estrade_model::key::Budget;
use estrade_store::budgets::{self, Account, LeaseOutcome, LeaseRequest};
use futures_util::FutureExt;
use std::sync::Arc;
use tokio::sync::OwnedMutexGuard;
use tokio::time::{Instant, timeout_at};

/// How often a call whose node was settled meanwhile tries again.
const MAX_ATTEMPTS: usize = 4;

impl Ledger {
    /// Reserves the maximum cost of a call and, with a budget or in strict mode, records it as open before it goes
    /// out. Without a budget and in relaxed mode it is admitted at once.
    pub fn admit(self: &Arc<Self>, auth: &AuthContext, estimate: &CallEstimate) -> Admission {
        if self.is_full() {
            return Admission::Refused(AdmissionError::Unavailable);
        }
        let max_cost = Amount::from_nanos(estimate.max_cost.nanos().min(MAX_COST_NANOS));
        // A free call fits into every budget, also a spent one.
        let paid = max_cost > Amount::ZERO;
        let key = auth.key.budget.clone().filter(|_| paid);
        let workspace = auth.workspace.budget.clone().filter(|_| paid);
        if key.is_none() && workspace.is_none() && !self.settings().strict {
            return Admission::Ready(BudgetReservation::NONE);
        }
        let call = open_call(auth, estimate, max_cost);
        let ledger = Arc::clone(self);
        Admission::Wait(async move { ledger.record_open(call, key, workspace).await }.boxed())
    }

    async fn record_open(
        self: Arc<Self>,
        call: Call,
        key: Option<Budget>,
        workspace: Option<Budget>,
    ) -> Result<BudgetReservation, AdmissionError> {
        let deadline = Instant::now() + DATABASE_TIMEOUT;
        for _ in 0..MAX_ATTEMPTS {
            let node = timeout_at(deadline, self.register()).await;
            let node = node.unwrap_or(Err(AdmissionError::Unavailable))?;
            let mut guard = ReservationGuard::new(&self, node, &call);
            if let Some(budget) = &key {
                let slice = self.reserve_before(call.key.as_bytes(), budget, call.cost, deadline);
                let slice = slice.await.map_err(|why| why.refused(false, budget))?;
                guard.slices.key = Some(slice);
            }
            if let Some(budget) = &workspace {
                let slice =
                    self.reserve_before(call.workspace.as_bytes(), budget, call.cost, deadline);
                let slice = slice.await.map_err(|why| why.refused(true, budget))?;
                guard.slices.workspace = Some(slice);
            }
            if let Some(reservation) = guard.record(deadline).await? {
                return Ok(reservation);
            }
            // Another server settled this node as dead: its reservations are void, so try again as a new node.
            self.replace_node(node)?;
        }
        Err(AdmissionError::Unavailable)
    }

    async fn reserve_before(
        &self,
        subject: &[u8; 12],
        budget: &Budget,
        max_cost: Amount,
        deadline: Instant,
    ) -> Result<SliceId, ReserveError> {
        let reserved = timeout_at(deadline, self.reserve(subject, budget, max_cost)).await;
        reserved.unwrap_or(Err(ReserveError::Unavailable))
    }

    /// Reserves `max_cost` in this server's slice of a budget, and leases more of the budget if it has to.
    async fn reserve(
        &self,
        subject: &[u8; 12],
        budget: &Budget,
        max_cost: Amount,
    ) -> Result<SliceId, ReserveError> {
        let (limit, max_cost) = (budget.amount.nanos(), max_cost.nanos());
        for _ in 0..MAX_ATTEMPTS * 16 {
            let now = self.context.now();
            let account = Account {
                subject: *subject,
                period: budget.period,
                start: budget.period.start(now),
            };
            let new_id = self
                .context
                .new_id()
                .map_err(|_| ReserveError::Unavailable)?;
            let try_reserve = || {
                self.slices()
                    .reserve(&account, limit, max_cost, now, new_id)
            };
            let lease_lock = match try_reserve() {
                ReserveOutcome::Reserved(slice) => return Ok(slice),
                ReserveOutcome::Exhausted => return Err(ReserveError::Exhausted(now)),
                ReserveOutcome::NeedsLease(lock) => lock,
            };
            // Single flight: one caller per slice asks the database, the others wait for what it gets.
            let held = lease_lock.lock_owned().await;
            match try_reserve() {
                ReserveOutcome::Reserved(slice) => return Ok(slice),
                ReserveOutcome::Exhausted => return Err(ReserveError::Exhausted(now)),
                ReserveOutcome::NeedsLease(lock)
                    if Arc::ptr_eq(&lock, OwnedMutexGuard::mutex(&held)) => {}
                // The slice was returned while we waited, and this is the lock of its successor.
                ReserveOutcome::NeedsLease(_) => continue,
            }
            let request = self.slices().lease_request(&account, max_cost);
            self.lease(request.ok_or(ReserveError::Unavailable)?)
                .await?;
            // Before the lock is released: otherwise the next caller could use up what was leased for us.
            if let ReserveOutcome::Reserved(slice) = try_reserve() {
                return Ok(slice);
            }
            drop(held);
        }
        Err(ReserveError::Unavailable)
    }

    async fn lease(&self, request: LeaseRequest) -> Result<(), ReserveError> {
        let request = Arc::new(request);
        let job = Arc::clone(&request);
        let leased = self.context.db.transact(move |tx| {
            let request = Arc::clone(&job);
            Box::pin(async move { budgets::lease(tx, &request).await })
        });
        match leased.await {
            Ok(LeaseOutcome::Granted(amount)) => self.slices().apply_lease(&request, amount, None),
            Ok(LeaseOutcome::Exhausted(amount)) => {
                let now = self.context.now();
                self.slices().apply_lease(&request, amount, Some(now));
            }
            Ok(LeaseOutcome::NodeSettled) => {
                self.replace_node(request.node)
                    .map_err(|_| ReserveError::Unavailable)?;
                self.register()
                    .await
                    .map_err(|_| ReserveError::Unavailable)?;
            }
            Err(error) => {
                tracing::warn!(
                    error = error_chain(&error),
                    "cannot lease a part of a budget"
                );
                return Err(ReserveError::Unavailable);
            }
        }
        Ok(())
    }

    /// Registers this server's node, if it is not, and returns it.
    async fn register(&self) -> Result<LedgerNodeId, AdmissionError> {
        let node = {
            let mut slices = self.slices();
            slices.active = self.context.now();
            if slices.registered {
                return Ok(slices.node);
            }
            slices.node
        };
        let deadline = self.context.now().after(self.settings().deadline);
        let added = self.context.db.transact(move |tx| {
            Box::pin(async move { budgets::add_node(tx, node, deadline).await })
        });
        added.await.map_err(|error| {
            tracing::warn!(error = error_chain(&error), "cannot begin to lease budgets");
            AdmissionError::Unavailable
        })?;
        let mut slices = self.slices();
        slices.registered |= slices.node == node;
        Ok(node)
    }
}

enum ReserveError {
    Exhausted(Timestamp),
    Unavailable,
}

impl ReserveError {
    fn refused(self, of_workspace: bool, budget: &Budget) -> AdmissionError {
        match self {
            Self::Exhausted(now) => AdmissionError::Budget {
                of_workspace,
                budget: budget.clone(),
                resets_at: budget.period.end(now),
            },
            Self::Unavailable => AdmissionError::Unavailable,
        }
    }
}

/// The open row of a call: at its maximum cost, which is what it is settled at if this server dies.
fn open_call(auth: &AuthContext, estimate: &CallEstimate, max_cost: Amount) -> Call {
    let mut call = Call {
        id: estimate.id,
        workspace: auth.workspace.id,
        key: auth.key.id,
        created_at: estimate.created_at,
        operation: estimate.operation,
        model: Arc::clone(&estimate.model),
        provider: Arc::clone(&estimate.provider),
        status: 0,
        streamed: estimate.streamed,
        partial: true,
        estimated: true,
        cached: false,
        tokens: Tokens::default(),
        cost: max_cost,
        latency_us: 0,
        ttfb_us: 0,
        attempts: 0,
    };
    clamp(&mut call);
    call
}
