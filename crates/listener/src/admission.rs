//! Connection limits of a listener: total, per address, and eviction of idle connections.
//!
//! An idle keep-alive connection costs its client nothing and takes a slot. So each address has a
//! limit, and when all slots are taken the connections that have been idle longest are closed in
//! favour of those that wait to be accepted. Listeners that share file descriptors do so for each other.

use crate::descriptors::{DescriptorShare, EvictIdle};
use crate::peer::TrustedProxies;
use estrade_http1::server::ConnectionState;
use estrade_model::sync::MutexExt;
use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

/// How long to wait for a slot before more idle connections are evicted.
const RETRY_INTERVAL: Duration = Duration::from_millis(100);
/// Eviction closes 1/256 of all connections at a time: one by one, each new connection would wait for
/// an old one to close.
const EVICTED_PART: usize = 256;
/// Value of `idle_since` while a request is in progress.
const BUSY: u64 = u64::MAX;

/// The connections of a listener.
#[derive(Debug)]
pub struct Admission {
    max: usize,
    max_per_address: usize,
    descriptors: Option<DescriptorShare>,
    trusted: TrustedProxies,
    stop: CancellationToken,
    epoch: Instant,
    freed: Notify,
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    next: u64,
    connections: HashMap<u64, Arc<ConnectionHandle>>,
    addresses: HashMap<IpAddr, usize>,
    /// Connections that were evicted and have not closed yet.
    closing: usize,
}

/// State of a connection while it is served, shared with the admission table.
#[derive(Debug)]
pub struct ConnectionHandle {
    close: CancellationToken,
    epoch: Instant,
    /// Milliseconds since the epoch, or [`BUSY`].
    idle_since: AtomicU64,
    permit: Weak<ConnectionPermit>,
}

impl ConnectionHandle {
    fn new(close: CancellationToken, epoch: Instant, permit: Weak<ConnectionPermit>) -> Self {
        let handle = Self {
            close,
            epoch,
            idle_since: AtomicU64::new(BUSY),
            permit,
        };
        handle.set_idle(Instant::now());
        handle
    }

    /// The handle of a connection that counts against no limit.
    pub fn uncounted(stop: &CancellationToken) -> Self {
        Self::new(stop.child_token(), Instant::now(), Weak::new())
    }

    /// The permit under which the connection is counted; none if it is uncounted.
    pub(crate) fn permit(&self) -> Option<Arc<ConnectionPermit>> {
        self.permit.upgrade()
    }

    /// Cancelled when the connection has to close: at once if it is idle, else after the request in progress.
    pub fn close(&self) -> &CancellationToken {
        &self.close
    }

    /// Since when the connection is idle; none while a request is in progress.
    pub fn idle_since(&self) -> Option<Instant> {
        let since = self.idle_since.load(Ordering::Relaxed);
        (since != BUSY).then(|| self.epoch + Duration::from_millis(since))
    }
}

impl ConnectionState for ConnectionHandle {
    #[inline]
    fn set_idle(&self, now: Instant) {
        let since = now.saturating_duration_since(self.epoch).as_millis();
        let since = u64::try_from(since).unwrap_or(BUSY - 1);
        self.idle_since.store(since, Ordering::Relaxed);
    }

    #[inline]
    fn set_busy(&self) {
        self.idle_since.store(BUSY, Ordering::Relaxed);
    }
}

/// A connection's slot in its listener, for as long as it is served.
///
/// The slot is free again when this and the connection's socket are dropped: a connection that was upgraded to
/// another protocol is no longer served here, but still open.
#[derive(Debug)]
pub struct ConnectionSlot {
    handle: Arc<ConnectionHandle>,
    _permit: Arc<ConnectionPermit>,
}

impl ConnectionSlot {
    pub fn handle(&self) -> &Arc<ConnectionHandle> {
        &self.handle
    }
}

/// Counts a connection against the limits of its listener and its address until it is dropped.
#[derive(Debug)]
pub(crate) struct ConnectionPermit {
    admission: Arc<Admission>,
    number: u64,
    /// None for a trusted proxy, which has no limit per address.
    address: Option<IpAddr>,
    close: CancellationToken,
}

impl Admission {
    /// Admits at most `max` connections, as many as `descriptors` allows, and `max_per_address` from one address unless
    /// it is a trusted proxy. `stop` closes all of them.
    pub fn new(
        max: usize,
        max_per_address: usize,
        descriptors: Option<DescriptorShare>,
        trusted: TrustedProxies,
        stop: CancellationToken,
    ) -> Arc<Self> {
        let admission = Arc::new(Self {
            max,
            max_per_address,
            descriptors,
            trusted,
            stop,
            epoch: Instant::now(),
            freed: Notify::new(),
            table: Mutex::default(),
        });
        if let Some(share) = &admission.descriptors {
            let holder: Weak<Self> = Arc::downgrade(&admission);
            share.register(holder);
        }
        admission
    }

