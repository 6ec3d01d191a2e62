//! Limits: requests and tokens per minute, and what a call may cost at most.

pub(crate) mod bucket;
pub(crate) mod cost_estimate;
pub(crate) mod detached_reads;
pub(crate) mod rate_limiter;
pub(crate) mod rate_sharing;
pub(crate) mod report_queue;
pub(crate) mod shared_bucket;
pub(crate) mod sharing;
pub(crate) mod taking;

#[cfg(test)]
mod cluster_fixture;
#[cfg(test)]
mod limit_change_tests;
#[cfg(test)]
mod rate_limiter_tests;
#[cfg(test)]
mod rate_outage_tests;
#[cfg(test)]
mod rate_queue_tests;
#[cfg(test)]
mod rate_sharing_tests;
