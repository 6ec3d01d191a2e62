//! What can be done with instances that run, on a real Docker Engine.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a failed step is a failed test"
)]

mod metrics;
mod shell;
mod socket;
mod support;
