//! Which packs and files are published while their database rows are still on the way.
//!
//! An orphan is a file without a row, and so is, for a moment, every file that was just
//! published. Age tells them apart only as long as no process is ever suspended between the two
//! steps; a claim does so always.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::PlaceId;

/// The places that belong to a [`Published`](super::Published) or a [`HeldBlobs`](super::HeldBlobs) which is
/// still alive, and to how many.
#[derive(Debug, Default)]
pub(super) struct Claims(Mutex<HashMap<PlaceId, usize>>);

impl Claims {
    /// To be called before `id` has a name that others can see.
    pub(super) fn add(&self, id: PlaceId) {
        *self.lock().entry(id).or_default() += 1;
    }

    pub(super) fn release(&self, id: PlaceId) {
        if let Entry::Occupied(mut count) = self.lock().entry(id) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
    }

    pub(super) fn contains(&self, id: PlaceId) -> bool {
        self.lock().contains_key(&id)
    }

    /// A panic elsewhere cannot leave a map half-changed, so a poisoned lock is still good.
    fn lock(&self) -> MutexGuard<'_, HashMap<PlaceId, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
