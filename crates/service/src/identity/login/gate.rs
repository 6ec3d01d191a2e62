//! Bounds the number of concurrent logins.
//!
//! Checking a password is expensive on purpose, so the logins that wait for it are limited, in total
//! and per network; the rest is refused. Logins from known networks have slots of their own: a flood
//! from other networks does not take them.

use crate::{Error, Result};
use estrade_model::sync::MutexExt;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

/// Most logins that wait or are checked at once, for strangers and again for known networks.
const MAX_IN_FLIGHT: usize = 64;
/// Most of them from one network.
const MAX_PER_NETWORK: usize = 8;
/// When to come back.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// The logins that are under way.
#[derive(Debug, Default)]
pub(crate) struct LoginGate {
    strangers: Arc<Mutex<InFlight>>,
    known: Arc<Mutex<InFlight>>,
}

#[derive(Debug, Default)]
struct InFlight {
    total: usize,
    by_network: HashMap<IpAddr, usize>,
}

impl LoginGate {
    /// Takes a place, or refuses (429) when there is none.
    pub(crate) fn enter(&self, network: IpAddr, known: bool) -> Result<LoginGuard> {
        let places = if known { &self.known } else { &self.strangers };
        let mut in_flight = lock(places);
        let here = in_flight.by_network.get(&network).copied().unwrap_or(0);
        if in_flight.total >= MAX_IN_FLIGHT || here >= MAX_PER_NETWORK {
            return Err(Error::RateLimited(RETRY_DELAY));
        }
        in_flight.total += 1;
        in_flight.by_network.insert(network, here + 1);
        drop(in_flight);
        Ok(LoginGuard {
            places: Arc::clone(places),
            network,
        })
    }
}

fn lock(places: &Mutex<InFlight>) -> MutexGuard<'_, InFlight> {
    places.lock_ignoring_poison()
}

/// A login that is under way.
#[derive(Debug)]
#[must_use]
pub(crate) struct LoginGuard {
    places: Arc<Mutex<InFlight>>,
    network: IpAddr,
}

impl Drop for LoginGuard {
    fn drop(&mut self) {
        let mut in_flight = lock(&self.places);
        in_flight.total -= 1;
        if let Some(here) = in_flight.by_network.get_mut(&self.network) {
            *here -= 1;
            if *here == 0 {
                in_flight.by_network.remove(&self.network);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_network_does_not_take_every_place_and_strangers_not_those_of_known_ones() {
        let gate = LoginGate::default();
        let network = |number: u8| IpAddr::from([192, 0, 2, number]);
        let mut flood: Vec<_> = (0..MAX_PER_NETWORK)
            .map(|_| gate.enter(network(0), false).unwrap())
            .collect();
        assert!(gate.enter(network(0), false).is_err());
        for number in 1..8 {
            for _ in 0..MAX_PER_NETWORK {
                flood.push(gate.enter(network(number), false).unwrap());
            }
        }
        assert!(gate.enter(network(9), false).is_err());
        drop(gate.enter(network(9), true).unwrap());
        flood.pop();
        drop(gate.enter(network(9), false).unwrap());
        drop(flood);
        assert!(lock(&gate.strangers).by_network.is_empty());
        assert_eq!(lock(&gate.strangers).total, 0);
    }
}
