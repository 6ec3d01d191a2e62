//! Looks after calls that are under way and on record nowhere: what they took so far is written down again and
//! again, so that a server that is killed loses no more than a moment of them.

use super::ledger::{Ledger, bound};
use super::under_way_file::Files;
use crate::{Error, Result};
use estrade_model::WorkspaceId;
use estrade_model::call::{Call, CallId};
use estrade_model::error::error_chain;
use estrade_store::calls::{Snapshot, close_under_way};
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{self, Thread};
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

/// How long what happens to a call may be known to nobody else; 100 ms are promised.
const LOOK_EVERY: Duration = Duration::from_millis(80);
/// Calls that have ended and are kept until that is on disk; when it takes very long, not all are.
const MOST_ENDED: usize = 10_000;
/// Calls that one transaction closes. Few: others write meanwhile, and on PostgreSQL a transaction that they clash
/// with is done again.
const CHUNK: usize = 100;
/// How long to wait before that is tried again.
const PAUSE: Duration = Duration::from_secs(1);

/// Knows calls that are under way, and whether there are others that it will know soon.
type Source = Box<dyn Fn() -> (Vec<Call>, bool) + Send + Sync>;

/// Knows whether there is something to look after.
#[derive(Default)]
pub(super) struct Watch {
    /// Whom to ask and where to keep it, until somebody does.
    idle: Mutex<Option<(Files, Source)>>,
    /// What an earlier run had under way, until it is closed; and what this one leaves.
    left: Mutex<Vec<Call>>,
    /// Whether there is a place to keep something in.
    keeps: AtomicBool,
    /// Whether there may be something to write.
    awake: AtomicBool,
    ends: AtomicBool,
    /// Who is woken.
    sleeper: OnceLock<Thread>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Watch {
    /// Says what there is to look after, and what was left of it.
    pub(super) fn over(&self, files: Files, left: Vec<Call>, source: Source) {
        *lock(&self.idle) = Some((files, source));
        *lock(&self.left) = left;
        self.keeps.store(true, Ordering::Relaxed);
    }

    /// Leaves calls that have ended for the next start, if they can be kept; how many are.
    pub(super) fn leave(&self, calls: impl Iterator<Item = Call>) -> usize {
        if !self.keeps.load(Ordering::Relaxed) {
            return 0;
        }
        let mut left = lock(&self.left);
        let before = left.len();
        left.extend(calls);
        left.len() - before
    }

    /// A call is under way, and whoever is asked knows it already.
    pub(super) fn wake(&self) {
        if !self.awake.load(Ordering::Relaxed) {
            self.awake.store(true, Ordering::Relaxed);
            self.unpark();
        }
    }

    fn end(&self) {
        self.ends.store(true, Ordering::Relaxed);
        self.unpark();
    }

    fn unpark(&self) {
        // Either we see who sleeps, or it sees what we have set before it does.
        fence(Ordering::SeqCst);
        if let Some(sleeper) = self.sleeper.get() {
            sleeper.unpark();
        }
    }

    /// Waits until there may be something to write; false when it is over.
    fn wait(&self) -> bool {
        while !self.awake.load(Ordering::Relaxed) {
            if self.ends.load(Ordering::Relaxed) {
                return false;
            }
            thread::park();
        }
        // Not parked: whoever wakes us while we are awake must not make us look all the time.
        thread::sleep(LOOK_EVERY);
        !self.ends.load(Ordering::Relaxed)
    }
}

/// The thread that looks: writing to a file may take a while, and nobody shall wait for it. Ends when this is
/// dropped.
pub(super) struct Keeping {
    ledger: Arc<Ledger>,
    looking: Option<JoinHandle<Lookout>>,
}

/// Begins to look, if it was said whom to ask.
pub(super) fn start(ledger: &Arc<Ledger>) -> Keeping {
    let idle = lock(&ledger.watch.idle).take();
    let looking = idle.map(|(files, source)| {
        let mut lookout = Lookout {
            ledger: Arc::clone(ledger),
            files,
            source,
            before: Vec::new(),
            ended: Vec::new(),
            written: None,
            failing: false,
        };
        tokio::task::spawn_blocking(move || {
            lookout.look_until_end();
            lookout
        })
    });
    Keeping {
        ledger: Arc::clone(ledger),
        looking,
    }
}

impl Keeping {
    /// Ends it when all that has ended is on disk. What is still under way then stays written down.
    pub(super) async fn end(mut self) {
        self.ledger.watch.end();
        // Otherwise it has panicked, which was reported.
        if let Some(looking) = self.looking.take()
            && let Ok(mut lookout) = looking.await
        {
            lookout.look();
        }
    }
}

impl Drop for Keeping {
    fn drop(&mut self) {
        self.ledger.watch.end();
    }
}

/// Asks again and again what is under way, and keeps it.
struct Lookout {
    ledger: Arc<Ledger>,
    files: Files,
    source: Source,
    /// What was under way when it looked before.
    before: Vec<Call>,
    /// What has ended since, each with how often the writer has to have written until that is on disk.
    ended: Vec<(u64, Call)>,
    /// What the files have.
    written: Option<Snapshot>,
    failing: bool,
}

impl Lookout {
    fn look_until_end(&mut self) {
        let ledger = Arc::clone(&self.ledger);
        let watch = &ledger.watch;
        let _ = watch.sleeper.set(thread::current());
        fence(Ordering::SeqCst);
        while watch.wait() {
            // First: a call that comes while we look wakes us again.
            watch.awake.store(false, Ordering::Relaxed);
            if self.look() {
                watch.awake.store(true, Ordering::Relaxed);
            }
        }
    }

