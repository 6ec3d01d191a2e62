//! Projects that run, as their visitors see them: real sockets on both sides of the edge.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a failed step is a failed test"
)]

mod backend;
mod bodies;
mod connections;
mod failures;
mod headers;
mod notes;
mod secure;
mod stage;
mod switching;
mod upgrades;
mod visitor;
