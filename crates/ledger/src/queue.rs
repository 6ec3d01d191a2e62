//! The queue between calls and the writer. Pushing takes a short lock and never waits.
//!
//! It is bounded by admission and not here: a call that was admitted must be recorded, so its row is always taken.
//! The writer empties the queue in rounds. Invariant: an entry that was pushed before [`Queue::rounds_taken`] returned
//! `n` is on disk when [`Queue::rounds_written`] is at least `n + 1`; the journal relies on it.

use estrade_model::WorkspaceId;
use estrade_model::call::{CallId, LedgerNodeId};
use estrade_model::sync::MutexExt;
use estrade_store::calls::CallRow;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

pub(crate) enum Entry {
    /// The open row of a call that wants to go out.
    Open {
        row: CallRow,
        /// The node that made the reservation.
        node: LedgerNodeId,
        done: oneshot::Sender<OpenResult>,
    },
    /// The closed row of a call that has ended.
    Close {
        row: CallRow,
        done: Option<oneshot::Sender<()>>,
    },
    /// No row: resolves when everything before it is on disk.
    Flush(oneshot::Sender<()>),
}

impl Entry {
    /// The primary key of the row.
    pub(crate) fn sort_key(&self) -> Option<(WorkspaceId, CallId)> {
        match self {
            Self::Open { row, .. } | Self::Close { row, .. } => {
                Some((row.call.workspace, row.call.id))
            }
            Self::Flush(_) => None,
        }
    }

    /// Whether a caller waits for it, so that the writer must not delay it.
    fn is_urgent(&self) -> bool {
        !matches!(self, Self::Close { done: None, .. })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OpenResult {
    /// The row is on disk.
    Recorded,
    /// This node was settled as dead; its reservations are void.
    NodeSettled,
    /// The row cannot be written.
    Rejected,
}

#[derive(Default)]
struct Waiting {
    entries: Vec<Entry>,
    /// When the oldest entry was pushed.
    since: Option<Instant>,
    urgent: bool,
}

#[derive(Default)]
pub(crate) struct Queue {
    waiting: Mutex<Waiting>,
    /// Entries that are not on disk, including those that are being written.
    unwritten: AtomicUsize,
    rounds_taken: AtomicU64,
    rounds_written: AtomicU64,
    not_empty: Notify,
    urgent: Notify,
}

impl Queue {
    pub(crate) fn push(&self, entry: Entry) {
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

    /// Waits for an entry; returns when the oldest was pushed.
    pub(crate) async fn not_empty(&self) -> Instant {
        loop {
            if let Some(since) = self.waiting().since {
                return since;
            }
            self.not_empty.notified().await;
        }
    }

    /// Waits for an entry that a caller waits for.
    pub(crate) async fn urgent(&self) {
        while !self.waiting().urgent {
            self.urgent.notified().await;
        }
    }

    /// Takes all entries: a round begins.
    pub(crate) fn take(&self) -> Vec<Entry> {
        let mut waiting = self.waiting();
        waiting.urgent = false;
        waiting.since = None;
        self.rounds_taken.fetch_add(1, Ordering::Relaxed);
        std::mem::take(&mut waiting.entries)
    }

    /// The round that was taken last is on disk.
    pub(crate) fn finish_round(&self) {
        let taken = self.rounds_taken.load(Ordering::Relaxed);
        self.rounds_written.store(taken, Ordering::Release);
    }

    /// Rounds so far. What was pushed before is in one of them or in the next.
    pub(crate) fn rounds_taken(&self) -> u64 {
        // Under the lock, under which `take` counts: a push that happened before us cannot be in a later round.
        let _waiting = self.waiting();
        self.rounds_taken.load(Ordering::Relaxed)
    }

    /// Rounds that are on disk.
    pub(crate) fn rounds_written(&self) -> u64 {
        self.rounds_written.load(Ordering::Acquire)
    }

    /// So many entries are on disk, or were given up.
    pub(crate) fn mark_written(&self, count: usize) {
        self.unwritten.fetch_sub(count, Ordering::Relaxed);
    }

    pub(crate) fn unwritten(&self) -> usize {
        self.unwritten.load(Ordering::Relaxed)
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock_ignoring_poison()
    }
}
