//! Whether a call may go out: what a relay asks the books, and what they answer.

use crate::Timestamp;
use crate::amount::Amount;
use crate::call::{CallId, Operation, Ticket};
use crate::key::Budget;
use std::future::Future;
use std::pin::Pin;
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
    /// Who is asked first; empty when nobody is.
    pub provider: Arc<str>,
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
    Wait(Waiting),
    /// It may not.
    Refused(Refused),
}

/// An answer that is still to come.
pub type Waiting = Pin<Box<dyn Future<Output = Result<Ticket, Refused>> + Send>>;

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
    /// 503: calls cannot be written down at the moment, so none is made.
    Unavailable,
}
