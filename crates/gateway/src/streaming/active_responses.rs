//! The answers of one thread that are on their way, so that one that nobody reads can be ended.
//!
//! A caller that stops reading is not noticed otherwise: over HTTP/2 its answer is not even polled
//! then, while it keeps a connection to a provider and what was set aside.

use crate::slots::Slots;
use crate::streaming::metered_response::MeteredResponse;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// An answer on its way, shared with [`ActiveResponses`].
pub(crate) type SharedResponse = Arc<Mutex<MeteredResponse>>;

/// Locks an answer. Never contended: all that use it take turns on one thread.
pub(crate) fn lock(response: &SharedResponse) -> MutexGuard<'_, MeteredResponse> {
    response.lock().unwrap_or_else(PoisonError::into_inner)
}

/// All of them; as many as there are calls.
#[derive(Default)]
pub(crate) struct ActiveResponses(Mutex<Slots<Weak<Mutex<MeteredResponse>>>>);

impl ActiveResponses {
    fn slots(&self) -> MutexGuard<'_, Slots<Weak<Mutex<MeteredResponse>>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds one that knows its slot, to be removed from it when it is dropped.
    pub(crate) fn add(&self, make: impl FnOnce(usize) -> MeteredResponse) -> SharedResponse {
        self.slots().add(|slot| {
            let response = Arc::new(Mutex::new(make(slot)));
            (Arc::downgrade(&response), response)
        })
    }

    pub(crate) fn remove(&self, slot: usize) {
        self.slots().remove(slot);
    }

    /// Ends those that were not read for so many sweeps.
    pub(crate) fn sweep(&self, most: u32) {
        // Collected first: the last owner of one removes it, which needs the lock.
        let all: Vec<SharedResponse> = self.slots().iter().filter_map(Weak::upgrade).collect();
        for response in all {
            lock(&response).sweep(most);
        }
    }
}
