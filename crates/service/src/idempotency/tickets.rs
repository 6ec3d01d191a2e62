//! Who carries out which request with an idempotency key in this process.

use super::StoredAnswer;
use crate::{Core, Error, Result};
use estrade_store::idempotency::{self as store, HolderId, Reservation};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::sync::Notify;

/// How long an answer is kept.
const KEPT: Duration = Duration::from_hours(24);
/// How long a reservation outlives the process that made it.
pub(super) const LEASE: Duration = Duration::from_mins(1);
/// How often reservations are renewed: two renewals may fail before one is lost.
pub(crate) const RENEW_EVERY: Duration = Duration::from_secs(20);
/// The largest body that is stored. No answer of ours that creates something comes near it; one
/// that did would not be stored, and a repeat would be carried out again.
const MAX_BODY_BYTES: usize = 1 << 20;

/// The right to carry a request out. Dropped, it lets a repeat be carried out instead.
#[must_use]
pub struct Ticket {
    core: Arc<Core>,
    held: Reservation,
}

impl Ticket {
    pub(super) fn new(core: &Arc<Core>, held: Reservation) -> Self {
        core.tickets
            .lock()
            .insert(held.holder, (held, Use::Running));
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
        let (held, row, until) = (self.held, answer.to_row()?, self.core.now().after(KEPT));
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

    /// Ends the ticket without giving its reservation up: there is none any more.
    pub(super) fn discard(self) {
        self.core.tickets.lock().remove(&self.held.holder);
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if let Some((_, state)) = self.core.tickets.lock().get_mut(&self.held.holder) {
            *state = Use::Dropped;
            self.core.tickets.dropped.notify_one();
        }
    }
}

/// The tickets of this process; [`crate::gc::rows`] renews and releases their reservations.
#[derive(Debug, Default)]
pub(crate) struct Tickets {
    held: Mutex<HashMap<HolderId, (Reservation, Use)>>,
    dropped: Notify,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Use {
    Running,
    Dropped,
}

impl Tickets {
    fn lock(&self) -> MutexGuard<'_, HashMap<HolderId, (Reservation, Use)>> {
        self.held
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn in_use(&self, wanted: Use) -> Vec<Reservation> {
        self.lock()
            .values()
            .filter(|(_, state)| *state == wanted)
            .map(|(held, _)| *held)
            .collect()
    }

    /// Waits until a ticket is dropped.
    pub(crate) async fn dropped(&self) {
        self.dropped.notified().await;
    }
}

/// Keeps the reservations of requests that are still running.
pub async fn renew_leases(core: &Core) -> Result<()> {
    let held = core.tickets.in_use(Use::Running);
    if held.is_empty() {
        return Ok(());
    }
    let (held, until) = (Arc::new(held), core.now().after(LEASE));
    core.db
        .transact(move |tx| {
            let held = Arc::clone(&held);
            Box::pin(async move { Ok(store::renew_reservations(tx, &held, until).await?) })
        })
        .await
}

/// Gives up the reservations of tickets that were dropped.
pub async fn release_dropped(core: &Core) -> Result<()> {
    let held = core.tickets.in_use(Use::Dropped);
    if held.is_empty() {
        return Ok(());
    }
    release(core, held.clone()).await?;
    let mut tickets = core.tickets.lock();
    for held in held {
        tickets.remove(&held.holder);
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
