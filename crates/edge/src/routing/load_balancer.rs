//! Load balancer: least requests in flight, ties in round-robin order, with connection draining and a short
//! backoff for instances that refuse connections.
//!
//! Invariant: the draining flag and the number of requests in flight are one atomic word. A request is
//! either counted before draining begins, and waited for, or refused and sent to another instance; none
//! can slip in between and be cut off when the instance is stopped.

use estrade_model::ReleaseId;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};

/// High bit of `load`: the instance is draining. The other bits count requests in flight.
const DRAINING: usize = 1 << (usize::BITS - 1);
/// How long an unreachable instance is used only when there is no other.
const BACKOFF: Duration = Duration::from_secs(1);

static NEXT_ID: AtomicU64 = AtomicU64::new(1);
static START: LazyLock<Instant> = LazyLock::new(Instant::now);

/// One address of a release.
#[derive(Debug)]
pub(crate) struct Instance {
    /// Unique: pooled connections must not be used for a later instance with the same address.
    pub(crate) id: u64,
    pub(crate) address: SocketAddr,
    load: AtomicUsize,
    /// End of the backoff, in milliseconds since `START`.
    backoff_until: AtomicU64,
    /// Notified when the last request of a draining instance has ended.
    drained: Notify,
}

impl Instance {
    fn new(address: SocketAddr) -> Self {
        Self {
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            address,
            load: AtomicUsize::new(0),
            backoff_until: AtomicU64::new(0),
            drained: Notify::new(),
        }
    }

    /// It gets no new requests from now on.
    pub(crate) fn start_draining(&self) {
        self.load.fetch_or(DRAINING, Ordering::AcqRel);
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.load.load(Ordering::Acquire) & DRAINING != 0
    }

    /// A connection attempt failed: prefer others for a while.
    pub(crate) fn back_off(&self) {
        self.backoff_until
            .store(now() + millis(BACKOFF), Ordering::Relaxed);
    }

    fn is_backing_off(&self) -> bool {
        let until = self.backoff_until.load(Ordering::Relaxed);
        until != 0 && now() < until
    }

    fn in_flight(&self) -> usize {
        self.load.load(Ordering::Acquire) & !DRAINING
    }

    async fn drained(&self) {
        loop {
            let drained = self.drained.notified();
            if self.in_flight() == 0 {
                return;
            }
            drained.await;
        }
    }
}

/// RAII guard of one request in flight; dropping it takes the count back.
#[derive(Debug)]
pub(crate) struct InFlightGuard(Arc<Instance>);

impl InFlightGuard {
    fn try_new(instance: &Arc<Instance>) -> Option<Self> {
        let before = instance.load.fetch_add(1, Ordering::AcqRel);
        // Dropping it takes the count back.
        let guard = Self(Arc::clone(instance));
        (before & DRAINING == 0).then_some(guard)
    }

    pub(crate) fn instance(&self) -> &Arc<Instance> {
        &self.0
    }
}

impl Drop for InFlightGuard {
    fn drop(&mut self) {
        if self.0.load.fetch_sub(1, Ordering::AcqRel) == DRAINING | 1 {
            self.0.drained.notify_waiters();
        }
    }
}

/// An immutable set of instances; a change replaces the whole set (see `endpoints`).
#[derive(Debug)]
pub struct Instances {
    release: ReleaseId,
    all: Box<[Arc<Instance>]>,
    /// Round-robin cursor: where the next search begins.
    cursor: AtomicUsize,
}

impl Instances {
    pub(crate) fn new(release: ReleaseId, all: impl IntoIterator<Item = Arc<Instance>>) -> Self {
        Self {
            release,
            all: all.into_iter().collect(),
            cursor: AtomicUsize::new(0),
        }
    }

    /// The successor of this set, and the instances that are not in it any more. Instances that stay keep
    /// their id, connections and requests in flight.
    pub(crate) fn with_addresses(&self, addresses: &[SocketAddr]) -> (Self, Self) {
        let mut all: Vec<Arc<Instance>> = Vec::with_capacity(addresses.len());
        for address in addresses {
            let is_it = |instance: &&Arc<Instance>| instance.address == *address;
            if all.iter().any(|instance| is_it(&instance)) {
                continue;
            }
            let known = self.all.iter().find(is_it).cloned();
            all.push(known.unwrap_or_else(|| Arc::new(Instance::new(*address))));
        }
        let stays = |instance: &Arc<Instance>| all.iter().any(|it| Arc::ptr_eq(it, instance));
        let draining: Vec<_> = self.all.iter().filter(|it| !stays(it)).cloned().collect();
        let next = Self::new(self.release, all);
        (next, Self::new(self.release, draining))
    }

    pub fn release(&self) -> ReleaseId {
        self.release
    }

    pub fn addresses(&self) -> impl Iterator<Item = SocketAddr> {
        self.all.iter().map(|instance| instance.address)
    }

    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Requests in flight, upgraded connections included.
    pub fn in_flight(&self) -> usize {
        self.all.iter().map(|instance| instance.in_flight()).sum()
    }

