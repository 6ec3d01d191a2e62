//! The usage ledger as the gateway sees it: a budget is reserved before a call and settled after it.

use crate::auth::AuthContext;
use estrade_model::call::{BudgetReservation, Call};
use futures_util::future::BoxFuture;

pub use estrade_model::admission::{Admission, AdmissionError, CallEstimate};

/// Reserves budgets and records calls.
pub trait UsageLedger: Send + Sync + 'static {
    /// Reserves the most that a call may cost in the budgets of its key and workspace, and records it
    /// where it must not be lost. Without a budget and in relaxed mode it is ready at once.
    fn admit(&self, auth: &AuthContext, estimate: &CallEstimate) -> Admission;

    /// A call that is not on record is sent. From now on [`Gateway::in_flight`](crate::Gateway::in_flight) has it.
    fn call_sent(&self);

    /// Records a call that has ended and releases its reservation. Every authenticated call is closed exactly
    /// once, also those that were refused ([`BudgetReservation::NONE`]). Never waits.
    ///
    /// In strict mode it returns a future to await before the client sees the end of the response: whether the
    /// call is on disk, which is known after a bounded time. It may be dropped when the client has
    /// disconnected: the call is written all the same.
    fn close(&self, reservation: BudgetReservation, call: Call)
    -> Option<BoxFuture<'static, bool>>;
}
