//! Looks after calls that are under way and on record nowhere: what they took so far is written down again and
//! again, so that a server that is killed loses no more than a moment of them.

pub(super) mod files;

use super::ledger::{Ledger, clamp};
use crate::{Error, Result};
use estrade_model::WorkspaceId;
use estrade_model::call::{Call, CallId};
use estrade_model::error::error_chain;
use estrade_model::sync::MutexExt;
use estrade_store::calls::{Snapshot, close_in_flight};
use files::JournalFiles;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::thread::{self, Thread};
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

/// How long what happens to a call may be known to nobody else; 100 ms are promised.
const WRITE_INTERVAL: Duration = Duration::from_millis(80);
/// Calls that have ended and are kept until that is on disk; when it takes very long, not all are.
const MAX_ENDED: usize = 10_000;
/// Calls that one transaction closes. Few: others write meanwhile, and on PostgreSQL a transaction that they clash
/// with is done again.
const RECOVERY_BATCH: usize = 100;
/// How long to wait before that is tried again.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// Knows calls that are under way, and whether there are others that it will know soon.
type Source = Box<dyn Fn() -> (Vec<Call>, bool) + Send + Sync>;

/// Knows whether there is something to look after.
#[derive(Default)]
pub(super) struct InFlightJournal {
    /// Whom to ask and where to keep it, until somebody does.
    idle: Mutex<Option<(JournalFiles, Source)>>,
    /// What an earlier run had under way, until it is closed; and what this one leaves.
    recovered: Mutex<Vec<Call>>,
    /// Whether there is a place to keep something in.
    attached: AtomicBool,
    /// Whether there may be something to write.
    awake: AtomicBool,
    stopping: AtomicBool,
    /// Who is woken.
    thread: OnceLock<Thread>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock_ignoring_poison()
}

impl InFlightJournal {
    /// Says what there is to look after, and what was left of it.
    pub(super) fn attach(&self, files: JournalFiles, recovered: Vec<Call>, source: Source) {
        *lock(&self.idle) = Some((files, source));
        *lock(&self.recovered) = recovered;
        self.attached.store(true, Ordering::Relaxed);
    }

    /// Leaves calls that have ended for the next start, if they can be kept; how many are.
    pub(super) fn defer(&self, calls: impl Iterator<Item = Call>) -> usize {
        if !self.attached.load(Ordering::Relaxed) {
            return 0;
        }
        let mut recovered = lock(&self.recovered);
        let in_flight = recovered.len();
        recovered.extend(calls);
        recovered.len() - in_flight
    }

    /// A call is under way, and whoever is asked knows it already.
    pub(super) fn wake(&self) {
        if !self.awake.load(Ordering::Relaxed) {
            self.awake.store(true, Ordering::Relaxed);
            self.unpark();
        }
    }

    fn stop(&self) {
        self.stopping.store(true, Ordering::Relaxed);
        self.unpark();
    }

    fn unpark(&self) {
        // Either we see who sleeps, or it sees what we have set before it does.
        fence(Ordering::SeqCst);
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }

    /// Waits until there may be something to write; false when it is over.
    fn wait(&self) -> bool {
        while !self.awake.load(Ordering::Relaxed) {
            if self.stopping.load(Ordering::Relaxed) {
                return false;
            }
            thread::park();
        }
        // Not parked: whoever wakes us while we are awake must not make us look all the time.
        thread::sleep(WRITE_INTERVAL);
        !self.stopping.load(Ordering::Relaxed)
    }
}

/// The thread that looks: writing to a file may take a while, and nobody shall wait for it. Ends when this is
/// dropped.
pub(super) struct JournalTask {
    ledger: Arc<Ledger>,
    task: Option<JoinHandle<JournalWriter>>,
}

/// Begins to look, if it was said whom to ask.
pub(super) fn start(ledger: &Arc<Ledger>) -> JournalTask {
    let idle = lock(&ledger.journal.idle).take();
    let task = idle.map(|(files, source)| {
        let mut writer = JournalWriter {
            ledger: Arc::clone(ledger),
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
        ledger: Arc::clone(ledger),
        task,
    }
}

impl JournalTask {
    /// Ends it when all that has ended is on disk. What is still under way then stays written down.
    pub(super) async fn end(mut self) {
        self.ledger.journal.stop();
        // Otherwise it has panicked, which was reported.
        if let Some(task) = self.task.take()
            && let Ok(mut writer) = task.await
        {
            writer.write_snapshot();
        }
    }
}

impl Drop for JournalTask {
    fn drop(&mut self) {
        self.ledger.journal.stop();
    }
}

/// Asks again and again what is under way, and keeps it.
struct JournalWriter {
    ledger: Arc<Ledger>,
    files: JournalFiles,
    source: Source,
    /// What was under way when it looked before.
    in_flight: Vec<Call>,
    /// What has ended since, each with how often the writer has to have written until that is on disk.
    ended: Vec<(u64, Call)>,
    /// What the files have.
    written: Option<Snapshot>,
    failing: bool,
}

impl JournalWriter {
    fn run(&mut self) {
        let ledger = Arc::clone(&self.ledger);
        let journal = &ledger.journal;
        let _ = journal.thread.set(thread::current());
        fence(Ordering::SeqCst);
        while journal.wait() {
            // First: a call that comes while we look wakes us again.
            journal.awake.store(false, Ordering::Relaxed);
            if self.write_snapshot() {
                journal.awake.store(true, Ordering::Relaxed);
            }
        }
    }

    /// Looks, and writes if something has changed; whether there is something to look after.
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

    /// Everything that has to be found after a kill.
    fn all(&self) -> Snapshot {
        let recovered = lock(&self.ledger.journal.recovered);
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

    /// What is not there any more has ended: that is on its way to the database, and kept until it is there.
    fn retain_ended(&mut self, calls: &[Call]) {
        let queue = &self.ledger.queue;
        // The next that the writer takes has it, unless an earlier one had.
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
        // One that was refused and goes out again is there again.
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
                    tracing::error!(error = error_chain(&error), "cannot keep what is under way");
                }
            }
        }
    }
}

fn sort_key(call: &Call) -> (WorkspaceId, CallId) {
    (call.workspace, call.id)
}

/// Closes what an earlier run had under way, at what it took, however often that has to be tried.
pub(super) async fn close_recovered(ledger: &Ledger, stop: &CancellationToken) {
    let mut count = 0;
    loop {
        let recovered: Arc<[Call]> = lock(&ledger.journal.recovered)
            .iter()
            .take(RECOVERY_BATCH)
            .cloned()
            .collect();
        if recovered.is_empty() {
            break;
        }
        match close(ledger, &recovered).await {
            Ok(closed) => {
                count += closed;
                lock(&ledger.journal.recovered).drain(..recovered.len());
                // What is closed need not be kept any more: one day it is removed, and must not come back.
                ledger.journal.wake();
            }
            Err(error) => {
                tracing::warn!(
                    error = error_chain(&error),
                    "cannot close calls of an earlier run"
                );
                if stop.run_until_cancelled(sleep(RETRY_DELAY)).await.is_none() {
                    return;
                }
            }
        }
    }
    if count > 0 {
        tracing::warn!(count, "closed calls that an earlier run had under way");
    }
}

async fn close(ledger: &Ledger, calls: &Arc<[Call]>) -> Result<usize> {
    let calls = Arc::clone(calls);
    let closed = ledger.core.db.transact(move |tx| {
        let calls = Arc::clone(&calls);
        Box::pin(async move { Ok::<_, Error>(close_in_flight(tx, &calls).await?) })
    });
    closed.await
}
