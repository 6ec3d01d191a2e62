//! The usage ledger: reserves the cost of inference calls in budgets and records what they used.
//!
//! Path of a call: [`admission`] reserves its maximum cost in a [slice](slices) of the budget that this server has
//! leased, held by a [guard](reservation_guard) until the call goes out; [`Ledger::close`] settles it at its end and
//! puts its row into the [`queue`]; the [`writer`] commits rows in [batches](batch) (group commit). Calls without a row
//! are covered by the write-ahead [`journal`].
//!
//! Leases: each server is a node with a deadline in the database. [`leases`] renews it, returns idle slices, and
//! settles nodes that the [failure detector](estrade_store::failure_detector) finds dead.
//!
//! Invariants: reservations and settled costs of all servers never exceed a budget, and each call is accounted exactly
//! once, also when servers are killed and when the database is away. Who may see the records is decided elsewhere.

mod admission;
mod batch;
mod context;
mod error;
mod journal;
mod leases;
mod ledger;
mod limits;
mod queue;
mod reservation_guard;
pub mod retention;
mod settings;
mod slices;
mod tasks;
mod writer;

pub use context::LedgerContext;
pub use error::LedgerError;
pub use ledger::Ledger;
pub use settings::UsageSettings;
