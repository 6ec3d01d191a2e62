//! Instances: where a running release can be reached, and how many requests each of them is working on.

use estrade_model::ReleaseId;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};

/// Set in the load of an instance that shall get no new request. One number for both, so that nobody
/// can come in between "it is leaving" and "it has nothing in flight".
const LEAVING: usize = 1 << (usize::BITS - 1);
/// How long one that could not be reached is asked only when there is no other.
const REST: Duration = Duration::from_secs(1);

static NEXT: AtomicU64 = AtomicU64::new(1);
static BEGINNING: LazyLock<Instant> = LazyLock::new(Instant::now);

/// One address at which a release answers.
#[derive(Debug)]
pub(crate) struct Instance {
    /// Tells the connections of one instance from those of another that has its address later.
    pub(crate) number: u64,
    pub(crate) address: SocketAddr,
    load: AtomicUsize,
    /// Until when it is better not asked, in milliseconds.
    rests_until: AtomicU64,
    /// Told when the last request of a leaving one has ended.
    drained: Notify,
}

impl Instance {
    fn new(address: SocketAddr) -> Self {
        Self {
            number: NEXT.fetch_add(1, Ordering::Relaxed),
            address,
            load: AtomicUsize::new(0),
            rests_until: AtomicU64::new(0),
            drained: Notify::new(),
        }
    }

    /// It gets no new request from now on.
    pub(crate) fn leave(&self) {
        self.load.fetch_or(LEAVING, Ordering::AcqRel);
    }

    pub(crate) fn is_leaving(&self) -> bool {
        self.load.load(Ordering::Acquire) & LEAVING != 0
    }

    /// It could not be reached.
    pub(crate) fn rest(&self) {
        self.rests_until
            .store(now() + millis(REST), Ordering::Relaxed);
    }

    fn is_resting(&self) -> bool {
        let until = self.rests_until.load(Ordering::Relaxed);
        until != 0 && now() < until
    }

