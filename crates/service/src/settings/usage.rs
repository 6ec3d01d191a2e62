//! What the configuration says about the accounting of inference calls.

use std::time::Duration;

/// How calls are accounted for.
#[derive(Debug, Clone)]
pub struct UsageSettings {
    /// Whether every call is on disk before it goes out and before its answer ends.
    pub strict: bool,
    /// For how many days calls are kept; their sums are kept for ever.
    pub keep_days: u32,
    /// How many calls are kept, about; the oldest of the workspaces that have most go first.
    pub keep_calls: u64,
    /// Calls that may wait for the database before no more are let in.
    pub queue: usize,
    /// How long a call that has ended may wait for others to be written with it.
    pub batch: Duration,
    /// After this time without a sign of life, what a server has leased is settled by another that
    /// could write all the while; a server that was not dead after all corrects it.
    pub deadline: Duration,
    /// After this time without a call, what was leased of a budget is given back.
    pub idle: Duration,
}

impl Default for UsageSettings {
    fn default() -> Self {
        Self {
            strict: false,
            keep_days: 30,
            keep_calls: 10_000_000,
            queue: 200_000,
            batch: Duration::from_millis(50),
            deadline: Duration::from_secs(10),
            idle: Duration::from_secs(3),
        }
    }
}
