//! Settings of the ledger.

use std::time::Duration;

/// How calls are accounted for.
#[derive(Debug, Clone)]
pub struct UsageSettings {
    /// Strict mode: every call has a row on disk before it goes out, and its closed row before its response ends.
    pub strict: bool,
    /// For how many days calls are kept; their sums are kept for ever.
    pub keep_days: u32,
    /// How many calls are kept, about; the oldest of the workspaces that have most go first.
    pub keep_calls: u64,
    /// Rows that may be unwritten before further calls are refused.
    pub queue: usize,
    /// Group commit: how long a closed row may wait for others.
    pub batch: Duration,
    /// A node that has not renewed its deadline for so long is settled by another server. One that was alive after
    /// all corrects the settled rows when it closes its calls.
    pub deadline: Duration,
    /// A slice that was not used for so long is returned.
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
