//! The guard of a reserved idempotency key: its holder executes the request.

use super::in_flight::InFlightRequests;
use super::stored_response::StoredResponse;
use crate::{Core, Error, Result};
use estrade_store::idempotency::{self as store, Reservation};
use std::sync::Arc;
use std::time::Duration;

/// How long a response is kept.
const RESPONSE_RETENTION: Duration = Duration::from_hours(24);
/// The largest body that is stored. No response to a request that creates something comes near it; one
/// that did would not be stored, and a repeat would be executed again.
const MAX_BODY_BYTES: usize = 1 << 20;

/// The right to carry a request out. Dropped, it lets a repeat be carried out instead.
#[must_use]
pub struct IdempotencyGuard {
    core: Arc<Core>,
    in_flight: Arc<InFlightRequests>,
    held: Reservation,
}

impl IdempotencyGuard {
    pub(super) fn new(
        core: &Arc<Core>,
        in_flight: &Arc<InFlightRequests>,
        held: Reservation,
    ) -> Self {
        in_flight.insert(held);
        Self {
            core: Arc::clone(core),
            in_flight: Arc::clone(in_flight),
            held,
        }
    }

    /// Stores the response for repeats when it is final (2xx and 409); after any other a repeat is
    /// executed again. Returns once that is on disk.
    pub async fn finish(self, response: StoredResponse) -> Result<()> {
        let small = response.body.len() <= MAX_BODY_BYTES;
        if !response.is_final() || !small {
            if !small {
                tracing::warn!("a response is too large to be kept for its idempotency key");
            }
            return self.give_up().await;
        }
        let (held, row, until) = (
            self.held,
            response.to_row()?,
            self.core.now().after(RESPONSE_RETENTION),
        );
        let kept = self
            .core
            .db
            .transact(move |tx| {
                let row = row.clone();
                Box::pin(async move {
                    Ok::<_, Error>(store::store_response(tx, held, &row, until).await?)
                })
            })
            .await?;
        if !kept {
            tracing::warn!("a request took longer than its lease on an idempotency key");
        }
        self.discard();
        Ok(())
    }

    /// Releases the key, so that a repeat is executed whatever the response was. Returns once that is on disk.
    pub async fn give_up(self) -> Result<()> {
        release(&self.core, vec![self.held]).await?;
        self.discard();
        Ok(())
    }

    /// Ends the guard without giving its reservation up: there is none any more.
    pub(super) fn discard(self) {
        self.in_flight.remove(&self.held.holder);
    }
}

impl Drop for IdempotencyGuard {
    fn drop(&mut self) {
        self.in_flight.mark_dropped(&self.held.holder);
    }
}

/// Gives reservations up, so that a repeat can be carried out.
pub(super) async fn release(core: &Core, held: Vec<Reservation>) -> Result<()> {
    let held = Arc::new(held);
    core.db
        .transact(move |tx| {
            let held = Arc::clone(&held);
            Box::pin(async move { Ok(store::release_reservations(tx, &held).await?) })
        })
        .await
}
