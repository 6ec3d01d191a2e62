//! The answers of one thread that are on their way, so that one that nobody reads can be ended.
//!
//! A caller that stops reading is not noticed otherwise: over HTTP/2 its answer is not even polled
//! then, while it keeps a connection to a provider and what was set aside.

use crate::metered::Metered;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// An answer on its way, shared with [`Flows`].
pub(crate) type Flow = Arc<Mutex<Metered>>;

/// Locks an answer. Never contended: all that use it take turns on one thread.
pub(crate) fn lock(flow: &Flow) -> MutexGuard<'_, Metered> {
    flow.lock().unwrap_or_else(PoisonError::into_inner)
}

/// All of them; as many as there are calls.
#[derive(Default)]
pub(crate) struct Flows(Mutex<Slots>);

#[derive(Default)]
struct Slots {
    all: Vec<Weak<Mutex<Metered>>>,
    free: Vec<usize>,
}

impl Flows {
    fn slots(&self) -> MutexGuard<'_, Slots> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds one that knows its place, to be removed from it when it is dropped.
    pub(crate) fn add(&self, make: impl FnOnce(usize) -> Metered) -> Flow {
        let mut slots = self.slots();
        let place = slots.free.pop().unwrap_or_else(|| {
            slots.all.push(Weak::new());
            slots.all.len() - 1
        });
        let flow = Arc::new(Mutex::new(make(place)));
        slots.all[place] = Arc::downgrade(&flow);
        flow
    }

    pub(crate) fn remove(&self, place: usize) {
        let mut slots = self.slots();
        slots.all[place] = Weak::new();
        slots.free.push(place);
    }

    /// Ends those that were not read for so many sweeps.
    pub(crate) fn sweep(&self, most: u32) {
        // Collected first: the last owner of one removes it, which needs the lock.
        let all: Vec<Flow> = self.slots().all.iter().filter_map(Weak::upgrade).collect();
        for flow in all {
            lock(&flow).sweep(most);
        }
    }
}
