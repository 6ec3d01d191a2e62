//! Objects that are not on this node's disk: fetched on blocking threads, in bounded number and fairly.
//!
//! - Single flight: requests for the same object wait for one fetch. It goes on when they stop waiting, so that a
//!   client that gives up and asks again does not begin anew.
//! - Two bounds on waiting, of an owner and of all: beyond them, and after [`MAX_WAIT`], a request gets 503.
//! - Two bounds on fetching, in this order: a request takes one of the slots of its site's owner, then one of the
//!   node's. The queue for the latter is first come, first served, and an owner stands in it with no more requests than
//!   it has slots. Failure prevented: an owner with thousands of cold files, in however many projects, delays the first
//!   file of another one by minutes.
//!
//! A request looks for a running fetch again once it has its slots, and gives them back if there is one. So an object
//! that sites of two owners share is fetched in the turn of whoever comes first, not behind everything else that one of
//! them waits for.

use crate::static_files::content_error::ContentError;
use estrade_blobs::{BlobError, BlobStore, ObjectId};
use estrade_model::OwnerId;
use estrade_model::error::error_chain;
use estrade_model::keyed_limit::KeyedLimit;
use estrade_model::sync::MutexExt;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fs::File;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::timeout;

/// Objects that are fetched at the same time: each has a thread, and the bucket has other nodes to serve.
const MAX_FETCHES: usize = 32;
/// Of these, most of one owner.
const MAX_OWNER_FETCHES: usize = 8;
/// Requests that wait for an object.
const MAX_WAITING: usize = 4096;
/// Of these, most of one owner.
const MAX_OWNER_WAITING: usize = 512;
/// How long a request waits for an object. The fetch goes on.
const MAX_WAIT: Duration = Duration::from_secs(15);

/// What came of a fetch; none while it is under way.
type Outcome = Option<Result<Arc<File>, ContentError>>;

/// The fetches of this node. Clones share them.
#[derive(Clone)]
pub(super) struct Fetches(Arc<Shared>);

struct Shared {
    store: BlobStore,
    waiting: KeyedLimit<OwnerId>,
    slots: Arc<Semaphore>,
    /// The slots of owners that have a request here.
    owner_slots: Mutex<HashMap<OwnerId, Weak<Semaphore>>>,
    running: Mutex<HashMap<ObjectId, watch::Receiver<Outcome>>>,
    /// Whether the last fetch failed because the storage did not answer: an outage is logged once.
    failing: AtomicBool,
}

/// A fetch that is under way; gone from the table when it ends, however it ends.
struct Flight {
    fetches: Fetches,
    place: ObjectId,
    outcome: watch::Sender<Outcome>,
    _slots: Slots,
}

/// What a fetch holds while it runs.
struct Slots {
    _owner: OwnedSemaphorePermit,
    _node: OwnedSemaphorePermit,
}

impl Fetches {
    pub(super) fn new(store: BlobStore) -> Self {
        Self(Arc::new(Shared {
            store,
            waiting: KeyedLimit::new(MAX_WAITING, MAX_OWNER_WAITING),
            slots: Arc::new(Semaphore::new(MAX_FETCHES)),
            owner_slots: Mutex::default(),
            running: Mutex::default(),
            failing: AtomicBool::new(false),
        }))
    }

    /// An object of the storage, once it is on this node's disk.
    pub(super) async fn fetch(
        &self,
        owner: OwnerId,
        place: ObjectId,
    ) -> Result<Arc<File>, ContentError> {
        let waiting = self.0.waiting.try_acquire(owner);
        let _waiting = waiting.map_err(|_| ContentError::Busy)?;
        let fetched = timeout(MAX_WAIT, self.fetch_in_turn(owner, place));
        fetched.await.unwrap_or(Err(ContentError::Busy))
    }

    async fn fetch_in_turn(
        &self,
        owner: OwnerId,
        place: ObjectId,
    ) -> Result<Arc<File>, ContentError> {
        let running = self.0.running.lock_ignoring_poison().get(&place).cloned();
        let outcome = if let Some(running) = running {
            running
        } else {
            let slots = self.slots(owner).await?;
            self.join_or_begin(place, slots)
        };
        wait(outcome).await
    }

    async fn slots(&self, owner: OwnerId) -> Result<Slots, ContentError> {
        let own = self.owner_slots(owner).acquire_owned().await;
        let node = Arc::clone(&self.0.slots).acquire_owned().await;
        match (own, node) {
            (Ok(owner), Ok(node)) => Ok(Slots {
                _owner: owner,
                _node: node,
            }),
            // Neither is ever closed.
            _ => Err(ContentError::Busy),
        }
    }

    fn owner_slots(&self, owner: OwnerId) -> Arc<Semaphore> {
        let mut owners = self.0.owner_slots.lock_ignoring_poison();
        if let Some(slots) = owners.get(&owner).and_then(Weak::upgrade) {
            return slots;
        }
        // No more are left than requests wait.
        owners.retain(|_, slots| slots.strong_count() > 0);
        let slots = Arc::new(Semaphore::new(MAX_OWNER_FETCHES));
        owners.insert(owner, Arc::downgrade(&slots));
        slots
    }

    /// The fetch of an object: the one that runs, or a new one.
    fn join_or_begin(&self, place: ObjectId, slots: Slots) -> watch::Receiver<Outcome> {
        let (outcome, receiver) = watch::channel(None);
        match self.0.running.lock_ignoring_poison().entry(place) {
            Entry::Occupied(running) => return running.get().clone(),
            Entry::Vacant(free) => drop(free.insert(receiver.clone())),
        }
        let flight = Flight {
            fetches: self.clone(),
            place,
            outcome,
            _slots: slots,
        };
        // Waited for through the channel, and by the runtime when it ends.
        drop(tokio::task::spawn_blocking(move || flight.run()));
        receiver
    }

    /// Logs the first failure of an outage, and its end.
    fn note(&self, fetched: &Result<File, BlobError>) {
        let is_outage = match fetched {
            Ok(_) => false,
            Err(BlobError::Unavailable { .. }) => true,
            // Nothing that tells whether the storage answers.
            Err(_) => return,
        };
        if self.0.failing.load(Ordering::Relaxed) == is_outage
            || self.0.failing.swap(is_outage, Ordering::Relaxed) == is_outage
        {
            return;
        }
        if let Err(error) = fetched {
            tracing::warn!(
                error = error_chain(error),
                "cannot fetch files that are not cached here; cached ones are served"
            );
        } else {
            tracing::info!("files are fetched again");
        }
    }
}

impl Flight {
    fn run(self) {
        let fetched = self.fetches.0.store.open_object(self.place);
        self.fetches.note(&fetched);
        let fetched = fetched.map(Arc::new).map_err(ContentError::from);
        self.outcome.send_replace(Some(fetched));
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        let running = &self.fetches.0.running;
        running.lock_ignoring_poison().remove(&self.place);
    }
}

async fn wait(mut outcome: watch::Receiver<Outcome>) -> Result<Arc<File>, ContentError> {
    match outcome.wait_for(Option::is_some).await {
        Ok(outcome) => outcome.clone().unwrap_or(Err(ContentError::Busy)),
        // The thread panicked, or the server ends.
        Err(_) => Err(ContentError::Busy),
    }
}

#[cfg(test)]
#[path = "content_fetch_tests.rs"]
mod tests;
