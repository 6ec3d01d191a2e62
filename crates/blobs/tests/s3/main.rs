//! The blob store over a real S3 server: what it costs in requests, what the cache does, and what an outage, a second
//! node or a wrong key mean.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a failed step is a failed test"
)]

mod cache;
mod contents;
mod forwarder;
mod migration;
mod nodes;
mod opening;
mod outage;
mod support;

/// The size from which a content has a file of its own.
const LARGE: usize = 1 << 20;
const MEBIBYTE: u64 = 1 << 20;
