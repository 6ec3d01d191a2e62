//! The ledger, as a relay sees it.

use super::journal::files::JournalFiles;
use super::journal::{self, InFlightJournal};
use super::queue::{Entry, Queue};
use super::reservation_guard::{DATABASE_TIMEOUT, ReservationGuard};
use super::slices::{ReserveOutcome, Slices};
use super::{UsageSettings, leases, writer};
use crate::{Core, Result};
use estrade_model::Timestamp;
use estrade_model::admission::{Admission, AdmissionError, CallEstimate};
use estrade_model::amount::Amount;
use estrade_model::auth::AuthContext;
use estrade_model::call::{BudgetReservation, Call, NodeId, RowState, SliceId, Tokens};
use estrade_model::error::error_chain;
use estrade_model::key::Budget;
use estrade_model::sync::MutexExt;
use estrade_store::budgets::{self, Account, LeaseOutcome, LeaseRequest};
use estrade_store::calls::{CallRow, Slices as SliceIds};
use estrade_store::installation;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use tokio::sync::{OwnedMutexGuard, oneshot};
use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::sync::CancellationToken;

/// The most that one call is written down with: a million. Sums of them fit whatever happens.
const MAX_COST_NANOS: i64 = 1_000_000 * 1_000_000_000;
/// The same for its tokens.
const MAX_TOKENS: u64 = 1_000_000_000;
/// Longest name of a model that is written down.
const MAX_MODEL_BYTES: usize = 200;
/// How often a call that lost what it had set aside tries again.
const MAX_ATTEMPTS: usize = 4;

/// Keeps the books of this server.
pub struct Ledger {
    pub(super) core: Arc<Core>,
    pub(super) queue: Queue,
    slices: Mutex<Slices>,
    /// Calls that are on record as open.
    open: AtomicUsize,
    pub(super) journal: InFlightJournal,
    /// Calls that were not written down.
    unrecorded: AtomicU64,
}

impl Ledger {
    /// A ledger in which nothing is written yet; [`Self::run`] does the writing.
    pub fn new(core: &Arc<Core>) -> Result<Arc<Self>> {
        Ok(Arc::new(Self {
            core: Arc::clone(core),
            queue: Queue::default(),
            slices: Mutex::new(Slices::new(core.new_id()?, core.now())),
            open: AtomicUsize::new(0),
            journal: InFlightJournal::default(),
            unrecorded: AtomicU64::new(0),
        }))
    }

    /// From now on what calls took so far that are under way is kept in this directory, which no other server
    /// uses; `source` knows them, and whether there are others that it will know soon. What an earlier run has
    /// left there is closed when this one runs.
    pub async fn open_journal(
        &self,
        directory: &Path,
        source: impl Fn() -> (Vec<Call>, bool) + Send + Sync + 'static,
    ) -> io::Result<()> {
        let new = self.core.new_id::<()>().map_err(io::Error::other)?;
        let name = installation::name_installation(&self.core.db, new.to_string()).await;
        let name = name.map_err(io::Error::other)?;
        let (files, recovered) = JournalFiles::open(directory, &name)?;
        self.journal.attach(files, recovered, Box::new(source));
        Ok(())
    }

