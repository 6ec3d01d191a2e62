//! The relay against real sockets: a scripted provider on one side, a caller on the other.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a failed step is a failed test"
)]

mod answers;
mod cuts;
mod failures;
mod limits;
mod refusals;
mod streams;
mod support;
