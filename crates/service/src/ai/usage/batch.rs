//! What one transaction of the writer brings to disk, and who waits for it.

use super::ledger::Ledger;
use super::queue::{Entry, OpenResult};
use estrade_model::call::{NodeId, RowState};
use estrade_store::calls::{CallRow, Written};
use std::sync::Arc;
use tokio::sync::oneshot;

/// What is written together.
pub(super) struct Batch {
    /// As whom calls are opened.
    pub(super) node: NodeId,
    /// Calls that want to go out.
    pub(super) open: Arc<Vec<CallRow>>,
    /// Calls that have ended.
    pub(super) closed: Arc<Vec<CallRow>>,
    opened: Vec<oneshot::Sender<OpenResult>>,
    /// Who is told that a call is closed on disk.
    closing: Vec<Option<oneshot::Sender<()>>>,
    flushes: Vec<oneshot::Sender<()>>,
}

impl Batch {
    /// Sorts entries. What was set aside by a server that we no longer are is lost.
    pub(super) fn new(ledger: &Ledger, mut entries: Vec<Entry>) -> Self {
        // In the order of the table: fewer pages are touched.
        entries.sort_by_key(Entry::sort_key);
        let node = ledger.slices().node;
        let (mut open, mut opened) = (Vec::new(), Vec::new());
        let (mut closed, mut closing) = (Vec::with_capacity(entries.len()), Vec::new());
        let mut flushes = Vec::new();
        for entry in entries {
            match entry {
                Entry::Open { node: of, done, .. } if of != node => {
                    ledger.queue.mark_written(1);
                    // A caller that went away does not need the answer; the same below.
                    let _ = done.send(OpenResult::NodeSettled);
                }
                Entry::Open { row, done, .. } => {
                    open.push(row);
                    opened.push(done);
                }
                Entry::Close { row, done } => {
                    closed.push(row);
                    closing.push(done);
                }
                Entry::Flush(done) => flushes.push(done),
            }
        }
        Self {
            node,
            open: Arc::new(open),
            closed: Arc::new(closed),
            opened,
            closing,
            flushes,
        }
    }

    /// How many rows it has.
    pub(super) fn len(&self) -> usize {
        self.open.len() + self.closed.len()
    }

    /// Two batches of the same rows; the one to be written first is the last.
    pub(super) fn split(mut self) -> [Self; 2] {
        let (open, closed) = if self.open.is_empty() {
            (0, self.closed.len() / 2)
        } else if self.closed.is_empty() {
            (self.open.len() / 2, 0)
        } else {
            (self.open.len(), 0)
        };
        let second = Self {
            node: self.node,
            open: Arc::new(self.open[open..].to_vec()),
            closed: Arc::new(self.closed[closed..].to_vec()),
            opened: self.opened.split_off(open),
            closing: self.closing.split_off(closed),
            flushes: std::mem::take(&mut self.flushes),
        };
        self.open = Arc::new(self.open[..open].to_vec());
        self.closed = Arc::new(self.closed[..closed].to_vec());
        [second, self]
    }

    /// Tells everybody that it is on disk.
    pub(super) fn complete(self, ledger: &Ledger, written: &Written) {
        for row in &*self.closed {
            ledger.release(row.slices);
            if row.row_state == RowState::Open {
                ledger.closed();
            }
        }
        self.notify(
            ledger,
            if written.alive {
                OpenResult::Recorded
            } else {
                OpenResult::NodeSettled
            },
        );
    }

    /// Tells everybody that it will never be. What its calls were paid from stays leased: on record
    /// they are open, at what was set aside, and so they are settled when this server is gone.
    pub(super) fn abandon(self, ledger: &Ledger) {
        ledger.count_unrecorded(self.closed.len());
        self.notify(ledger, OpenResult::Rejected);
    }

    /// Tells everybody that it will not be while this server runs. Calls that have ended are written after its next
    /// start; those that are on record as open are settled as when it is given up. Returns how many are kept.
    pub(super) fn defer_to_next_start(self, ledger: &Ledger) -> usize {
        let ended = self
            .closed
            .iter()
            .filter(|row| row.row_state != RowState::Open);
        let kept = ledger.journal.defer(ended.map(|row| row.call.clone()));
        ledger.count_unrecorded(self.closed.len() - kept);
        self.notify(ledger, OpenResult::Rejected);
        kept
    }

    fn notify(self, ledger: &Ledger, opened: OpenResult) {
        ledger.queue.mark_written(self.len() + self.flushes.len());
        for done in self.opened {
            let _ = done.send(opened);
        }
        // Whoever is told nothing knows that it is not on disk.
        for done in self.closing.into_iter().flatten() {
            if opened != OpenResult::Rejected {
                let _ = done.send(());
            }
        }
        for done in self.flushes {
            let _ = done.send(());
        }
    }
}
