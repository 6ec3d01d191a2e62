//! Projects that run, on a real Docker Engine: from a release to what visitors get.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a failed step is a failed test"
)]

mod auto;
mod builds;
mod crowd;
mod disks;
mod failures;
mod isolation;
mod lifecycle;
mod limits;
mod lost_images;
mod packages;
mod pages;
mod secrets;
mod sources;
mod support;
mod switches;
mod switching;
mod turns;
mod websocket;
