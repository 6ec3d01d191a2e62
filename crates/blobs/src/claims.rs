//! What must stay although no committed row says so yet.
//!
//! An orphan is an object without a row, and so is, for a moment, every object that was just published. A
//! content that nothing needs is garbage, and so is, for a moment, one that a release on its way has
//! found to be stored already. Age tells them apart only as long as no process is ever suspended and
//! no client is slow; a claim does so always.

use estrade_model::sync::MutexExt;
use foldhash::fast::RandomState;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::Hash;
use std::sync::{Mutex, MutexGuard};

/// What is claimed, and by how many.
#[derive(Debug)]
pub(super) struct Claims<K>(Mutex<HashMap<K, usize, RandomState>>);

impl<K> Default for Claims<K> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Eq + Hash> Claims<K> {
    /// To be called before others could take what is claimed for garbage.
    pub(super) fn add(&self, id: K) {
        *self.lock().entry(id).or_default() += 1;
    }

    pub(super) fn release(&self, id: K) {
        if let Entry::Occupied(mut count) = self.lock().entry(id) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
    }

    pub(super) fn contains(&self, id: &K) -> bool {
        self.lock().contains_key(id)
    }

    /// A panic elsewhere cannot leave a map half-changed, so a poisoned lock is still good.
    fn lock(&self) -> MutexGuard<'_, HashMap<K, usize, RandomState>> {
        self.0.lock_ignoring_poison()
    }
}
