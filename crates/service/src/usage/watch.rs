//! Looks after calls that are under way and on record nowhere: what they took so far is written down again and
//! again, so that a server that is killed loses no more than a moment of them.

use super::ledger::{Ledger, bound};
use super::under_way_file::Files;
use crate::{Core, Error};
use estrade_model::WorkspaceId;
use estrade_model::call::{Call, CallId};
use estrade_model::error::causes;
use estrade_store::calls::{Snapshot, close_under_way};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::{self, Thread};
use std::time::Duration;
use tokio::task::JoinHandle;

/// How long what happens to a call may be known to nobody else; 100 ms are promised.
const LOOK_EVERY: Duration = Duration::from_millis(80);
/// Calls that one transaction closes.
const CHUNK: usize = 500;

type Source = Box<dyn Fn() -> Vec<Call> + Send + Sync>;

/// Knows whether there is something to look after.
#[derive(Default)]
pub(super) struct Watch {
    /// Whom to ask and where to keep it, until somebody does.
    idle: Mutex<Option<(Files, Source)>>,
    /// Whether a call may be under way.
    awake: AtomicBool,
    ends: AtomicBool,
    /// Who is woken.
    sleeper: OnceLock<Thread>,
}

impl Watch {
    pub(super) fn over(&self, files: Files, source: Source) {
        *self.idle.lock().unwrap_or_else(PoisonError::into_inner) = Some((files, source));
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

    /// Waits until a call may be under way; false when it is over.
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
    looking: Option<JoinHandle<(Files, Source)>>,
}

/// Begins to look, if it was said whom to ask.
pub(super) fn start(ledger: &Arc<Ledger>) -> Keeping {
    let watch = &ledger.watch;
    let idle = watch
        .idle
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .take();
    let looking = idle.map(|(mut files, source)| {
        let ledger = Arc::clone(ledger);
        tokio::task::spawn_blocking(move || {
            look_until_end(&ledger.watch, &mut files, &source);
            (files, source)
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
        let Some(looking) = self.looking.take() else {
            return;
        };
        // Otherwise it has panicked, which was reported.
        if let Ok((mut files, source)) = looking.await
            && let Err(error) = files.write(&Snapshot::of(&look(&source)))
        {
            tracing::error!(
                error = causes(&error),
                "cannot note that nothing is under way"
            );
        }
    }
}

impl Drop for Keeping {
    fn drop(&mut self) {
        self.ledger.watch.end();
    }
}

fn look_until_end(watch: &Watch, files: &mut Files, source: &Source) {
    let _ = watch.sleeper.set(thread::current());
    fence(Ordering::SeqCst);
    let (mut before, mut written) = (Vec::new(), Snapshot::default());
    let mut failing = false;
    let mut keep = |calls: &[Call]| {
        let now = Snapshot::of(calls);
        if now == written {
            return;
        }
        match files.write(&now) {
            Ok(()) => {
                written = now;
                failing = false;
            }
            Err(error) if !failing => {
                tracing::error!(error = causes(&error), "cannot keep what is under way");
                failing = true;
            }
            Err(_) => {}
        }
    };
    while watch.wait() {
        // First: a call that comes while we look wakes us again.
        watch.awake.store(false, Ordering::Relaxed);
        let calls = look(source);
        // Those that are not there any more have just ended: their ends are on their way to the database.
        let ended = |call: &&Call| calls.binary_search_by_key(&place(call), place).is_err();
        let ended: Vec<Call> = before.iter().filter(ended).cloned().collect();
        let mut all = calls.clone();
        all.extend(ended);
        all.sort_unstable_by_key(place);
        keep(&all);
        if !all.is_empty() {
            watch.awake.store(true, Ordering::Relaxed);
        }
        before = calls;
    }
}

fn look(source: &Source) -> Vec<Call> {
    let mut calls = source();
    calls.iter_mut().for_each(bound);
    calls.sort_unstable_by_key(place);
    calls
}

fn place(call: &Call) -> (WorkspaceId, CallId) {
    (call.workspace, call.id)
}

/// Closes what an earlier run had under way, at what it took.
pub(super) async fn close_left(core: &Core, left: Vec<Call>) -> io::Result<()> {
    let mut count = 0;
    for calls in left.chunks(CHUNK) {
        let calls: Arc<[Call]> = calls.into();
        let closed = core.db.transact(move |tx| {
            let calls = Arc::clone(&calls);
            Box::pin(async move { Ok::<_, Error>(close_under_way(tx, &calls).await?) })
        });
        count += closed.await.map_err(io::Error::other)?;
    }
    if count > 0 {
        tracing::warn!(count, "closed calls that an earlier run had under way");
    }
    Ok(())
}
