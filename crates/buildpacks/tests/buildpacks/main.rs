//! Plans through the front door: sources in, Dockerfile out.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#![expect(clippy::panic, reason = "a test fails by panicking")]

mod caches;
mod details;
mod detection;
mod examples;
mod expectations;
mod frameworks;
mod hostile;
mod rules;
mod samples;
mod support;
