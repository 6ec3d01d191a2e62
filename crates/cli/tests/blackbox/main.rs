//! Black-box tests: the built binary as a process of its own, over real sockets.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#![expect(clippy::panic, reason = "a test fails by panicking")]
#![expect(
    clippy::print_stderr,
    reason = "measured times and reasons for skipping"
)]

mod administration;
mod bucket;
mod client;
mod configuration_document;
mod containers;
mod crashes;
mod damage;
mod disk_full;
mod first_start;
mod greeting;
mod images;
mod inference;
mod logs;
mod membership;
mod nodes;
mod outages;
mod output;
mod rate_limits;
mod stopping;
mod support;
mod terminal;