    /// Waits until nothing is in flight; false when `limit` passes first. Meaningful for draining sets
    /// only: others get new requests.
    pub async fn drained(&self, limit: Duration) -> bool {
        let all = async {
            for instance in &self.all {
                instance.drained().await;
            }
        };
        timeout(limit, all).await.is_ok()
    }

    pub(crate) fn start_draining(&self) {
        self.all
            .iter()
            .for_each(|instance| instance.start_draining());
    }

    /// Picks the least loaded instance for a request; none when all are draining or were tried.
    pub(crate) fn acquire(&self, tried: &[u64]) -> Option<InFlightGuard> {
        loop {
            let guard = InFlightGuard::try_new(self.least_loaded(tried)?);
            // None: it began to drain after it was picked, and the next search skips it.
            if guard.is_some() {
                return guard;
            }
        }
    }

    fn least_loaded(&self, tried: &[u64]) -> Option<&Arc<Instance>> {
        let cursor = match self.all.len() {
            0 | 1 => 0,
            count => self.cursor.fetch_add(1, Ordering::Relaxed) % count,
        };
        let (before, from) = self.all.split_at(cursor);
        let candidates = from.iter().chain(before).filter(|instance| {
            !instance.is_draining() && (tried.is_empty() || !tried.contains(&instance.id))
        });
        // `min_by_key` takes the first of equals, and the cursor rotates which one is first.
        candidates.min_by_key(|instance| (instance.is_backing_off(), instance.in_flight()))
    }
}

fn now() -> u64 {
    millis(START.elapsed())
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(port: u16) -> SocketAddr {
        ([127, 0, 0, 1], port).into()
    }

    fn set(ports: &[u16]) -> Instances {
        let addresses: Vec<_> = ports.iter().map(|port| address(*port)).collect();
        let release = "0123456789abcdef01234567".parse().unwrap();
        Instances::new(release, []).with_addresses(&addresses).0
    }

    fn port(guard: &InFlightGuard) -> u16 {
        guard.instance().address.port()
    }

    #[test]
    fn the_one_with_the_least_to_do_is_next_and_equals_take_turns() {
        let set = set(&[1, 2, 3]);
        let busy: Vec<_> = (0..6).map(|_| set.acquire(&[]).unwrap()).collect();
        for wanted in 1..=3 {
            assert_eq!(busy.iter().filter(|it| port(it) == wanted).count(), 2);
        }
        let mut busy = busy;
        busy.retain(|it| port(it) != 2);
        assert_eq!(port(&set.acquire(&[]).unwrap()), 2);
        assert_eq!(set.in_flight(), 4);
        drop(busy);
        let turns: Vec<_> = (0..6).map(|_| port(&set.acquire(&[]).unwrap())).collect();
        for wanted in 1..=3 {
            assert_eq!(
                turns.iter().filter(|it| **it == wanted).count(),
                2,
                "{turns:?}"
            );
        }
    }

    #[test]
    fn one_that_was_tried_or_rests_is_passed_over_if_there_is_another() {
        let set = set(&[1, 2]);
        let first = set.acquire(&[]).unwrap();
        first.instance().back_off();
        let first_id = first.instance().id;
        let second = set.acquire(&[]).unwrap();
        for _ in 0..3 {
            assert_eq!(port(&set.acquire(&[]).unwrap()), port(&second));
        }
        let both = [first_id, second.instance().id];
        assert!(set.acquire(&both).is_none());
        assert_eq!(port(&set.acquire(&both[1..]).unwrap()), port(&first));
    }

    #[test]
    fn nobody_comes_in_after_one_began_to_leave() {
        let set = set(&[1]);
        let instance = Arc::clone(set.acquire(&[]).unwrap().instance());
        instance.start_draining();
        // As if it had been chosen just before.
        assert!(InFlightGuard::try_new(&instance).is_none());
        assert_eq!((instance.in_flight(), set.in_flight()), (0, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn those_that_stay_keep_their_requests_and_those_that_leave_can_be_awaited() {
        let before = set(&[1, 2]);
        let (one, two) = (before.acquire(&[]).unwrap(), before.acquire(&[]).unwrap());
        let (stays, goes) = if port(&one) == 1 {
            (one, two)
        } else {
            (two, one)
        };
        let (next, draining) = before.with_addresses(&[address(1), address(3), address(3)]);
        draining.start_draining();
        assert_eq!(
            next.addresses().collect::<Vec<_>>(),
            [address(1), address(3)]
        );
        assert_eq!((next.in_flight(), draining.in_flight()), (1, 1));
        assert_eq!(draining.addresses().collect::<Vec<_>>(), [address(2)]);
        // The old set still leads to the one that stays, and not to the other.
        assert_eq!(port(&before.acquire(&[]).unwrap()), 1);
        assert!(!draining.drained(Duration::from_secs(1)).await);
        let wait = tokio::join!(draining.drained(Duration::from_mins(1)), async {
            tokio::time::sleep(Duration::from_secs(2)).await;
            drop(goes);
        });
        assert!(wait.0);
        assert!(draining.acquire(&[]).is_none());
        assert_eq!(draining.in_flight(), 0);
        drop(stays);
    }
}
