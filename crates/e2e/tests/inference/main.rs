//! Inference as callers meet it: keys, limits, models and records, against a scripted upstream.

#![expect(clippy::unwrap_used, reason = "a failed step is a failed test")]

mod browsers;
mod documents;
mod keys;
mod limits;
mod providers;
mod support;
mod traces;
