//! Both APIs through the front door: real sockets, both backends, the contract as tests.
//!
//! `platform` and `ai` mirror the URLs; `rules` holds what is true for every endpoint.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a failed step is a failed test"
)]

mod ai;
mod parallel;
mod platform;
mod random_bodies;
mod rules;
mod secrets;
mod support;
