//! What the crate promises, on a real Docker Engine.
#![expect(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test that cannot go on should stop where it is"
)]

mod builds;
mod caches;
mod egress;
mod images;
mod instances;
mod isolation;
mod limits;
mod output;
mod restart;
mod shell;
mod support;
