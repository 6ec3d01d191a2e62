//! A number of slots that are shared fairly by key.
//!
//! A plain semaphore is first come, first served, so that one owner with many requests holds all of it.
//! Here a key holds at most a part, and a slot that becomes free goes to the waiting key that holds
//! the fewest.

use estrade_model::sync::MutexExt;
use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard};
use tokio::sync::oneshot;

/// Part of the slots that one key may hold: with fewer, a few keys are needed to hold all.
const SHARE: usize = 4;

#[derive(Debug)]
pub struct FairSlots<K: Copy + Eq + Hash>(Arc<Inner<K>>);

impl<K: Copy + Eq + Hash> Clone for FairSlots<K> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

#[derive(Debug)]
struct Inner<K: Copy + Eq + Hash> {
    max_per_key: usize,
    state: Mutex<State<K>>,
}

#[derive(Debug)]
struct State<K: Copy + Eq + Hash> {
    free: usize,
    held: HashMap<K, usize>,
    /// In order of arrival. Waiters that were dropped are removed when the queue is next scanned.
    waiting: Vec<(K, oneshot::Sender<Slot<K>>)>,
}

/// A slot that is held; dropping it passes it on.
#[derive(Debug)]
pub struct Slot<K: Copy + Eq + Hash> {
    slots: Arc<Inner<K>>,
    key: K,
}

impl<K: Copy + Eq + Hash> FairSlots<K> {
    /// So many slots, of which a key holds at most a quarter, and at least one.
    pub fn new(slots: usize) -> Self {
        Self(Arc::new(Inner {
            max_per_key: (slots / SHARE).max(1),
            state: Mutex::new(State {
                free: slots,
                held: HashMap::new(),
                waiting: Vec::new(),
            }),
        }))
    }

    /// Whether a key holds as many as it may.
    pub fn has_its_share(&self, key: K) -> bool {
        let held = self.0.lock().held.get(&key).copied();
        held.is_some_and(|held| held >= self.0.max_per_key)
    }

    /// Waits for a slot. To stop waiting, drop the future.
    pub async fn acquire(&self, key: K) -> Slot<K> {
        loop {
            let (sender, receiver) = oneshot::channel();
            self.0.lock().waiting.push((key, sender));
            self.0.dispatch();
            // The sender is only dropped with the queue, which we hold.
            if let Ok(slot) = receiver.await {
                return slot;
            }
        }
    }
}

impl<K: Copy + Eq + Hash> Inner<K> {
    fn lock(&self) -> MutexGuard<'_, State<K>> {
        self.state.lock_ignoring_poison()
    }

    /// Gives free slots to waiters.
    fn dispatch(self: &Arc<Self>) {
        while let Some((key, sender)) = self.take_next() {
            self.give(key, sender);
        }
    }

    /// The lock is released with this function: [`give`](Self::give) drops a slot whose waiter is gone, which
    /// takes the lock, and a guard in the head of a loop would live through its body.
    fn take_next(&self) -> Option<(K, oneshot::Sender<Slot<K>>)> {
        self.lock().take_next(self.max_per_key)
    }

    fn give(self: &Arc<Self>, key: K, sender: oneshot::Sender<Slot<K>>) {
        let slots = Arc::clone(self);
        drop(sender.send(Slot { slots, key }));
    }
}

impl<K: Copy + Eq + Hash> State<K> {
    /// The one that is next, with a slot counted as its own.
    fn take_next(&mut self, max_per_key: usize) -> Option<(K, oneshot::Sender<Slot<K>>)> {
        self.waiting.retain(|(_, sender)| !sender.is_closed());
        if self.free == 0 {
            return None;
        }
        let held = |key: &K| self.held.get(key).copied().unwrap_or_default();
        let waiting = self.waiting.iter().enumerate();
        let waiting = waiting.map(|(at, (key, _))| (held(key), at));
        let (_, at) = waiting.filter(|(held, _)| *held < max_per_key).min()?;
        let (key, sender) = self.waiting.remove(at);
        self.free -= 1;
        *self.held.entry(key).or_default() += 1;
        Some((key, sender))
    }
}

impl<K: Copy + Eq + Hash> Drop for Slot<K> {
    fn drop(&mut self) {
        {
            let mut state = self.slots.lock();
            state.free += 1;
            if let Some(held) = state.held.get_mut(&self.key) {
                *held -= 1;
                if *held == 0 {
                    state.held.remove(&self.key);
                }
            }
        }
        self.slots.dispatch();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    #[test]
    fn a_slot_that_nobody_takes_any_more_is_free_again() {
        let slots = FairSlots::<u8>::new(1);
        let (sender, receiver) = oneshot::channel();
        slots.0.lock().waiting.push((1, sender));
        let (key, sender) = slots.0.take_next().unwrap();
        // Gone between the look at the queue and the slot.
        drop(receiver);
        slots.0.give(key, sender);
        assert_eq!(slots.0.lock().free, 1);
    }

    #[tokio::test]
    async fn one_key_holds_a_part_and_the_next_slot_is_for_who_has_least() {
        let slots = FairSlots::new(8);
        let mut greedy: Vec<_> = Vec::new();
        for _ in 0..2 {
            greedy.push(slots.acquire('a').await);
        }
        let mut third = Box::pin(slots.acquire('a'));
        assert!(third.as_mut().now_or_never().is_none(), "its part is taken");
        let others: Vec<_> = "bbccdd".chars().map(|key| slots.acquire(key)).collect();
        let mut others = futures_util::future::join_all(others).await;
        let mut newcomer = Box::pin(slots.acquire('e'));
        assert!(newcomer.as_mut().now_or_never().is_none());
        // Both wait: the first came earlier, the second has nothing yet.
        greedy.pop();
        let _held = newcomer.await;
        assert!(third.as_mut().now_or_never().is_none());
        others.pop();
        third.await;
    }

    #[tokio::test]
    async fn who_gave_up_is_passed_over() {
        let slots = FairSlots::new(1);
        let held = slots.acquire('a').await;
        let mut gave_up = Box::pin(slots.acquire('b'));
        assert!(gave_up.as_mut().now_or_never().is_none());
        let mut waits = Box::pin(slots.acquire('c'));
        assert!(waits.as_mut().now_or_never().is_none());
        drop(gave_up);
        drop(held);
        drop(waits.await);
        drop(slots.acquire('a').await);
    }
}
