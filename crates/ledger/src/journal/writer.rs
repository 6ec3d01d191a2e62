//! The thread that writes the journal.

use super::files::JournalFiles;
use super::{InFlightJournal, Source, lock};
use crate::limits::clamp;
use crate::queue::Queue;
use estrade_model::WorkspaceId;
use estrade_model::call::{Call, CallId};
use estrade_model::error::error_chain;
use estrade_store::calls::Snapshot;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};
use std::thread;
use tokio::task::JoinHandle;

/// Bounds the memory for calls that have ended and wait for the database; further ones are left out, and are lost
/// only if the server is killed while the database is away.
const MAX_ENDED: usize = 10_000;

/// The running writer, on a blocking thread because writes to files block. Stops when this is dropped.
pub(crate) struct JournalTask {
    journal: Arc<InFlightJournal>,
    task: Option<JoinHandle<JournalWriter>>,
}

/// Starts the writer, if the journal was opened.
pub(crate) fn start(journal: &Arc<InFlightJournal>, queue: &Arc<Queue>) -> JournalTask {
    let idle = lock(&journal.idle).take();
    let task = idle.map(|(files, source)| {
        let mut writer = JournalWriter {
            journal: Arc::clone(journal),
            queue: Arc::clone(queue),
            files,
            source,
            in_flight: Vec::new(),
            ended: Vec::new(),
            written: None,
            failing: false,
        };
        tokio::task::spawn_blocking(move || {
            writer.run();
            writer
        })
    });
    JournalTask {
        journal: Arc::clone(journal),
        task,
    }
}

impl JournalTask {
    /// Stops the writer after a last snapshot. Call it when the database has everything: calls that are still in
    /// flight then stay in the files and are closed at the next start.
    pub(crate) async fn end(mut self) {
        self.journal.stop();
        // An error means that it has panicked, which was reported.
        if let Some(task) = self.task.take()
            && let Ok(mut writer) = task.await
        {
            writer.write_snapshot();
        }
    }
}

impl Drop for JournalTask {
    fn drop(&mut self) {
        self.journal.stop();
    }
}

struct JournalWriter {
    journal: Arc<InFlightJournal>,
    queue: Arc<Queue>,
    files: JournalFiles,
    source: Source,
    /// The calls in flight of the last snapshot.
    in_flight: Vec<Call>,
    /// Calls that have ended, each with the round of the queue after which its row is on disk.
    ended: Vec<(u64, Call)>,
    /// What the newest file holds; none after a failed write.
    written: Option<Snapshot>,
    failing: bool,
}

impl JournalWriter {
    fn run(&mut self) {
        let journal = Arc::clone(&self.journal);
        let _ = journal.thread.set(thread::current());
        fence(Ordering::SeqCst);
        while journal.wait() {
            // Cleared before the source is read: a call that comes meanwhile sets it again.
            journal.awake.store(false, Ordering::Relaxed);
            if self.write_snapshot() {
                journal.awake.store(true, Ordering::Relaxed);
            }
        }
    }

    /// Writes a snapshot if it differs from the last one; returns whether there will be something to write.
    fn write_snapshot(&mut self) -> bool {
        let (mut calls, others) = (self.source)();
        calls.iter_mut().for_each(clamp);
        calls.sort_unstable_by_key(sort_key);
        self.retain_ended(&calls);
        self.in_flight = calls;
        let now = self.all();
        let any = !now.bytes().is_empty();
        self.write_files(now);
        others || any
    }

    /// Everything that a restart has to find: in flight, ended but not on disk, and recovered but not closed.
    fn all(&self) -> Snapshot {
        let recovered = lock(&self.journal.recovered);
        let ended = self.ended.iter().map(|(_, call)| call);
        let mut all: Vec<_> = self
            .in_flight
            .iter()
            .chain(ended)
            .chain(recovered.iter())
            .collect();
        all.sort_unstable_by_key(|call| sort_key(call));
        Snapshot::of(&all)
    }

    /// A call that is no longer in flight is on its way to the database. It stays in the journal until its row is on
    /// disk; without that, a kill between the end of a call and the commit would lose it.
    fn retain_ended(&mut self, calls: &[Call]) {
        let queue = &self.queue;
        // Its close was queued before the source stopped returning it, so it is in the next round at the latest.
        let until = queue.rounds_taken() + 1;
        let is_there = |call: &Call| {
            calls
                .binary_search_by_key(&sort_key(call), sort_key)
                .is_ok()
        };
        let room = MAX_ENDED.saturating_sub(self.ended.len());
        let gone = self.in_flight.drain(..).filter(|call| !is_there(call));
        self.ended.extend(gone.take(room).map(|call| (until, call)));
        let (all_done, done) = (queue.unwritten() == 0, queue.rounds_written());
        // A call that was refused and goes out again is in flight again.
        self.ended
            .retain(|(until, call)| !all_done && done < *until && !is_there(call));
    }

    fn write_files(&mut self, now: Snapshot) {
        if self.written.as_ref() == Some(&now) {
            return;
        }
        match self.files.write(&now) {
            Ok(()) => {
                self.written = Some(now);
                self.failing = false;
            }
            Err(error) => {
                self.written = None;
                if !std::mem::replace(&mut self.failing, true) {
                    tracing::error!(
                        error = error_chain(&error),
                        "cannot write the in-flight journal"
                    );
                }
            }
        }
    }
}

fn sort_key(call: &Call) -> (WorkspaceId, CallId) {
    (call.workspace, call.id)
}