    /// Acquires a slot for an accepted connection; waits while all are taken. None when its address has
    /// reached its limit.
    pub async fn admit(self: &Arc<Self>, peer: IpAddr) -> Option<ConnectionSlot> {
        let peer = peer.to_canonical();
        let address = (!self.trusted.contains(peer)).then(|| network_of(peer));
        let mut evict_more = false;
        loop {
            let freed = self.freed.notified();
            match self.try_admit(address, evict_more) {
                Ok(slot) => return slot,
                Err(Full::Connections) => {}
                // Others may have them for idle connections. They say nothing when these have closed.
                Err(Full::Descriptors(share)) => share.evict_idle(),
            }
            evict_more = timeout(RETRY_INTERVAL, freed).await.is_err();
        }
    }

    fn try_admit(
        self: &Arc<Self>,
        address: Option<IpAddr>,
        evict_more: bool,
    ) -> Result<Option<ConnectionSlot>, Full<'_>> {
        let mut table = self.lock();
        let own = address.and_then(|address| table.addresses.get(&address));
        if own.is_some_and(|own| *own >= self.max_per_address) {
            return Ok(None);
        }
        let open = table.connections.len();
        let full = if open >= self.max {
            Some(Full::Connections)
        } else {
            let share = self.descriptors.as_ref();
            let share = share.filter(|share| !share.try_acquire(open));
            share.map(Full::Descriptors)
        };
        if let Some(full) = full {
            // Evicted connections may be about to close, or may have received a request just then.
            if table.closing == 0 || evict_more {
                table.evict_idle(self.max / EVICTED_PART + 1);
            }
            return Err(full);
        }
        let (number, close) = (table.next, self.stop.child_token());
        table.next += 1;
        let permit = Arc::new(ConnectionPermit {
            admission: Arc::clone(self),
            number,
            address,
            close: close.clone(),
        });
        let handle = ConnectionHandle::new(close, self.epoch, Arc::downgrade(&permit));
        let handle = Arc::new(handle);
        table.connections.insert(number, Arc::clone(&handle));
        if let Some(address) = address {
            *table.addresses.entry(address).or_default() += 1;
        }
        Ok(Some(ConnectionSlot {
            handle,
            _permit: permit,
        }))
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock_ignoring_poison()
    }
}

/// Why there is no slot.
enum Full<'a> {
    /// The listener has as many connections as it may.
    Connections,
    /// It has no descriptor for one more.
    Descriptors(&'a DescriptorShare),
}

impl EvictIdle for Admission {
    fn evict_idle(&self) {
        let mut table = self.lock();
        let reserved = self
            .descriptors
            .as_ref()
            .map_or(0, DescriptorShare::reserved);
        // Those that are reserved would give nothing to others.
        let beyond = table.connections.len().saturating_sub(reserved);
        if table.closing == 0 && beyond > 0 {
            table.evict_idle(beyond.min(self.max / EVICTED_PART + 1));
        }
    }
}

impl Table {
    /// Closes the connections that have been idle longest, at most `count`.
    fn evict_idle(&mut self, count: usize) {
        let idle = self.connections.values().filter_map(|handle| {
            let since = handle.idle_since.load(Ordering::Relaxed);
            (since != BUSY && !handle.close.is_cancelled()).then_some((since, handle))
        });
        let mut idle: Vec<_> = idle.collect();
        idle.sort_unstable_by_key(|(since, _)| *since);
        for (_, handle) in idle.into_iter().take(count) {
            handle.close.cancel();
            self.closing += 1;
        }
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        let mut table = self.admission.lock();
        table.connections.remove(&self.number);
        if let Some(share) = &self.admission.descriptors {
            share.release(table.connections.len());
        }
        if self.close.is_cancelled() {
            table.closing = table.closing.saturating_sub(1);
        }
        if let Some(address) = self.address
            && let Some(own) = table.addresses.get_mut(&address)
        {
            *own -= 1;
            if *own == 0 {
                table.addresses.remove(&address);
            }
        }
        drop(table);
        self.admission.freed.notify_waiters();
    }
}

