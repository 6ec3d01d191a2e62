//! The tests of `relay` once more, with every request through hyper: so it is over TLS and HTTP/2.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a failed step is a failed test"
)]

#[path = "../relay/cuts.rs"]
mod cuts;
#[path = "../relay/disconnects.rs"]
mod disconnects;
#[path = "../relay/failures.rs"]
mod failures;
#[path = "../relay/in_flight.rs"]
mod in_flight;
#[path = "../relay/limits.rs"]
mod limits;
#[path = "../relay/model_name.rs"]
mod model_name;
#[path = "../relay/refusals.rs"]
mod refusals;
#[path = "../relay/responses.rs"]
mod responses;
#[path = "../relay/streams.rs"]
mod streams;
#[path = "../relay/support/mod.rs"]
mod support;

/// Whether connections begin on the fast path.
const FAST_PATH: bool = false;
