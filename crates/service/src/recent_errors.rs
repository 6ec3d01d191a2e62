//! The last warnings and errors of this process, for the status page of administrators.
//!
//! A ring of bounded size in memory: the log itself is elsewhere. Log messages never hold a secret.

use estrade_model::Timestamp;
use estrade_model::sync::MutexExt;
use std::collections::VecDeque;
use std::sync::Mutex;

/// How many are kept.
const MAX_ENTRIES: usize = 50;
/// How much is kept of one, in characters.
const MAX_CHARS: usize = 500;

/// A line of the log.
#[derive(Debug, Clone)]
pub struct LoggedProblem {
    pub at: Timestamp,
    /// Whether it is an error; a warning otherwise.
    pub is_error: bool,
    pub message: String,
}

static RING: Mutex<VecDeque<LoggedProblem>> = Mutex::new(VecDeque::new());

/// Keeps one, and forgets the oldest when there are many.
pub fn record(mut problem: LoggedProblem) {
    if let Some((end, _)) = problem.message.char_indices().nth(MAX_CHARS) {
        problem.message.truncate(end);
    }
    let mut ring = RING.lock_ignoring_poison();
    if ring.len() >= MAX_ENTRIES {
        ring.pop_front();
    }
    ring.push_back(problem);
}

/// Those that are kept, newest first.
pub fn list() -> Vec<LoggedProblem> {
    let ring = RING.lock_ignoring_poison();
    ring.iter().rev().cloned().collect()
}
