//! File descriptors that several listeners share.
//!
//! A listener has a reserved number of connections. What it has beyond them comes out of a shared pool,
//! first come, first served. So a flood on one listener leaves each of the others its minimum, and a listener whose
//! neighbours are idle may use almost everything.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The descriptors that no listener has for itself. Clones share them.
#[derive(Debug, Clone)]
pub struct DescriptorPool {
    free: Arc<AtomicUsize>,
    size: usize,
}

/// What a listener may take of a [`DescriptorPool`].
#[derive(Debug, Clone)]
pub struct DescriptorShare {
    pool: DescriptorPool,
    reserved: usize,
    cost: usize,
}

impl DescriptorPool {
    /// A pool of so many descriptors.
    pub fn new(size: usize) -> Self {
        let free = Arc::new(AtomicUsize::new(size));
        Self { free, size }
    }

    /// The share of a listener that has `reserved` connections for itself. Each further one takes `cost` descriptors:
    /// two where a connection to an instance or a provider belongs to it.
    pub fn share(&self, reserved: usize, cost: usize) -> DescriptorShare {
        DescriptorShare {
            pool: self.clone(),
            reserved,
            cost: cost.max(1),
        }
    }
}

impl DescriptorShare {
    /// The connections that the listener can have while all others have none beyond their own.
    pub fn max_connections(&self) -> usize {
        self.reserved + self.pool.size / self.cost
    }

    /// Takes descriptors for one more connection of a listener that has `open`; false when there are none.
    pub(crate) fn try_acquire(&self, open: usize) -> bool {
        let take = |free: usize| free.checked_sub(self.cost);
        open < self.reserved
            || self
                .pool
                .free
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, take)
                .is_ok()
    }

    /// Gives back those of a connection that has ended, when `open` are left.
    pub(crate) fn release(&self, open: usize) {
        if open >= self.reserved {
            self.pool.free.fetch_add(self.cost, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_reserved_is_nobody_elses_and_the_rest_is_shared() {
        let pool = DescriptorPool::new(5);
        let (cheap, dear) = (pool.share(2, 1), pool.share(1, 2));
        assert_eq!((cheap.max_connections(), dear.max_connections()), (7, 3));
        assert!((0..7).all(|open| cheap.try_acquire(open)));
        assert!(!cheap.try_acquire(7), "the pool is empty");
        assert!(dear.try_acquire(0), "its own");
        assert!(!dear.try_acquire(1));
        cheap.release(6);
        assert!(!dear.try_acquire(1), "one is not enough");
        cheap.release(5);
        assert!(dear.try_acquire(1));
        dear.release(1);
        // Those that were its own go back to nobody else.
        dear.release(0);
        assert_eq!(pool.free.load(Ordering::Relaxed), 2);
    }
}
