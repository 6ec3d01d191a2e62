//! Accounting of calls: the account of each, calls in flight, and the usage ledger.

pub(crate) mod account;
pub(crate) mod in_flight;
pub(crate) mod usage;
pub mod usage_ledger;

use crate::limits::rate_limiter::RateLimiter;
use crate::metrics::Series;
use crate::options::Clock;
use crate::trace::Tracing;
use std::sync::Arc;
use usage_ledger::UsageLedger;

/// What the accounts of all calls share.
pub(crate) struct Accounting {
    pub(crate) ledger: Arc<dyn UsageLedger>,
    pub(crate) limiter: RateLimiter,
    pub(crate) clock: Clock,
    pub(crate) tracing: Option<Tracing>,
    /// Where calls are counted that name no model that exists.
    pub(crate) unknown: Arc<Series>,
    /// The empty text, for records.
    pub(crate) empty: Arc<str>,
}
