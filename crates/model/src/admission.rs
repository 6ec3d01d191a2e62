//! Admission of a call: what the gateway estimates of it, and whether the usage ledger has a budget for it.

use crate::Timestamp;
use crate::amount::Amount;
use crate::call::{BudgetReservation, CallId, Operation};
use crate::key::Budget;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

/// What is known of a call before it is sent, and the most that it may cost.
#[derive(Debug, Clone)]
pub struct CallEstimate {
    pub id: CallId,
    pub created_at: Timestamp,
    pub operation: Operation,
    pub model: Arc<str>,
    /// The provider that is called first; empty when none is.
    pub provider: Arc<str>,
    /// Whether the response shall be a stream.
    pub streamed: bool,
    /// The most it may cost.
    pub max_cost: Amount,
}

/// Whether a call may be sent.
pub enum Admission {
    Ready(BudgetReservation),
    /// It may when this says so: money has to be leased, or the call put on record, first.
    ///
    /// Dropped before its end when the caller leaves. Then what was set aside by then has to be given
    /// back, and the call is closed with [`BudgetReservation::NONE`], also if it is on record already.
    Wait(PendingAdmission),
    Refused(AdmissionError),
}

pub type PendingAdmission =
    Pin<Box<dyn Future<Output = Result<BudgetReservation, AdmissionError>> + Send>>;

/// Why a call may not be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AdmissionError {
    /// 402: a budget is spent.
    Budget {
        /// Whether it is the workspace's rather than the key's.
        of_workspace: bool,
        budget: Budget,
        /// When there will be more; never, for a total.
        resets_at: Option<Timestamp>,
    },
    /// 503: calls cannot be written down at the moment, so none is made.
    Unavailable,
}
