//! What a call has set aside, until it goes out. Whoever stops waiting gives it back.

use super::ledger::Ledger;
use super::queue::{Entry, Opened};
use estrade_model::admission::AdmissionError;
use estrade_model::amount::Amount;
use estrade_model::call::{BudgetReservation, Call, NodeId, RowState};
use estrade_store::calls::{CallRow, Slices};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

/// The status of a call whose caller left before it went out…
const LEFT: u16 = 499;
/// …and of one that could not be put on record in time.
const UNAVAILABLE: u16 = 503;
/// How long a caller waits for that: then the database is not there.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);

/// What a call has set aside.
pub(super) struct Hold<'l> {
    ledger: &'l Arc<Ledger>,
    node: NodeId,
    call: &'l Call,
    pub(super) slices: Slices,
    stage: Stage,
    /// What becomes of the call if it does not go out.
    status: u16,
}

#[derive(PartialEq, Eq)]
enum Stage {
    /// Money may be set aside, nothing is on record.
    Reserved,
    /// It is, or will be, on record as open.
    Recorded,
    /// Somebody else has it.
    Over,
}

impl<'l> Hold<'l> {
    pub(super) fn new(ledger: &'l Arc<Ledger>, node: NodeId, call: &'l Call) -> Self {
        Self {
            ledger,
            node,
            call,
            slices: Slices::default(),
            stage: Stage::Reserved,
            status: LEFT,
        }
    }

    /// Puts the call on record before a moment; none when this server was settled meanwhile.
    pub(super) async fn record(
        mut self,
        until: Instant,
    ) -> Result<Option<BudgetReservation>, AdmissionError> {
        let (done, on_disk) = oneshot::channel();
        self.stage = Stage::Recorded;
        self.ledger.opened();
        self.ledger.queue.push(Entry::Open {
            row: CallRow {
                call: self.call.clone(),
                slices: self.slices,
                row_state: RowState::Open,
            },
            node: self.node,
            done,
        });
        let Ok(opened) = timeout_at(until, on_disk).await else {
            self.status = UNAVAILABLE;
            return Err(AdmissionError::Unavailable);
        };
        if opened == Ok(Opened::Yes) {
            self.stage = Stage::Over;
            return Ok(Some(BudgetReservation {
                key_slice: self.slices.key,
                workspace_slice: self.slices.workspace,
                reserved: self.call.cost,
                row_state: RowState::Open,
            }));
        }
        // It is not on record and never will be.
        self.ledger.closed();
        self.stage = Stage::Reserved;
        match opened {
            Ok(Opened::Lost) => Ok(None),
            _ => Err(AdmissionError::Unavailable),
        }
    }
}

impl Drop for Hold<'_> {
    fn drop(&mut self) {
        if self.stage == Stage::Over {
            return;
        }
        let (slices, most) = (self.slices, self.call.cost);
        self.ledger.settle(slices, most, Amount::ZERO);
        if self.stage == Stage::Reserved {
            self.ledger.done(slices);
            return;
        }
        let call = Call {
            status: self.status,
            // It was to be asked, and was not.
            provider: Arc::default(),
            cost: Amount::ZERO,
            ..self.call.clone()
        };
        self.ledger.queue.push(Entry::Close {
            row: CallRow {
                call,
                slices,
                row_state: RowState::Open,
            },
            done: None,
        });
    }
}
