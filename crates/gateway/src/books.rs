//! Accounting, as the relay sees it: money is set aside before a call and settled after it.

use crate::doors::Pass;
use estrade_model::Timestamp;
use estrade_model::amount::Amount;
use estrade_model::call::{Call, CallId, Operation, Ticket};
use estrade_model::key::Budget;
use futures_util::future::BoxFuture;
use std::sync::Arc;

/// A call that wants to go out.
#[derive(Debug, Clone)]
pub struct Draft {
    /// Its identifier.
    pub id: CallId,
    /// When it came in.
    pub created_at: Timestamp,
    /// What is asked for.
    pub operation: Operation,
    /// The model.
    pub model: Arc<str>,
    /// Whether the answer shall be a stream.
    pub streamed: bool,
    /// The most it may cost.
    pub most: Amount,
}

/// Whether a call may go out.
pub enum Admission {
    /// It may.
    Ready(Ticket),
    /// It may when this says so: money has to be leased, or the call put on record, first.
    ///
    /// Dropped before its end when the caller leaves. Then what was set aside by then has to be given
    /// back, and the call is closed with [`Ticket::NONE`], also if it is on record already.
    Wait(BoxFuture<'static, Result<Ticket, Refused>>),
    /// It may not.
    Refused(Refused),
}

/// Why a call may not go out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refused {
    /// 402: a budget is spent.
    Budget {
        /// Whether it is the workspace's rather than the key's.
        of_workspace: bool,
        /// The budget.
        budget: Budget,
        /// When there will be more; never, for a total.
        resets_at: Option<Timestamp>,
    },
    /// 503: calls can not be written down at the moment, so none is made.
    Unavailable,
}

/// Keeps the books.
pub trait Books: Send + Sync + 'static {
    /// Sets aside the most that a call may cost in the budgets of its key and workspace, and puts it
    /// on record where it must not be lost. Without a budget and in relaxed mode it answers at once.
    fn admit(&self, pass: &Pass, draft: &Draft) -> Admission;

    /// Writes down a call that has ended and gives back what was set aside. Every call that was let
    /// in is closed exactly once, also those that were refused ([`Ticket::NONE`]). Never waits.
    ///
    /// In strict mode it returns what to wait for before the caller sees the end of the answer. Nobody
    /// waits for it when the caller has left: the call is written all the same.
    fn close(&self, ticket: Ticket, call: Call) -> Option<BoxFuture<'static, ()>>;
}
