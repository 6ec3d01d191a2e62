//! The ledger: nothing is lost, counted twice or overspent, also when a server dies.

#![expect(clippy::unwrap_used, reason = "a failed step is a failed test")]

#[path = "../accounts_support/mod.rs"]
mod support;

mod budgets;
mod in_flight;
mod ledger;
mod node;
mod reading;
mod totals;