/// The unit of the limit per address: an IPv4 address or a /64 of IPv6, which providers assign as a whole.
fn network_of(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(address) => {
            let network = u128::from(address) & !u128::from(u64::MAX);
            IpAddr::V6(Ipv6Addr::from(network))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::descriptors::DescriptorPool;

    fn admission(max: usize, per_address: usize) -> Arc<Admission> {
        let trusted = ["10.9.0.0/16".parse().unwrap()].into_iter().collect();
        Admission::new(max, per_address, None, trusted, CancellationToken::new())
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[tokio::test]
    async fn an_address_has_a_share_and_a_trusted_proxy_has_none() {
        let all = admission(100, 2);
        let first = all.admit(ip("192.0.2.1")).await.unwrap();
        let _mapped = all.admit(ip("::ffff:192.0.2.1")).await.unwrap();
        assert!(all.admit(ip("192.0.2.1")).await.is_none());
        let _other = all.admit(ip("192.0.2.2")).await.unwrap();
        drop(first);
        let _again = all.admit(ip("192.0.2.1")).await.unwrap();
        let _network = all.admit(ip("2001:db8::1")).await.unwrap();
        let _same = all.admit(ip("2001:db8::ffff:2")).await.unwrap();
        assert!(all.admit(ip("2001:db8::3")).await.is_none());
        let _next = all.admit(ip("2001:db8:0:1::3")).await.unwrap();
        let mut proxied = Vec::new();
        for _ in 0..10 {
            proxied.push(all.admit(ip("10.9.8.7")).await.unwrap());
        }
    }

    #[tokio::test]
    async fn the_longest_idle_makes_room_and_the_busy_stay() {
        let all = admission(3, 3);
        let (busy, old, young) = (
            all.admit(ip("192.0.2.1")).await.unwrap(),
            all.admit(ip("192.0.2.2")).await.unwrap(),
            all.admit(ip("192.0.2.3")).await.unwrap(),
        );
        busy.handle().set_busy();
        let later = Instant::now() + Duration::from_secs(5);
        young.handle().set_idle(later);
        let closed = old.handle().close().clone();
        let serve_old = async move {
            closed.cancelled().await;
            drop(old);
        };
        let (admitted, ()) = tokio::join!(all.admit(ip("192.0.2.4")), serve_old);
        assert!(admitted.is_some());
        assert!(!busy.handle().close().is_cancelled());
        assert!(!young.handle().close().is_cancelled());
    }

    #[tokio::test]
    async fn an_idle_connection_of_another_listener_makes_room() {
        let pool = DescriptorPool::new(1);
        let listener = || {
            let (trusted, stop) = (TrustedProxies::default(), CancellationToken::new());
            Admission::new(10, 10, Some(pool.share(1, 1)), trusted, stop)
        };
        let (idle, wanted) = (listener(), listener());
        let (first, second) = (
            idle.admit(ip("192.0.2.1")).await.unwrap(),
            idle.admit(ip("192.0.2.2")).await.unwrap(),
        );
        first.handle().set_busy();
        let closed = second.handle().close().clone();
        let serve_second = async move {
            closed.cancelled().await;
            drop(second);
        };
        let _own = wanted.admit(ip("192.0.2.3")).await.unwrap();
        let admitted = timeout(Duration::from_secs(30), async {
            tokio::join!(wanted.admit(ip("192.0.2.4")), serve_second).0
        });
        let _admitted = admitted.await.unwrap().unwrap();
        // What is reserved for it stays, idle or not.
        first.handle().set_idle(Instant::now());
        let waits = timeout(Duration::from_millis(300), wanted.admit(ip("192.0.2.5")));
        assert!(waits.await.is_err());
        assert!(!first.handle().close().is_cancelled());
    }

    #[tokio::test]
    async fn what_is_reserved_is_not_evicted_for_others() {
        let pool = DescriptorPool::new(1);
        let (trusted, stop) = (TrustedProxies::default(), CancellationToken::new());
        let all = Admission::new(1000, 1000, Some(pool.share(4, 1)), trusted, stop);
        let mut slots = Vec::new();
        for _ in 0..5 {
            slots.push(all.admit(ip("192.0.2.1")).await.unwrap());
        }
        pool.share(0, 1).evict_idle();
        let closed = slots
            .iter()
            .filter(|slot| slot.handle().close().is_cancelled());
        assert_eq!(closed.count(), 1, "not a 256th of all");
    }

    #[tokio::test(start_paused = true)]
    async fn with_nobody_idle_it_waits() {
        let all = admission(1, 1);
        let busy = all.admit(ip("192.0.2.1")).await.unwrap();
        busy.handle().set_busy();
        let waits = timeout(Duration::from_secs(5), all.admit(ip("192.0.2.2"))).await;
        assert!(waits.is_err());
        assert!(!busy.handle().close().is_cancelled());
        drop(busy);
        assert!(all.admit(ip("192.0.2.2")).await.is_some());
    }
}
