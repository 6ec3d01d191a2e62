//! Write-ahead journal of calls in flight that have no row in the database.
//!
//! In relaxed mode a call without a budget goes out before anything is written. The [`writer`] thread copies the
//! progress of all such calls to two [`files`] every 80 ms, and [`recovery`] closes what it finds there at the next
//! start. Invariant: from its first snapshot until its closed row is on disk, a call is in the newest journal file.
//! So a server that is killed loses at most the last 100 ms of what a call has used, and no call twice: closing a
//! recovered call that has a closed row changes nothing.

pub(crate) mod files;
pub(crate) mod recovery;
pub(crate) mod writer;

use estrade_model::call::Call;
use estrade_model::sync::MutexExt;
use files::JournalFiles;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::{Mutex, MutexGuard, OnceLock};
use std::thread::{self, Thread};
use std::time::Duration;

/// Below the 100 ms of progress that a kill may lose, by the time that a write takes.
const WRITE_INTERVAL: Duration = Duration::from_millis(80);

/// Returns the calls in flight, and whether others will appear soon (they have not reached an upstream yet).
type Source = Box<dyn Fn() -> (Vec<Call>, bool) + Send + Sync>;

/// The journal as the rest of the ledger sees it: what to write, and the wake-up of the writer thread.
#[derive(Default)]
pub(crate) struct InFlightJournal {
    /// Taken by the writer thread when it starts.
    idle: Mutex<Option<(JournalFiles, Source)>>,
    /// Calls of an earlier run until they are closed, and calls of this run that are deferred to the next start.
    recovered: Mutex<Vec<Call>>,
    attached: AtomicBool,
    /// Whether a call may be in flight: while it is false, the writer thread is parked.
    awake: AtomicBool,
    stopping: AtomicBool,
    thread: OnceLock<Thread>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock_ignoring_poison()
}

impl InFlightJournal {
    /// Sets the files, the calls that were found in them, and where calls in flight are read from.
    pub(crate) fn attach(&self, files: JournalFiles, recovered: Vec<Call>, source: Source) {
        *lock(&self.idle) = Some((files, source));
        *lock(&self.recovered) = recovered;
        self.attached.store(true, Ordering::Relaxed);
    }

    /// Keeps ended calls in the journal, so that the next start closes them; returns how many, 0 without a journal.
    pub(crate) fn defer(&self, calls: impl Iterator<Item = Call>) -> usize {
        if !self.attached.load(Ordering::Relaxed) {
            return 0;
        }
        let mut recovered = lock(&self.recovered);
        let before = recovered.len();
        recovered.extend(calls);
        recovered.len() - before
    }

    pub(crate) fn unrecovered(&self) -> usize {
        lock(&self.recovered).len()
    }

    /// Wakes the writer thread. The source has to return the new call already. One relaxed load per call while the
    /// writer is awake.
    pub(crate) fn wake(&self) {
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
        // Dekker-style handshake with `JournalWriter::run`: we store a flag, then read `thread`; it stores `thread`,
        // then reads the flags. With a SeqCst fence between the two on both sides at least one of us sees the
        // other's store, so no wake-up is lost before the thread is known.
        fence(Ordering::SeqCst);
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }

    /// Waits for the next snapshot; false when the journal stops.
    fn wait(&self) -> bool {
        while !self.awake.load(Ordering::Relaxed) {
            if self.stopping.load(Ordering::Relaxed) {
                return false;
            }
            thread::park();
        }
        // Sleeps rather than parks: an unpark must not shorten the interval.
        thread::sleep(WRITE_INTERVAL);
        !self.stopping.load(Ordering::Relaxed)
    }
}