    fn in_flight(&self) -> usize {
        self.load.load(Ordering::Acquire) & !LEAVING
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

/// One request that an instance is working on; it has ended when this is dropped.
#[derive(Debug)]
pub(crate) struct Entered(Arc<Instance>);

impl Entered {
    fn try_new(instance: &Arc<Instance>) -> Option<Self> {
        let before = instance.load.fetch_add(1, Ordering::AcqRel);
        // Dropping it takes the count back.
        let entered = Self(Arc::clone(instance));
        (before & LEAVING == 0).then_some(entered)
    }

    pub(crate) fn instance(&self) -> &Arc<Instance> {
        &self.0
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        if self.0.load.fetch_sub(1, Ordering::AcqRel) == LEAVING | 1 {
            self.0.drained.notify_waiters();
        }
    }
}

/// The instances of a release. A set never changes; another one takes its place.
#[derive(Debug)]
pub struct Instances {
    release: ReleaseId,
    all: Box<[Arc<Instance>]>,
    /// Where the next look for the least busy one begins.
    turn: AtomicUsize,
}

impl Instances {
    pub(crate) fn new(release: ReleaseId, all: impl IntoIterator<Item = Arc<Instance>>) -> Self {
        Self {
            release,
            all: all.into_iter().collect(),
            turn: AtomicUsize::new(0),
        }
    }

    /// A set of these addresses. Those that are in this set already stay what they are, with what
    /// they are working on; those that are not wanted any more are returned.
    pub(crate) fn succeed(&self, addresses: &[SocketAddr]) -> (Self, Self) {
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
        let leaving: Vec<_> = self.all.iter().filter(|it| !stays(it)).cloned().collect();
        let next = Self::new(self.release, all);
        (next, Self::new(self.release, leaving))
    }

    /// The release.
    pub fn release(&self) -> ReleaseId {
        self.release
    }

    /// Where they are.
    pub fn addresses(&self) -> impl Iterator<Item = SocketAddr> {
        self.all.iter().map(|instance| instance.address)
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// How many requests they are working on, upgraded connections included.
    pub fn in_flight(&self) -> usize {
        self.all.iter().map(|instance| instance.in_flight()).sum()
    }

    /// Waits until they are working on nothing; false when that is still not so after `limit`. For
    /// those that leave: others get new requests.
    pub async fn drained(&self, limit: Duration) -> bool {
        let all = async {
            for instance in &self.all {
                instance.drained().await;
            }
        };
        timeout(limit, all).await.is_ok()
    }

    pub(crate) fn leave(&self) {
        self.all.iter().for_each(|instance| instance.leave());
    }

    /// Gives a request to the instance that has the least to do; none when all of them leave or have
    /// been tried.
    pub(crate) fn enter(&self, tried: &[u64]) -> Option<Entered> {
        loop {
            let entered = Entered::try_new(self.least_busy(tried)?);
            // If it began to leave just now, the next look passes it over.
            if entered.is_some() {
                return entered;
            }
        }
    }

    fn least_busy(&self, tried: &[u64]) -> Option<&Arc<Instance>> {
        let turn = match self.all.len() {
            0 | 1 => 0,
            count => self.turn.fetch_add(1, Ordering::Relaxed) % count,
        };
        let (before, from) = self.all.split_at(turn);
        let candidates = from.iter().chain(before).filter(|instance| {
            !instance.is_leaving() && (tried.is_empty() || !tried.contains(&instance.number))
        });
        // The first of equals is taken, and whose turn it is to be first goes round.
        candidates.min_by_key(|instance| (instance.is_resting(), instance.in_flight()))
    }
}

fn now() -> u64 {
    millis(BEGINNING.elapsed())
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
        Instances::new(release, []).succeed(&addresses).0
    }

    fn port(entered: &Entered) -> u16 {
        entered.instance().address.port()
    }

    #[test]
    fn the_one_with_the_least_to_do_is_next_and_equals_take_turns() {
        let set = set(&[1, 2, 3]);
        let busy: Vec<_> = (0..6).map(|_| set.enter(&[]).unwrap()).collect();
        for wanted in 1..=3 {
            assert_eq!(busy.iter().filter(|it| port(it) == wanted).count(), 2);
        }
        let mut busy = busy;
        busy.retain(|it| port(it) != 2);
        assert_eq!(port(&set.enter(&[]).unwrap()), 2);
        assert_eq!(set.in_flight(), 4);
        drop(busy);
        let turns: Vec<_> = (0..6).map(|_| port(&set.enter(&[]).unwrap())).collect();
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
        let first = set.enter(&[]).unwrap();
        first.instance().rest();
        let number = first.instance().number;
        let second = set.enter(&[]).unwrap();
        for _ in 0..3 {
            assert_eq!(port(&set.enter(&[]).unwrap()), port(&second));
        }
        let both = [number, second.instance().number];
        assert!(set.enter(&both).is_none());
        assert_eq!(port(&set.enter(&both[1..]).unwrap()), port(&first));
    }

    #[test]
    fn nobody_comes_in_after_one_began_to_leave() {
        let set = set(&[1]);
        let instance = Arc::clone(set.enter(&[]).unwrap().instance());
        instance.leave();
        // As if it had been chosen just before.
        assert!(Entered::try_new(&instance).is_none());
        assert_eq!((instance.in_flight(), set.in_flight()), (0, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn those_that_stay_keep_their_requests_and_those_that_leave_can_be_awaited() {
        let before = set(&[1, 2]);
        let (one, two) = (before.enter(&[]).unwrap(), before.enter(&[]).unwrap());
        let (stays, goes) = if port(&one) == 1 {
            (one, two)
        } else {
            (two, one)
        };
        let (next, leaving) = before.succeed(&[address(1), address(3), address(3)]);
        leaving.leave();
        assert_eq!(
            next.addresses().collect::<Vec<_>>(),
            [address(1), address(3)]
        );
        assert_eq!((next.in_flight(), leaving.in_flight()), (1, 1));
        assert_eq!(leaving.addresses().collect::<Vec<_>>(), [address(2)]);
        // The old set still leads to the one that stays, and not to the other.
        assert_eq!(port(&before.enter(&[]).unwrap()), 1);
        assert!(!leaving.drained(Duration::from_secs(1)).await);
        let wait = tokio::join!(leaving.drained(Duration::from_mins(1)), async {
            tokio::time::sleep(Duration::from_secs(2)).await;
            drop(goes);
        });
        assert!(wait.0);
        assert!(leaving.enter(&[]).is_none());
        assert_eq!(leaving.in_flight(), 0);
        drop(stays);
    }
}
