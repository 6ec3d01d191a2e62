//! Deployed projects as their visitors see them: real sockets, real releases.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a failed step is a failed test"
)]

mod conditions;
mod connections;
mod nginx;
mod routing;
mod rules;
mod serving;
mod skew;
mod support;
mod switching;
