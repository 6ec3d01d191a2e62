//! Limits: requests and tokens per minute, and what a call may cost at most.

pub(crate) mod bucket;
pub(crate) mod cost_estimate;
pub(crate) mod detached_reads;
pub(crate) mod rate_limiter;
pub(crate) mod rate_sharing;
pub(crate) mod shared_bucket;

#[cfg(test)]
mod rate_sharing_tests;
