//! A number of permits, of which one key may hold a part.
//!
//! A plain semaphore is first come, first served: one owner could hold all of it for as long as it likes.

use crate::sync::MutexExt;
use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard};

/// Part of all permits that keys with more than their part leave to others.
const LEFT_PART: usize = 4;

/// The permits. Clones share them.
#[derive(Debug)]
pub struct KeyedLimit<K: Copy + Eq + Hash>(Arc<Inner<K>>);

impl<K: Copy + Eq + Hash> Clone for KeyedLimit<K> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

#[derive(Debug)]
struct Inner<K> {
    max: usize,
    max_per_key: usize,
    /// While fewer are held in all, a key may have more than its part.
    shared: usize,
    held: Mutex<Held<K>>,
}

#[derive(Debug)]
struct Held<K> {
    all: usize,
    keys: HashMap<K, usize>,
}

/// Which limit is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LimitReached {
    OfKey,
    OfAll,
}

/// One permit, until it is dropped.
#[derive(Debug)]
pub struct KeyedPermit<K: Copy + Eq + Hash> {
    limit: Arc<Inner<K>>,
    key: K,
}

impl<K: Copy + Eq + Hash> KeyedLimit<K> {
    pub fn new(max: usize, max_per_key: usize) -> Self {
        Self::with_shared(max, max_per_key, 0)
    }

    /// A key may have more than `max_per_key` for as long as a quarter of all permits is free.
    pub fn new_soft(max: usize, max_per_key: usize) -> Self {
        Self::with_shared(max, max_per_key, max - max / LEFT_PART)
    }

    fn with_shared(max: usize, max_per_key: usize, shared: usize) -> Self {
        Self(Arc::new(Inner {
            max,
            max_per_key,
            shared,
            held: Mutex::new(Held {
                all: 0,
                keys: HashMap::new(),
            }),
        }))
    }

    pub fn try_acquire(&self, key: K) -> Result<KeyedPermit<K>, LimitReached> {
        let mut held = self.0.held();
        let own = held.keys.get(&key).copied().unwrap_or(0);
        if own >= self.0.max_per_key && held.all >= self.0.shared {
            return Err(LimitReached::OfKey);
        }
        if held.all >= self.0.max {
            return Err(LimitReached::OfAll);
        }
        held.all += 1;
        held.keys.insert(key, own + 1);
        drop(held);
        let limit = Arc::clone(&self.0);
        Ok(KeyedPermit { limit, key })
    }
}

impl<K> Inner<K> {
    fn held(&self) -> MutexGuard<'_, Held<K>> {
        self.held.lock_ignoring_poison()
    }
}

impl<K: Copy + Eq + Hash> Drop for KeyedPermit<K> {
    fn drop(&mut self) {
        let mut held = self.limit.held();
        held.all -= 1;
        if let Some(own) = held.keys.get_mut(&self.key) {
            *own -= 1;
            if *own == 0 {
                held.keys.remove(&self.key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_key_leaves_permits_for_others_and_all_have_a_limit() {
        let limit = KeyedLimit::new(5, 2);
        let mut held = Vec::new();
        for key in ['a', 'b'] {
            held.extend((0..2).map(|_| limit.try_acquire(key).unwrap()));
            assert_eq!(limit.try_acquire(key).unwrap_err(), LimitReached::OfKey);
        }
        held.push(limit.try_acquire('c').unwrap());
        assert_eq!(limit.try_acquire('d').unwrap_err(), LimitReached::OfAll);
        held.remove(0);
        drop(limit.clone().try_acquire('a').unwrap());
        drop(held);
        let left = limit.0.held();
        assert!(left.all == 0 && left.keys.is_empty());
    }

    #[test]
    fn a_key_may_have_what_is_free_but_for_a_quarter() {
        let limit = KeyedLimit::new_soft(8, 2);
        let mut held: Vec<_> = (0..6).map(|_| limit.try_acquire('a').unwrap()).collect();
        assert_eq!(limit.try_acquire('a').unwrap_err(), LimitReached::OfKey);
        held.extend((0..2).map(|_| limit.try_acquire('b').unwrap()));
        assert_eq!(limit.try_acquire('c').unwrap_err(), LimitReached::OfAll);
        // What the first gives back is for others, until a quarter is free again.
        held.drain(..2);
        assert_eq!(limit.try_acquire('a').unwrap_err(), LimitReached::OfKey);
        assert_eq!(limit.try_acquire('b').unwrap_err(), LimitReached::OfKey);
        held.push(limit.try_acquire('c').unwrap());
        held.drain(..2);
        held.push(limit.try_acquire('a').unwrap());
        assert_eq!(limit.try_acquire('a').unwrap_err(), LimitReached::OfKey);
    }
}
