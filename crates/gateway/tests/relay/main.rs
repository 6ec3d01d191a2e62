//! The relay against real sockets: a scripted provider on one side, a caller on the other.
//!
//! Connections begin on the fast path here, as in the product; `framework` has the same tests
//! without it.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a failed step is a failed test"
)]

mod cuts;
mod disconnects;
mod failures;
mod fast_path;
mod in_flight;
mod limits;
mod model_name;
mod refusals;
mod responses;
mod streams;
mod support;

/// Whether connections begin on the fast path.
const FAST_PATH: bool = true;