    /// Writes, renews and settles until `stop`; then everything is written and given back.
    pub fn run(self: Arc<Self>, stop: CancellationToken) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            let journal_task = journal::start(&self);
            tokio::join!(
                writer::run(&self, &stop),
                leases::run(&self, &stop),
                journal::close_recovered(&self, &stop),
            );
            journal_task.end().await;
            leases::release_all(&self).await;
        })
    }

    /// Sets aside the most that a call may cost and puts it on record where it must not be lost.
    /// Without a budget and in relaxed mode the answer is there at once.
    pub fn admit(self: &Arc<Self>, pass: &AuthContext, estimate: &CallEstimate) -> Admission {
        if self.is_full() {
            return Admission::Refused(AdmissionError::Unavailable);
        }
        let max_cost = Amount::from_nanos(estimate.max_cost.nanos().min(MAX_COST_NANOS));
        // What costs nothing fits into every budget; the most that a call may cost is nothing only
        // when it is free.
        let paid = max_cost > Amount::ZERO;
        let key = pass.key.budget.clone().filter(|_| paid);
        let workspace = pass.workspace.budget.clone().filter(|_| paid);
        if key.is_none() && workspace.is_none() && !self.settings().strict {
            return Admission::Ready(BudgetReservation::NONE);
        }
        let call = open_call(pass, estimate, max_cost);
        let ledger = Arc::clone(self);
        Admission::Wait(async move { ledger.record_open(call, key, workspace).await }.boxed())
    }

    async fn record_open(
        self: Arc<Self>,
        call: Call,
        key: Option<Budget>,
        workspace: Option<Budget>,
    ) -> std::result::Result<BudgetReservation, AdmissionError> {
        // A database that says nothing is one that is not there.
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
            // This server was taken for dead: it goes on as a new one.
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
    ) -> std::result::Result<SliceId, ReserveError> {
        let reserved = timeout_at(deadline, self.reserve(subject, budget, max_cost)).await;
        reserved.unwrap_or(Err(ReserveError::Unavailable))
    }

    /// Sets `most` aside in this server's slice of a budget.
    async fn reserve(
        &self,
        subject: &[u8; 12],
        budget: &Budget,
        max_cost: Amount,
    ) -> std::result::Result<SliceId, ReserveError> {
        let (limit, max_cost) = (budget.amount.nanos(), max_cost.nanos());
        for _ in 0..MAX_ATTEMPTS * 16 {
            let now = self.core.now();
            let account = Account {
                subject: *subject,
                period: budget.period,
                start: budget.period.start(now),
            };
            let new_id = self.core.new_id().map_err(|_| ReserveError::Unavailable)?;
            let try_reserve = || {
                self.slices()
                    .reserve(&account, limit, max_cost, now, new_id)
            };
            let lease_lock = match try_reserve() {
                ReserveOutcome::Reserved(slice) => return Ok(slice),
                ReserveOutcome::Exhausted => return Err(ReserveError::Exhausted(now)),
                ReserveOutcome::NeedsLease(lock) => lock,
            };
            // One caller asks the database, the others wait here for what it gets.
            let held = lease_lock.lock_owned().await;
            match try_reserve() {
                ReserveOutcome::Reserved(slice) => return Ok(slice),
                ReserveOutcome::Exhausted => return Err(ReserveError::Exhausted(now)),
                ReserveOutcome::NeedsLease(lock)
                    if Arc::ptr_eq(&lock, OwnedMutexGuard::mutex(&held)) => {}
                // What we waited for was given back; this is a new one.
                ReserveOutcome::NeedsLease(_) => continue,
            }
            let request = self.slices().lease_request(&account, max_cost);
            self.lease(request.ok_or(ReserveError::Unavailable)?)
                .await?;
            // Before the next one has its turn: what we leased is for us.
            if let ReserveOutcome::Reserved(slice) = try_reserve() {
                return Ok(slice);
            }
            drop(held);
        }
        Err(ReserveError::Unavailable)
    }

    async fn lease(&self, request: LeaseRequest) -> std::result::Result<(), ReserveError> {
        let request = Arc::new(request);
        let job = Arc::clone(&request);
        let leased = self.core.db.transact(move |tx| {
            let request = Arc::clone(&job);
            Box::pin(async move { Ok::<_, crate::Error>(budgets::lease(tx, &request).await?) })
        });
        match leased.await {
            Ok(LeaseOutcome::Granted(amount)) => self.slices().apply_lease(&request, amount, None),
            Ok(LeaseOutcome::Exhausted(amount)) => {
                let now = self.core.now();
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

    /// As whom this server leases; the database knows it from now on.
    async fn register(&self) -> std::result::Result<NodeId, AdmissionError> {
        let node = {
            let mut slices = self.slices();
            slices.active = self.core.now();
            if slices.registered {
                return Ok(slices.node);
            }
            slices.node
        };
        let deadline = self.core.now().after(self.settings().deadline);
        let added = self.core.db.transact(move |tx| {
            Box::pin(
                async move { Ok::<_, crate::Error>(budgets::add_node(tx, node, deadline).await?) },
            )
        });
        added.await.map_err(|error| {
            tracing::warn!(error = error_chain(&error), "cannot begin to lease budgets");
            AdmissionError::Unavailable
        })?;
        let mut slices = self.slices();
        slices.registered |= slices.node == node;
        Ok(node)
    }

    pub(super) fn replace_node(&self, node: NodeId) -> std::result::Result<(), AdmissionError> {
        let new = self
            .core
            .new_id()
            .map_err(|_| AdmissionError::Unavailable)?;
        self.slices().replace_node(node, new);
        Ok(())
    }

    /// A call goes out that is not on record; whoever is asked what is under way knows of it.
    pub fn notify_in_flight(&self) {
        self.journal.wake();
    }

    /// Writes down a call that has ended and gives back what was set aside. Never waits; in strict
    /// mode it returns what to wait for before the caller sees the end of the answer, if the call
    /// was on record: nobody waits for a refusal. It says whether the call is on disk, after
    /// five seconds at the latest; what is not is written when the database is back.
    pub fn close(
        &self,
        reservation: BudgetReservation,
        mut call: Call,
    ) -> Option<BoxFuture<'static, bool>> {
        // Calls that cost something were counted when they were let in; refusals come without end.
        let row_state = reservation.row_state;
        let owed = row_state == RowState::Open || call.cost > Amount::ZERO;
        if !owed && self.is_full() {
            self.count_unrecorded(1);
            return None;
        }
        clamp(&mut call);
        let slices = SliceIds {
            key: reservation.key_slice,
            workspace: reservation.workspace_slice,
        };
        self.settle(slices, reservation.reserved, call.cost);
        let (done, on_disk) = if self.settings().strict && row_state == RowState::Open {
            let (done, on_disk) = oneshot::channel();
            let on_disk =
                timeout(DATABASE_TIMEOUT, on_disk).map(|outcome| matches!(outcome, Ok(Ok(()))));
            (Some(done), Some(on_disk.boxed()))
        } else {
            (None, None)
        };
        self.queue.push(Entry::Close {
            row: CallRow {
                call,
                slices,
                row_state,
            },
            done,
        });
        on_disk
    }

    /// Returns when everything that was closed before is on disk.
    pub async fn flush(&self) {
        let (done, on_disk) = oneshot::channel();
        self.queue.push(Entry::Flush(done));
        drop(on_disk.await);
    }

    /// How many calls are not on disk yet.
    pub fn unwritten(&self) -> usize {
        self.queue.unwritten()
    }

    /// How many calls were not written down, because too many waited or because they could not be.
    pub fn unrecorded(&self) -> u64 {
        self.unrecorded.load(Ordering::Relaxed)
    }

    pub(super) fn count_unrecorded(&self, calls: usize) {
        self.unrecorded.fetch_add(calls as u64, Ordering::Relaxed);
    }

    /// Whether so many calls wait for the database that no more may come.
    pub(super) fn is_full(&self) -> bool {
        self.queue.unwritten() >= self.settings().queue
    }

    pub(super) fn settle(&self, ids: SliceIds, reserved: Amount, cost: Amount) {
        if ids.key.is_none() && ids.workspace.is_none() {
            return;
        }
        let now = self.core.now();
        let mut slices = self.slices();
        for id in ids.iter() {
            slices.settle(id, reserved.nanos(), cost.nanos(), now);
        }
    }

    /// A call of these slices is over, on disk too.
    pub(super) fn release(&self, ids: SliceIds) {
        if ids.key.is_none() && ids.workspace.is_none() {
            return;
        }
        let mut slices = self.slices();
        ids.iter().for_each(|id| slices.release(id));
    }

    pub(super) fn opened(&self) {
        self.open.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn closed(&self) {
        self.open.fetch_sub(1, Ordering::Relaxed);
    }

    pub(super) fn open_calls(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    pub(super) fn settings(&self) -> &UsageSettings {
        &self.core.settings.usage
    }

    pub(super) fn slices(&self) -> MutexGuard<'_, Slices> {
        self.slices.lock_ignoring_poison()
    }
}

/// Why nothing could be set aside.
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

/// A call as it is on record while it goes on: what is not known is what it may be at worst.
fn open_call(pass: &AuthContext, estimate: &CallEstimate, max_cost: Amount) -> Call {
    let mut call = Call {
        id: estimate.id,
        workspace: pass.workspace.id,
        key: pass.key.id,
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

/// Keeps a call within what the ledger can hold, whatever an upstream claims.
pub(super) fn clamp(call: &mut Call) {
    call.cost = call.cost.min(Amount::from_nanos(MAX_COST_NANOS));
    call.tokens.prompt = call.tokens.prompt.min(MAX_TOKENS);
    call.tokens.completion = call.tokens.completion.min(MAX_TOKENS);
    if call.model.len() > MAX_MODEL_BYTES || call.model.contains('\0') {
        let end = call.model.floor_char_boundary(MAX_MODEL_BYTES);
        let text = call.model.get(..end).unwrap_or_default();
        // PostgreSQL has no NUL in texts.
        call.model = text.replace('\0', "").into();
    }
}
