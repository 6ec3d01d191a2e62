//! What calls use and cost: the ledger, budgets, and what is shown of them.
//!
//! [`Ledger`] is what a relay talks to: it sets money aside before a call goes out and writes the
//! call down when it has ended. [`slices`] is the part of each budget that this server may spend,
//! in memory; [`queue`] and [`writer`] bring calls to the database in batches; [`journal`] sees to it that those
//! under way are not lost; [`leases`] renews and returns what was leased and settles what servers that died
//! have left.

mod activity;
mod batch;
mod failure_detector;
mod journal;
mod leases;
mod ledger;
mod queue;
mod reservation_guard;
pub mod retention;
mod slices;
mod writer;

pub use activity::{activity, list_calls, read_call};
pub use ledger::Ledger;

use std::time::Duration;

/// How calls are accounted for.
#[derive(Debug, Clone)]
pub struct UsageSettings {
    /// Whether every call is on disk before it goes out and before its answer ends.
    pub strict: bool,
    /// For how many days calls are kept; their sums are kept for ever.
    pub keep_days: u32,
    /// How many calls are kept, about; the oldest of the workspaces that have most go first.
    pub keep_calls: u64,
    /// Calls that may wait for the database before no more are let in.
    pub queue: usize,
    /// How long a call that has ended may wait for others to be written with it.
    pub batch: Duration,
    /// After this time without a sign of life, what a server has leased is settled by another that
    /// could write all the while; a server that was not dead after all corrects it.
    pub deadline: Duration,
    /// After this time without a call, what was leased of a budget is given back.
    pub idle: Duration,
}

impl Default for UsageSettings {
    fn default() -> Self {
        Self {
            strict: false,
            keep_days: 30,
            keep_calls: 10_000_000,
            queue: 200_000,
            batch: Duration::from_millis(50),
            deadline: Duration::from_secs(10),
            idle: Duration::from_secs(3),
        }
    }
}
