//! The rows of one transaction of the writer, and the tasks that wait for them.

use crate::ledger::Ledger;
use crate::queue::{Entry, OpenResult};
use estrade_model::call::{LedgerNodeId, RowState};
use estrade_store::calls::{CallRow, Written};
use std::sync::Arc;
use tokio::sync::oneshot;

pub(crate) struct Batch {
    /// The node that the open rows belong to.
    pub(crate) node: LedgerNodeId,
    pub(crate) open: Arc<Vec<CallRow>>,
    pub(crate) closed: Arc<Vec<CallRow>>,
    opened: Vec<oneshot::Sender<OpenResult>>,
    closing: Vec<Option<oneshot::Sender<()>>>,
    flushes: Vec<oneshot::Sender<()>>,
}

impl Batch {
    /// Sorts entries into a batch. Open rows of a former node of this server are answered at once: their reservations
    /// are void.
    pub(crate) fn new(ledger: &Ledger, mut entries: Vec<Entry>) -> Self {
        // In the order of the primary key: fewer pages are touched.
        entries.sort_by_key(Entry::sort_key);
        let node = ledger.slices().node;
        let (mut open, mut opened) = (Vec::new(), Vec::new());
        let (mut closed, mut closing) = (Vec::with_capacity(entries.len()), Vec::new());
        let mut flushes = Vec::new();
        for entry in entries {
            match entry {
                Entry::Open { node: of, done, .. } if of != node => {
                    ledger.queue.mark_written(1);
                    // Fails if the caller has left; the same below.
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

    pub(crate) fn len(&self) -> usize {
        self.open.len() + self.closed.len()
    }

    /// Splits it in two; the one to be written first comes last. Open rows go before closed ones, as in a batch.
    pub(crate) fn split(mut self) -> [Self; 2] {
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

    /// The batch is on disk: releases slices and tells the waiting callers.
    pub(crate) fn complete(self, ledger: &Ledger, written: &Written) {
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

    /// The batch can never be written. Its slices stay leased: calls with an open row are settled at their reservation
    /// when this node is gone, so a budget is rather charged too much than exceeded.
    pub(crate) fn abandon(self, ledger: &Ledger) {
        ledger.count_unrecorded(self.closed.len());
        self.notify(ledger, OpenResult::Rejected);
    }

    /// The batch cannot be written before this server ends. Calls without an open row go to the journal and are written
    /// after the next start; those with one are settled as in [`Self::abandon`]. Returns how many went to the journal.
    pub(crate) fn defer_to_next_start(self, ledger: &Ledger) -> usize {
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
        // A dropped sender says that the row is not on disk.
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
