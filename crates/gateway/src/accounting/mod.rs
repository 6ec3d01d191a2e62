//! Accounting of calls: the account of each, calls in flight, the ledger, counters and traces.

pub(crate) mod account;
pub(crate) mod in_flight;
pub mod metrics;
pub mod trace;
pub mod usage_ledger;
