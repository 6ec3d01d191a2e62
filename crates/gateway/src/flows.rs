//! The answers of one thread that are on their way, so that one that nobody reads can be ended.
//!
//! A caller that stops reading is not noticed otherwise: over HTTP/2 its answer is not even polled
//! then, while it keeps a connection to a provider and what was set aside.

use crate::metered::Metered;
use crate::slots::Slots;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// An answer on its way, shared with [`Flows`].
pub(crate) type Flow = Arc<Mutex<Metered>>;

/// Locks an answer. Never contended: all that use it take turns on one thread.
pub(crate) fn lock(flow: &Flow) -> MutexGuard<'_, Metered> {
    flow.lock().unwrap_or_else(PoisonError::into_inner)
}

/// All of them; as many as there are calls.
#[derive(Default)]
pub(crate) struct Flows(Mutex<Slots<Weak<Mutex<Metered>>>>);

impl Flows {
    fn slots(&self) -> MutexGuard<'_, Slots<Weak<Mutex<Metered>>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds one that knows its place, to be removed from it when it is dropped.
    pub(crate) fn add(&self, make: impl FnOnce(usize) -> Metered) -> Flow {
        self.slots().add(|place| {
            let flow = Arc::new(Mutex::new(make(place)));
            (Arc::downgrade(&flow), flow)
        })
    }

    pub(crate) fn remove(&self, place: usize) {
        self.slots().remove(place);
    }

    /// Ends those that were not read for so many sweeps.
    pub(crate) fn sweep(&self, most: u32) {
        // Collected first: the last owner of one removes it, which needs the lock.
        let all: Vec<Flow> = self.slots().iter().filter_map(Weak::upgrade).collect();
        for flow in all {
            lock(&flow).sweep(most);
        }
    }
}
