//! Which packs and files are published while their database rows are still on the way.
//!
//! An orphan is a file without a row, and so is, for a moment, every file that was just
//! published. Age tells them apart only as long as no process is ever suspended between the two
//! steps; a claim does so always.

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::PlaceId;

/// The places that belong to a [`Published`](super::Published) which is still alive.
#[derive(Debug, Default)]
pub(super) struct Claims(Mutex<HashSet<PlaceId>>);

impl Claims {
    /// To be called before `id` has a name that others can see.
    pub(super) fn add(&self, id: PlaceId) {
        self.lock().insert(id);
    }

    pub(super) fn release(&self, id: PlaceId) {
        self.lock().remove(&id);
    }

    pub(super) fn contains(&self, id: PlaceId) -> bool {
        self.lock().contains(&id)
    }

    /// A panic elsewhere cannot leave a set half-changed, so a poisoned lock is still good.
    fn lock(&self) -> MutexGuard<'_, HashSet<PlaceId>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
