//! Single flight: of all who want an object that has to be fetched, the first one fetches it and the others wait for
//! that.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use estrade_model::sync::MutexExt;
use tempfile::TempPath;

use super::failure::Failure;
use crate::ObjectId;

/// How many may wait for others. Each of them holds a thread.
const MAX_WAITING: usize = 256;

/// An object evicted between its arrival and its opening is fetched again, this often at most.
const MAX_ATTEMPTS: usize = 3;

/// An object that has arrived.
#[derive(Debug)]
pub(super) enum Fetched {
    /// In the cache: the next one may make it go.
    Cached(PathBuf),
    /// Too long for the cache: it goes with the last one who waited for it.
    Unkept(TempPath),
}

#[derive(Debug, Default)]
pub(super) struct Flights(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    flights: HashMap<ObjectId, Arc<Flight>>,
    waiting: usize,
}

/// None: it was in the cache after all.
type Outcome = Result<Option<Arc<Fetched>>, Failure>;

#[derive(Debug, Default)]
struct Flight {
    outcome: Mutex<Option<Outcome>>,
    has_landed: Condvar,
}

impl Flights {
    /// Opens an object: `look` finds it if it is there, `fetch` makes it be there.
    pub(super) fn open(
        &self,
        id: ObjectId,
        look: impl Fn() -> io::Result<Option<File>>,
        fetch: impl Fn() -> Result<Fetched, Failure>,
    ) -> io::Result<File> {
        for _ in 0..MAX_ATTEMPTS {
            let outcome = match self.join(id)? {
                // Again, as the first one: what landed a moment ago is no flight any more.
                Role::First(lead) => match look()? {
                    Some(file) => {
                        drop(lead.land(Ok(None)));
                        return Ok(file);
                    }
                    None => lead.land(fetch().map(|fetched| Some(Arc::new(fetched)))),
                },
                Role::Other(flight) => {
                    let outcome = flight.wait();
                    self.0.lock_ignoring_poison().waiting -= 1;
                    outcome
                }
            };
            match outcome?.as_deref() {
                None => {}
                Some(Fetched::Cached(path)) => match File::open(path) {
                    Err(error) if error.kind() == ErrorKind::NotFound => {}
                    opened => return opened,
                },
                Some(Fetched::Unkept(path)) => return File::open(path),
            }
        }
        let problem = "objects leave the cache before they can be read: it is too small";
        Err(io::Error::new(ErrorKind::StorageFull, problem))
    }

    fn join(&self, id: ObjectId) -> Result<Role<'_>, Failure> {
        let mut state = self.0.lock_ignoring_poison();
        let is_full = state.waiting >= MAX_WAITING;
        match state.flights.entry(id) {
            Entry::Vacant(free) => {
                let flight = Arc::clone(free.insert(Arc::default()));
                Ok(Role::First(Lead {
                    flights: self,
                    id,
                    flight,
                }))
            }
            Entry::Occupied(_) if is_full => Err(Failure::transient(
                "too many readers wait for objects of it",
            )),
            Entry::Occupied(taken) => {
                let flight = Arc::clone(taken.get());
                state.waiting += 1;
                Ok(Role::Other(flight))
            }
        }
    }
}

enum Role<'f> {
    First(Lead<'f>),
    Other(Arc<Flight>),
}

/// The flight of the first one. It lands in any case, since others wait for it.
struct Lead<'f> {
    flights: &'f Flights,
    id: ObjectId,
    flight: Arc<Flight>,
}

impl Lead<'_> {
    fn land(self, outcome: Outcome) -> Outcome {
        self.flight.land(outcome.clone());
        outcome
    }
}

impl Drop for Lead<'_> {
    fn drop(&mut self) {
        self.flights
            .0
            .lock_ignoring_poison()
            .flights
            .remove(&self.id);
        let ended = Failure::transient("the read that others waited for ended early");
        self.flight.land(Err(ended));
    }
}

impl Flight {
    fn land(&self, new: Outcome) {
        self.outcome.lock_ignoring_poison().get_or_insert(new);
        self.has_landed.notify_all();
    }

    fn wait(&self) -> Outcome {
        let mut outcome = self.outcome.lock_ignoring_poison();
        loop {
            if let Some(outcome) = &*outcome {
                return outcome.clone();
            }
            let waited = self.has_landed.wait(outcome);
            outcome = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }
}
