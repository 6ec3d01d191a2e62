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

pub use crate::settings::UsageSettings;
pub use activity::{activity, list_calls, read_call};
pub use ledger::Ledger;
