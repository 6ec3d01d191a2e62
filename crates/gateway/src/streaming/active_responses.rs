//! The responses that one thread forwards, so that those whose client has stopped reading can be aborted.
//!
//! Nothing else detects such a client: over HTTP/2 its response is not even polled, while it holds a
//! connection to a provider and a reserved budget.

use estrade_model::sync::MutexExt;
use slab::Slab;
use std::sync::{Arc, Mutex, MutexGuard, Weak};

/// A response that counts the sweeps since its client has read from it.
pub(crate) trait Sweep: Send {
    /// Aborts it after more than `max` sweeps without a read.
    fn sweep(&mut self, max: u32);
}

type Entry = Weak<Mutex<dyn Sweep>>;

#[derive(Default)]
pub(crate) struct ActiveResponses(Mutex<Slab<Entry>>);

impl ActiveResponses {
    fn entries(&self) -> MutexGuard<'_, Slab<Entry>> {
        self.0.lock_ignoring_poison()
    }

    /// Adds the response that `make` builds for its key; its drop removes the key.
    pub(crate) fn add<R: Sweep + 'static>(&self, make: impl FnOnce(usize) -> R) -> Arc<Mutex<R>> {
        let mut entries = self.entries();
        let entry = entries.vacant_entry();
        let response = Arc::new(Mutex::new(make(entry.key())));
        let weak: Weak<Mutex<R>> = Arc::downgrade(&response);
        entry.insert(weak);
        response
    }

    pub(crate) fn remove(&self, key: usize) {
        self.entries().try_remove(key);
    }

    /// Aborts those that were not read for so many sweeps.
    pub(crate) fn sweep(&self, max: u32) {
        // Collected first: the last owner of one removes it, which needs the lock.
        let entries = self.entries();
        let all: Vec<_> = entries.iter().filter_map(|(_, it)| it.upgrade()).collect();
        drop(entries);
        for response in all {
            let mut response = response.lock_ignoring_poison();
            response.sweep(max);
        }
    }
}
