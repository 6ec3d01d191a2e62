//! Which requests with an idempotency key this process is carrying out.

use estrade_model::sync::MutexExt;
use estrade_store::idempotency::{HolderId, Reservation};
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};
use tokio::sync::Notify;

/// The guards of this process, with their reservations.
#[derive(Debug, Default)]
pub(super) struct InFlightRequests {
    held: Mutex<HashMap<HolderId, (Reservation, GuardState)>>,
    dropped: Notify,
}

/// What became of a guard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum GuardState {
    Running,
    Dropped,
}

impl InFlightRequests {
    pub(super) fn insert(&self, held: Reservation) {
        self.lock().insert(held.holder, (held, GuardState::Running));
    }

    pub(super) fn remove(&self, holder: &HolderId) {
        self.lock().remove(holder);
    }

    /// Notes that a guard was dropped, unless its reservation has ended.
    pub(super) fn mark_dropped(&self, holder: &HolderId) {
        if let Some((_, state)) = self.lock().get_mut(holder) {
            *state = GuardState::Dropped;
            self.dropped.notify_one();
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<HolderId, (Reservation, GuardState)>> {
        self.held.lock_ignoring_poison()
    }

    pub(super) fn in_state(&self, wanted: GuardState) -> Vec<Reservation> {
        self.lock()
            .values()
            .filter(|(_, state)| *state == wanted)
            .map(|(held, _)| *held)
            .collect()
    }

    /// Waits until a guard is dropped.
    pub(super) async fn dropped(&self) {
        self.dropped.notified().await;
    }
}
