//! What a call has set aside, until it goes out. Whoever stops waiting gives it back.

use super::ledger::Ledger;
use super::queue::{Entry, OpenResult};
use estrade_model::admission::AdmissionError;
use estrade_model::amount::Amount;
use estrade_model::call::{BudgetReservation, Call, NodeId, RowState};
use estrade_store::calls::{CallRow, Slices};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

/// The status of a call whose caller left before it went out…
const CLIENT_CLOSED_STATUS: u16 = 499;
/// …and of one that could not be put on record in time.
const UNAVAILABLE_STATUS: u16 = 503;
/// How long a caller waits for that: then the database is not there.
pub(super) const DATABASE_TIMEOUT: Duration = Duration::from_secs(5);

/// What a call has set aside.
pub(super) struct ReservationGuard<'l> {
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
    HandedOver,
}

impl<'l> ReservationGuard<'l> {
    pub(super) fn new(ledger: &'l Arc<Ledger>, node: NodeId, call: &'l Call) -> Self {
        Self {
            ledger,
            node,
            call,
            slices: Slices::default(),
            stage: Stage::Reserved,
            status: CLIENT_CLOSED_STATUS,
        }
    }

    /// Puts the call on record before a moment; none when this server was settled meanwhile.
    pub(super) async fn record(
        mut self,
        deadline: Instant,
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
        let Ok(opened) = timeout_at(deadline, on_disk).await else {
            self.status = UNAVAILABLE_STATUS;
            return Err(AdmissionError::Unavailable);
        };
        if opened == Ok(OpenResult::Recorded) {
            self.stage = Stage::HandedOver;
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
            Ok(OpenResult::NodeSettled) => Ok(None),
            _ => Err(AdmissionError::Unavailable),
        }
    }
}

impl Drop for ReservationGuard<'_> {
    fn drop(&mut self) {
        if self.stage == Stage::HandedOver {
            return;
        }
        let (slices, max_cost) = (self.slices, self.call.cost);
        self.ledger.settle(slices, max_cost, Amount::ZERO);
        if self.stage == Stage::Reserved {
            self.ledger.release(slices);
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
