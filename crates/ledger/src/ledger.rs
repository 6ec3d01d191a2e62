//! The state of the ledger, and how a call is closed.
//!
//! The steps are in files of their own, each an `impl` or a task over this state: [`crate::admission`],
//! [`crate::writer`], [`crate::leases`]. None of them is used here.

use crate::context::LedgerContext;
use crate::error::LedgerError;
use crate::journal::InFlightJournal;
use crate::journal::files::JournalFiles;
use crate::limits::clamp;
use crate::queue::{Entry, Queue};
use crate::settings::UsageSettings;
use crate::slices::Slices;
use estrade_model::admission::AdmissionError;
use estrade_model::amount::Amount;
use estrade_model::call::{BudgetReservation, Call, LedgerNodeId, RowState};
use estrade_model::sync::MutexExt;
use estrade_store::calls::{CallRow, Slices as SliceIds};
use estrade_store::installation;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::timeout;

/// A database that has not responded by then counts as unavailable.
pub(crate) const DATABASE_TIMEOUT: Duration = Duration::from_secs(5);

/// Accounts for the calls of this server: reserves their cost before they go out and records what they used.
pub struct Ledger {
    pub(crate) context: LedgerContext,
    pub(crate) queue: Arc<Queue>,
    slices: Mutex<Slices>,
    /// Calls with an open row in the database.
    open: AtomicUsize,
    pub(crate) journal: Arc<InFlightJournal>,
    /// Calls that were dropped without a row.
    unrecorded: AtomicU64,
}

impl Ledger {
    /// Builds a ledger; nothing is written before [`Self::run`].
    pub fn new(context: LedgerContext) -> Result<Arc<Self>, LedgerError> {
        let slices = Slices::new(context.new_id()?, context.now());
        Ok(Arc::new(Self {
            context,
            queue: Arc::default(),
            slices: Mutex::new(slices),
            open: AtomicUsize::new(0),
            journal: Arc::default(),
            unrecorded: AtomicU64::new(0),
        }))
    }

    /// Opens the journal of calls in flight in a directory that no other server uses. `source` returns those calls,
    /// and whether others will appear soon. What an earlier run has left there is closed by [`Self::run`].
    pub async fn open_journal(
        &self,
        directory: &Path,
        source: impl Fn() -> (Vec<Call>, bool) + Send + Sync + 'static,
    ) -> io::Result<()> {
        let new = self.context.new_id::<()>().map_err(io::Error::other)?;
        let name = installation::name_installation(&self.context.db, new.to_string()).await;
        let name = name.map_err(io::Error::other)?;
        let (files, recovered) = JournalFiles::open(directory, &name)?;
        self.journal.attach(files, recovered, Box::new(source));
        Ok(())
    }

    pub(crate) fn replace_node(&self, node: LedgerNodeId) -> Result<(), AdmissionError> {
        let new = self
            .context
            .new_id()
            .map_err(|_| AdmissionError::Unavailable)?;
        self.slices().replace_node(node, new);
        Ok(())
    }

    /// A call without a row goes out: wakes the journal. The journal's source has to return it already.
    pub fn notify_in_flight(&self) {
        self.journal.wake();
    }

    /// Queues the row of a call that has ended and settles its reservation. Never waits.
    ///
    /// In strict mode, for a call with an open row, it returns a future that the end of the response has to wait for:
    /// it resolves to whether the row is on disk, after [`DATABASE_TIMEOUT`] at the latest. A row that is late is
    /// still written when the database is back.
    pub fn close(
        &self,
        reservation: BudgetReservation,
        mut call: Call,
    ) -> Option<BoxFuture<'static, bool>> {
        // Calls that cost something were bounded by the queue limit when they were admitted. Refusals are not, so
        // a full queue drops them: otherwise a flood of refused calls would fill the memory.
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

    /// Returns when every call that was closed before is on disk.
    pub async fn flush(&self) {
        let (done, on_disk) = oneshot::channel();
        self.queue.push(Entry::Flush(done));
        drop(on_disk.await);
    }

    pub fn unwritten(&self) -> usize {
        self.queue.unwritten()
    }

    /// Calls that were dropped without a row: the queue was full, or the database refused the row.
    pub fn unrecorded(&self) -> u64 {
        self.unrecorded.load(Ordering::Relaxed)
    }

    /// Calls of an earlier run that the journal had, and that are not closed yet.
    pub fn unrecovered(&self) -> usize {
        self.journal.unrecovered()
    }

    pub(crate) fn count_unrecorded(&self, calls: usize) {
        self.unrecorded.fetch_add(calls as u64, Ordering::Relaxed);
    }

    /// Backpressure: with so many rows unwritten no further call is admitted.
    pub fn is_full(&self) -> bool {
        self.queue.unwritten() >= self.settings().queue
    }

    pub(crate) fn settle(&self, ids: SliceIds, reserved: Amount, cost: Amount) {
        if ids.key.is_none() && ids.workspace.is_none() {
            return;
        }
        let now = self.context.now();
        let mut slices = self.slices();
        for id in ids.iter() {
            slices.settle(id, reserved.nanos(), cost.nanos(), now);
        }
    }

    /// Releases the slices of a call whose closed row is on disk, or that never went out.
    pub(crate) fn release(&self, ids: SliceIds) {
        if ids.key.is_none() && ids.workspace.is_none() {
            return;
        }
        let mut slices = self.slices();
        ids.iter().for_each(|id| slices.release(id));
    }

    pub(crate) fn opened(&self) {
        self.open.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn closed(&self) {
        self.open.fetch_sub(1, Ordering::Relaxed);
    }

    pub(crate) fn open_calls(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    pub(crate) fn settings(&self) -> &UsageSettings {
        &self.context.settings
    }

    pub(crate) fn slices(&self) -> MutexGuard<'_, Slices> {
        self.slices.lock_ignoring_poison()
    }
}