    /// Looks, and writes if something has changed; whether there is something to look after.
    fn look(&mut self) -> bool {
        let (mut calls, others) = (self.source)();
        calls.iter_mut().for_each(bound);
        calls.sort_unstable_by_key(place);
        self.note_ended(&calls);
        self.before = calls;
        let now = self.all();
        let any = !now.bytes().is_empty();
        self.write(now);
        others || any
    }

    /// Everything that has to be found after a kill.
    fn all(&self) -> Snapshot {
        let left = lock(&self.ledger.watch.left);
        let ended = self.ended.iter().map(|(_, call)| call);
        let mut all: Vec<_> = self.before.iter().chain(ended).chain(left.iter()).collect();
        all.sort_unstable_by_key(|call| place(call));
        Snapshot::of(&all)
    }

    /// What is not there any more has ended: that is on its way to the database, and kept until it is there.
    fn note_ended(&mut self, calls: &[Call]) {
        let queue = &self.ledger.queue;
        // The next that the writer takes has it, unless an earlier one had.
        let until = queue.taken() + 1;
        let is_there = |call: &Call| calls.binary_search_by_key(&place(call), place).is_ok();
        let room = MOST_ENDED.saturating_sub(self.ended.len());
        let gone = self.before.drain(..).filter(|call| !is_there(call));
        self.ended.extend(gone.take(room).map(|call| (until, call)));
        let (all_done, done) = (queue.unwritten() == 0, queue.done());
        // One that was refused and goes out again is there again.
        self.ended
            .retain(|(until, call)| !all_done && done < *until && !is_there(call));
    }

    fn write(&mut self, now: Snapshot) {
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

fn place(call: &Call) -> (WorkspaceId, CallId) {
    (call.workspace, call.id)
}

/// Closes what an earlier run had under way, at what it took, however often that has to be tried.
pub(super) async fn close_left(ledger: &Ledger, stop: &CancellationToken) {
    let mut count = 0;
    loop {
        let left: Arc<[Call]> = lock(&ledger.watch.left)
            .iter()
            .take(CHUNK)
            .cloned()
            .collect();
        if left.is_empty() {
            break;
        }
        match close(ledger, &left).await {
            Ok(closed) => {
                count += closed;
                lock(&ledger.watch.left).drain(..left.len());
                // What is closed need not be kept any more: one day it is removed, and must not come back.
                ledger.watch.wake();
            }
            Err(error) => {
                tracing::warn!(
                    error = error_chain(&error),
                    "cannot close calls of an earlier run"
                );
                if stop.run_until_cancelled(sleep(PAUSE)).await.is_none() {
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
        Box::pin(async move { Ok::<_, Error>(close_under_way(tx, &calls).await?) })
    });
    closed.await
}
