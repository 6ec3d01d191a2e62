//! RAII guard of a reservation, until the call goes out.
//!
//! A caller that disconnects drops the future of its admission at any `await`. Dropping the guard then settles the
//! reservation at zero and, if an open row was queued, queues its closed row: otherwise the money would stay reserved
//! until this server ends.

use crate::ledger::Ledger;
use crate::queue::{Entry, OpenResult};
use estrade_model::admission::AdmissionError;
use estrade_model::amount::Amount;
use estrade_model::call::{BudgetReservation, Call, LedgerNodeId, RowState};
use estrade_store::calls::{CallRow, Slices};
use std::sync::Arc;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

/// Status of a call whose client disconnected before it went out.
const CLIENT_CLOSED_STATUS: u16 = 499;
/// Status of a call whose open row was not on disk in time.
const UNAVAILABLE_STATUS: u16 = 503;

pub(crate) struct ReservationGuard<'l> {
    ledger: &'l Arc<Ledger>,
    node: LedgerNodeId,
    call: &'l Call,
    pub(crate) slices: Slices,
    stage: Stage,
    /// Status of the closed row if the call does not go out.
    status: u16,
}

#[derive(PartialEq, Eq)]
enum Stage {
    /// Costs may be reserved, no row is queued.
    Reserved,
    /// The open row is queued or on disk.
    Recorded,
    /// The caller has the reservation.
    HandedOver,
}

impl<'l> ReservationGuard<'l> {
    pub(crate) fn new(ledger: &'l Arc<Ledger>, node: LedgerNodeId, call: &'l Call) -> Self {
        Self {
            ledger,
            node,
            call,
            slices: Slices::default(),
            stage: Stage::Reserved,
            status: CLIENT_CLOSED_STATUS,
        }
    }

    /// Writes the open row before `deadline`; none when this node was settled as dead meanwhile.
    pub(crate) async fn record(
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
        // The row was not written and never will be.
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
            // No upstream was asked.
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
