//! Rate limits that several nodes share: what a node reports of a bucket, and what the shared bucket replies.

use std::num::NonZeroU32;

/// One request or token, in the fractions that buckets are measured in: a limit of N lets N of them leak in a
/// microsecond, so that buckets never round.
pub const RATE_ONE: u64 = 60_000_000;

/// What a limit counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RateUnit {
    Requests,
    Tokens,
}

/// What a node reports of a bucket, and asks of it. Amounts are in fractions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RateReport {
    /// The key's or workspace's id.
    pub subject: [u8; 12],
    pub unit: RateUnit,
    pub limit: NonZeroU32,
    /// What was used since the last report; negative: what is given back.
    pub change: i64,
    /// What this node alone has used and has not leaked. The shared bucket holds at least that, so one that was lost
    /// (PostgreSQL empties unlogged tables after a crash), or that this node did not need while it was alone, is
    /// filled again.
    pub own: i64,
    /// What the first call needs that waits for an answer; 0: none waits.
    pub first: i64,
    /// What all calls need that wait.
    pub all: i64,
}

/// The state of a shared bucket after a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RateReply {
    /// What all nodes have used, with what was granted.
    pub used: i64,
    /// How much of what was asked for is granted.
    pub granted: i64,
}
