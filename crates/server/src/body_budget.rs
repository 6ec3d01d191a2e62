//! How many bytes of request bodies may be in memory at once: in all, and of one client.
//!
//! A body that comes slowly is held until its end, and nothing but its sender decides how many
//! there are. Without a share per client one account could take the memory of all.

use crate::api_error::ApiError;
use axum::http::Extensions;
use estrade_listener::peer::PeerAddr;
use estrade_model::AccountId;
use estrade_model::sync::MutexExt;
use estrade_service::identity::access::Caller;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard};

/// Most bytes of all bodies that a listener receives at once.
const MAX_TOTAL: u64 = 128 * 1024 * 1024;
/// Most bytes of one client's.
const MAX_PER_CLIENT: u64 = 32 * 1024 * 1024;

/// Whose body it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Client {
    /// An authenticated account.
    Account(AccountId),
    /// Any other client, by address.
    Address(IpAddr),
    /// Not known, as in tests without a socket.
    Unknown,
}

impl Client {
    /// The client of a request.
    pub fn of(extensions: &Extensions) -> Self {
        if let Some(caller) = extensions.get::<Caller>() {
            return Self::Account(caller.account);
        }
        let peer = extensions.get::<PeerAddr>();
        peer.map_or(Self::Unknown, |PeerAddr(address)| Self::Address(*address))
    }
}

/// The bytes that a listener has for bodies.
#[derive(Debug, Clone)]
pub struct BodyBudget(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    max_total: u64,
    max_per_client: u64,
    used: Mutex<Used>,
}

#[derive(Debug, Default)]
struct Used {
    total: u64,
    clients: HashMap<Client, u64>,
}

impl Default for BodyBudget {
    fn default() -> Self {
        Self::new(MAX_TOTAL, MAX_PER_CLIENT)
    }
}

impl BodyBudget {
    /// So many bytes in all, and of one client.
    pub fn new(max_total: u64, max_per_client: u64) -> Self {
        Self(Arc::new(Inner {
            max_total,
            max_per_client,
            used: Mutex::default(),
        }))
    }

    /// A reservation of a client's, of no bytes yet.
    pub fn begin(&self, client: Client) -> BodyReservation {
        BodyReservation {
            budget: self.clone(),
            client,
            bytes: 0,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Used> {
        self.0.used.lock_ignoring_poison()
    }

    fn add(&self, client: Client, bytes: u64) -> Result<(), ApiError> {
        let mut used = self.lock();
        let own = used.clients.get(&client).copied().unwrap_or_default();
        if own + bytes > self.0.max_per_client {
            return Err(ApiError::TooManyBodies);
        }
        if used.total + bytes > self.0.max_total {
            return Err(ApiError::BodiesFull);
        }
        used.total += bytes;
        used.clients.insert(client, own + bytes);
        Ok(())
    }

    fn remove(&self, client: Client, bytes: u64) {
        let mut used = self.lock();
        used.total = used.total.saturating_sub(bytes);
        if let Some(own) = used.clients.get_mut(&client) {
            *own = own.saturating_sub(bytes);
            if *own == 0 {
                used.clients.remove(&client);
            }
        }
    }
}

/// Bytes that a body holds, given back when it is dropped.
#[derive(Debug)]
pub struct BodyReservation {
    budget: BodyBudget,
    client: Client,
    bytes: u64,
}

impl BodyReservation {
    /// Takes more; 429 when the client has its share already, 503 when there is nothing left.
    pub fn grow(&mut self, bytes: u64) -> Result<(), ApiError> {
        self.budget.add(self.client, bytes)?;
        self.bytes += bytes;
        Ok(())
    }

    /// Gives back what it has, because it went to disk.
    pub fn release(&mut self) {
        let bytes = std::mem::take(&mut self.bytes);
        if bytes > 0 {
            self.budget.remove(self.client, bytes);
        }
    }
}

impl Drop for BodyReservation {
    fn drop(&mut self) {
        self.release();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_has_its_share_and_all_have_a_limit() {
        let budget = BodyBudget::new(100, 40);
        let client = |last| Client::Address([127, 0, 0, last].into());
        let mut first = budget.begin(client(1));
        first.grow(40).unwrap();
        assert!(matches!(first.grow(1), Err(ApiError::TooManyBodies)));
        let mut again = budget.begin(client(1));
        assert!(matches!(again.grow(1), Err(ApiError::TooManyBodies)));
        let (mut second, mut third) = (budget.begin(client(2)), budget.begin(client(3)));
        second.grow(40).unwrap();
        assert!(matches!(third.grow(21), Err(ApiError::BodiesFull)));
        third.grow(20).unwrap();
        first.release();
        again.grow(40).unwrap();
        drop((first, again, second, third));
        assert_eq!(budget.lock().total, 0);
        assert!(budget.lock().clients.is_empty());
    }
}
