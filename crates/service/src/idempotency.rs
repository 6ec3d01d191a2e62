//! Idempotency keys: a request that is repeated is executed once, and its response is replayed.
//!
//! The first request with a key reserves it and gets an [`IdempotencyGuard`]; repeats find the reservation
//! (409, in progress) or the stored response. The reservation is a row, so it also holds on other
//! nodes. It is a lease that the guard's process renews while the request runs: when the process
//! crashes, the next repeat takes the key over once the lease has expired.
//!
//! Run a request with a guard to its end even when the client disconnects (in a task of its own):
//! a client that lost its connection is the one that repeats, and a guard dropped after the work
//! was done lets the repeat do it again.

mod guard;
mod in_flight;
mod stored_response;

use crate::{Core, Error, Result};
use estrade_store::idempotency::{self as store, Reservation};
use futures_util::future::BoxFuture;
pub use guard::IdempotencyGuard;
use in_flight::{GuardState, InFlightRequests};
use std::sync::Arc;
use std::time::Duration;
pub use stored_response::StoredResponse;

/// How long a reservation outlives the process that made it.
const LEASE_DURATION: Duration = Duration::from_mins(1);
/// How often reservations are renewed: two renewals may fail before one is lost.
pub(crate) const RENEW_INTERVAL: Duration = Duration::from_secs(20);

/// A request with an idempotency key, as far as repeats are recognised by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IdempotencyKey {
    scope: [u8; 32],
    request: [u8; 32],
}

/// The request behind an idempotency key.
#[derive(Debug, Clone, Copy)]
pub struct KeyedRequest<'r> {
    /// The credential of the request: the same key of another credential is another key.
    pub credential: &'r [u8],
    pub method: &'r str,
    /// Path as sent.
    pub path: &'r str,
    /// Query as sent.
    pub query: &'r str,
    /// The team named in a header.
    pub team: &'r str,
    /// Hash of the body.
    pub body_hash: [u8; 32],
}

impl IdempotencyKey {
    /// From the header's text and the request; 400 unless it is 1 to 255 visible ASCII characters.
    pub fn new(header: &str, request: &KeyedRequest<'_>) -> Result<Self> {
        if !(1..=255).contains(&header.len()) || !header.bytes().all(|b| b.is_ascii_graphic()) {
            return Err(Error::invalid(
                "Idempotency-Key: must be 1 to 255 visible ASCII characters",
            ));
        }
        let KeyedRequest {
            credential,
            method,
            path,
            query,
            team,
            body_hash,
        } = request;
        let (header, method, path) = (header.as_bytes(), method.as_bytes(), path.as_bytes());
        Ok(Self {
            scope: hash_parts(
                "estrade idempotency scope",
                &[credential, header, method, path],
            ),
            request: hash_parts(
                "estrade idempotency request",
                &[query.as_bytes(), team.as_bytes(), body_hash],
            ),
        })
    }
}

/// One hash of several texts, each with its length, so that no two lists look the same.
fn hash_parts(context: &'static str, parts: &[&[u8]]) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new_derive_key(context);
    for part in parts {
        hasher.update(&(part.len() as u64).to_le_bytes());
        hasher.update(part);
    }
    *hasher.finalize().as_bytes()
}

/// What to do with a request that has an idempotency key.
pub enum RequestStart {
    /// Carry it out, then [`IdempotencyGuard::finish`].
    New(IdempotencyGuard),
    /// It was executed before: send this response.
    Replay(StoredResponse),
}

/// The idempotency keys whose requests this process carries out.
pub struct Idempotency {
    core: Arc<Core>,
    in_flight: Arc<InFlightRequests>,
}

impl Idempotency {
    /// Without any request yet; [`crate::gc::rows`] renews and releases what comes.
    pub fn new(core: &Arc<Core>) -> Self {
        Self {
            core: Arc::clone(core),
            in_flight: Arc::default(),
        }
    }

    /// Reserves a key for its first request, or finds the stored response.
    ///
    /// [`Error::IdempotencyMismatch`] when the key belongs to another request,
    /// [`Error::IdempotencyInProgress`] while the first one is in progress.
    pub fn begin(&self, key: IdempotencyKey) -> BoxFuture<'_, Result<RequestStart>> {
        Box::pin(async move {
            let core = &self.core;
            let (holder, now) = (core.new_id()?, core.now());
            let held = Reservation {
                scope: key.scope,
                holder,
            };
            // Registered first: a caller that is dropped while it waits for the database must not leave a
            // reservation behind that is never released.
            let guard = IdempotencyGuard::new(core, &self.in_flight, held);
            let known = core
                .db
                .transact(move |tx| {
                    Box::pin(async move {
                        if store::reserve(tx, held, key.request, now, now.after(LEASE_DURATION))
                            .await?
                        {
                            return Ok(None);
                        }
                        let entry = store::entry_by_scope(tx, key.scope).await?;
                        // It was there a statement ago, and a transaction sees no others.
                        entry
                            .map(Some)
                            .ok_or_else(|| Error::internal("an idempotency key vanished"))
                    })
                })
                .await?;
            let Some(entry) = known else {
                return Ok(RequestStart::New(guard));
            };
            guard.discard();
            match entry.response {
                _ if entry.request != key.request => Err(Error::IdempotencyMismatch),
                None => Err(Error::IdempotencyInProgress),
                Some(response) => Ok(RequestStart::Replay(StoredResponse::from_row(response)?)),
            }
        })
    }

    /// Waits until a guard is dropped.
    pub(crate) async fn dropped(&self) {
        self.in_flight.dropped().await;
    }

    /// Keeps the reservations of requests that are still running.
    pub async fn renew_leases(&self) -> Result<()> {
        let held = self.in_flight.in_state(GuardState::Running);
        if held.is_empty() {
            return Ok(());
        }
        let (held, until) = (Arc::new(held), self.core.now().after(LEASE_DURATION));
        let renewed = self.core.db.transact(move |tx| {
            let held = Arc::clone(&held);
            Box::pin(async move { Ok(store::renew_reservations(tx, &held, until).await?) })
        });
        renewed.await
    }

    /// Gives up the reservations of guards that were dropped.
    pub async fn release_dropped(&self) -> Result<()> {
        let held = self.in_flight.in_state(GuardState::Dropped);
        if held.is_empty() {
            return Ok(());
        }
        guard::release(&self.core, held.clone()).await?;
        for held in held {
            self.in_flight.remove(&held.holder);
        }
        Ok(())
    }
}
