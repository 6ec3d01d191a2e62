//! Who carries out which request with an idempotency key in this process.

use super::StoredAnswer;
use crate::{Core, Error, Result};
use estrade_model::sync::MutexExt;
use estrade_store::idempotency::{self as store, HolderId, Reservation};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::sync::Notify;

/// How long an answer is kept.
const ANSWER_RETENTION: Duration = Duration::from_hours(24);
/// How long a reservation outlives the process that made it.
pub(super) const LEASE_DURATION: Duration = Duration::from_mins(1);
/// How often reservations are renewed: two renewals may fail before one is lost.
pub(crate) const RENEW_INTERVAL: Duration = Duration::from_secs(20);
/// The largest body that is stored. No answer of ours that creates something comes near it; one
/// that did would not be stored, and a repeat would be carried out again.
const MAX_BODY_BYTES: usize = 1 << 20;

/// The right to carry a request out. Dropped, it lets a repeat be carried out instead.
#[must_use]
pub struct IdempotencyGuard {
    core: Arc<Core>,
    held: Reservation,
}

impl IdempotencyGuard {
    pub(super) fn new(core: &Arc<Core>, held: Reservation) -> Self {
        core.in_flight_requests
            .lock()
            .insert(held.holder, (held, GuardState::Running));
        Self {
            core: Arc::clone(core),
            held,
        }
    }

    /// Keeps the answer for repeats when it is final (2xx and 409); any other lets a repeat try
    /// again. Returns once that is on disk.
    pub async fn finish(self, answer: StoredAnswer) -> Result<()> {
        let small = answer.body.len() <= MAX_BODY_BYTES;
        if !answer.is_final() || !small {
            if !small {
                tracing::warn!("an answer is too large to be kept for its idempotency key");
            }
            return self.give_up().await;
        }
        let (held, row, until) = (
            self.held,
            answer.to_row()?,
            self.core.now().after(ANSWER_RETENTION),
        );
        let kept = self
            .core
            .db
            .transact(move |tx| {
                let row = row.clone();
                Box::pin(async move {
                    Ok::<_, Error>(store::store_answer(tx, held, &row, until).await?)
                })
            })
            .await?;
        if !kept {
            tracing::warn!("a request took longer than its lease on an idempotency key");
        }
        self.discard();
        Ok(())
    }

    /// Lets a repeat be carried out, whatever this one was answered. Returns once that is on disk.
    pub async fn give_up(self) -> Result<()> {
        release(&self.core, vec![self.held]).await?;
        self.discard();
        Ok(())
    }

    /// Ends the guard without giving its reservation up: there is none any more.
    pub(super) fn discard(self) {
        self.core
            .in_flight_requests
            .lock()
            .remove(&self.held.holder);
    }
}

impl Drop for IdempotencyGuard {
    fn drop(&mut self) {
        if let Some((_, state)) = self
            .core
            .in_flight_requests
            .lock()
            .get_mut(&self.held.holder)
        {
            *state = GuardState::Dropped;
            self.core.in_flight_requests.dropped.notify_one();
        }
    }
}

/// The guards of this process; [`crate::gc::rows`] renews and releases their reservations.
#[derive(Debug, Default)]
pub(crate) struct InFlightRequests {
    held: Mutex<HashMap<HolderId, (Reservation, GuardState)>>,
    dropped: Notify,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum GuardState {
    Running,
    Dropped,
}

impl InFlightRequests {
    fn lock(&self) -> MutexGuard<'_, HashMap<HolderId, (Reservation, GuardState)>> {
        self.held.lock_ignoring_poison()
    }

    fn in_state(&self, wanted: GuardState) -> Vec<Reservation> {
        self.lock()
            .values()
            .filter(|(_, state)| *state == wanted)
            .map(|(held, _)| *held)
            .collect()
    }

    /// Waits until a guard is dropped.
    pub(crate) async fn dropped(&self) {
        self.dropped.notified().await;
    }
}

/// Keeps the reservations of requests that are still running.
pub async fn renew_leases(core: &Core) -> Result<()> {
    let held = core.in_flight_requests.in_state(GuardState::Running);
    if held.is_empty() {
        return Ok(());
    }
    let (held, until) = (Arc::new(held), core.now().after(LEASE_DURATION));
    core.db
        .transact(move |tx| {
            let held = Arc::clone(&held);
            Box::pin(async move { Ok(store::renew_reservations(tx, &held, until).await?) })
        })
        .await
}

/// Gives up the reservations of guards that were dropped.
pub async fn release_dropped(core: &Core) -> Result<()> {
    let held = core.in_flight_requests.in_state(GuardState::Dropped);
    if held.is_empty() {
        return Ok(());
    }
    release(core, held.clone()).await?;
    let mut guards = core.in_flight_requests.lock();
    for held in held {
        guards.remove(&held.holder);
    }
    Ok(())
}

async fn release(core: &Core, held: Vec<Reservation>) -> Result<()> {
    let held = Arc::new(held);
    core.db
        .transact(move |tx| {
            let held = Arc::clone(&held);
            Box::pin(async move { Ok(store::release_reservations(tx, &held).await?) })
        })
        .await
}
