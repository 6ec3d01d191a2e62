//! Calls on their way to the database. Adding one takes a short lock and never waits.

use estrade_model::WorkspaceId;
use estrade_model::call::{CallId, NodeId};
use estrade_model::sync::MutexExt;
use estrade_store::calls::CallRow;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

/// Something to be written.
pub(super) enum Entry {
    /// A call that wants to go out.
    Open {
        /// The call, at what was set aside for it.
        row: CallRow,
        /// As whom the money was set aside.
        node: NodeId,
        /// Told when it is on disk.
        done: oneshot::Sender<OpenResult>,
    },
    /// A call that has ended.
    Close {
        /// The call.
        row: CallRow,
        /// Told when it is on disk.
        done: Option<oneshot::Sender<()>>,
    },
    /// Nothing: somebody wants to know when everything before it is on disk.
    Flush(oneshot::Sender<()>),
}

impl Entry {
    /// Where it will lie in the table.
    pub(super) fn sort_key(&self) -> Option<(WorkspaceId, CallId)> {
        match self {
            Self::Open { row, .. } | Self::Close { row, .. } => {
                Some((row.call.workspace, row.call.id))
            }
            Self::Flush(_) => None,
        }
    }

    /// Whether somebody waits for it.
    fn is_urgent(&self) -> bool {
        !matches!(self, Self::Close { done: None, .. })
    }
}

/// What became of a call that wants to go out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OpenResult {
    /// It is on record.
    Recorded,
    /// This server was settled as one that died; what was set aside is void.
    NodeSettled,
    /// It cannot be written.
    Rejected,
}

#[derive(Default)]
struct Waiting {
    entries: Vec<Entry>,
    /// When the oldest of them came.
    since: Option<Instant>,
    urgent: bool,
}

/// What waits to be written.
#[derive(Default)]
pub(super) struct Queue {
    waiting: Mutex<Waiting>,
    /// Entries that are not on disk yet, those that are being written included.
    unwritten: AtomicUsize,
    /// How often everything that waited was taken, and how often all of it was on disk then.
    rounds_taken: AtomicU64,
    rounds_written: AtomicU64,
    not_empty: Notify,
    urgent: Notify,
}

impl Queue {
    /// Adds an entry.
    pub(super) fn push(&self, entry: Entry) {
        self.unwritten.fetch_add(1, Ordering::Relaxed);
        let urgent = entry.is_urgent();
        let mut waiting = self.waiting();
        let was_empty = waiting.entries.is_empty();
        let was_urgent = waiting.urgent;
        waiting.urgent |= urgent;
        if was_empty {
            waiting.since = Some(Instant::now());
        }
        waiting.entries.push(entry);
        drop(waiting);
        if was_empty {
            self.not_empty.notify_one();
        }
        if urgent && !was_urgent {
            self.urgent.notify_one();
        }
    }

    /// Returns when there is something to write, and since when.
    pub(super) async fn not_empty(&self) -> Instant {
        loop {
            if let Some(since) = self.waiting().since {
                return since;
            }
            self.not_empty.notified().await;
        }
    }

    /// Returns when somebody waits for what is to be written.
    pub(super) async fn urgent(&self) {
        while !self.waiting().urgent {
            self.urgent.notified().await;
        }
    }

    /// Takes everything that waits.
    pub(super) fn take(&self) -> Vec<Entry> {
        let mut waiting = self.waiting();
        waiting.urgent = false;
        waiting.since = None;
        self.rounds_taken.fetch_add(1, Ordering::Relaxed);
        std::mem::take(&mut waiting.entries)
    }

    /// Says that all that was taken last is on disk.
    pub(super) fn finish_round(&self) {
        let taken = self.rounds_taken.load(Ordering::Relaxed);
        self.rounds_written.store(taken, Ordering::Release);
    }

    /// How often what waited was taken. What was added before is in one of these, or in the next.
    pub(super) fn rounds_taken(&self) -> u64 {
        // Under the lock: whoever takes has the lock when it counts.
        let _waiting = self.waiting();
        self.rounds_taken.load(Ordering::Relaxed)
    }

    /// How many of those are on disk.
    pub(super) fn rounds_written(&self) -> u64 {
        self.rounds_written.load(Ordering::Acquire)
    }

    /// Says that so many of what was taken are on disk.
    pub(super) fn mark_written(&self, count: usize) {
        self.unwritten.fetch_sub(count, Ordering::Relaxed);
    }

    /// How many entries are not on disk yet.
    pub(super) fn unwritten(&self) -> usize {
        self.unwritten.load(Ordering::Relaxed)
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock_ignoring_poison()
    }
}
