//! File descriptors that several listeners and the sockets of their upstreams share.
//!
//! Each holder has a reserved number of connections. What it has beyond them comes out of a shared pool, first come,
//! first served. So a flood on one listener leaves each of the others its minimum, and a listener whose neighbours are
//! idle may use almost everything. When the pool is empty, whoever has more than its minimum closes idle connections.

use estrade_model::sync::MutexExt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};

/// A holder of descriptors that can do with fewer.
pub(crate) trait EvictIdle: Send + Sync {
    /// Closes some idle connections, if it has more than are reserved for it.
    fn evict_idle(&self);
}

/// The descriptors that nobody has reserved. Clones share them.
#[derive(Debug, Clone)]
pub struct DescriptorPool {
    free: Arc<AtomicUsize>,
    size: usize,
    holders: Arc<Mutex<Vec<Weak<dyn EvictIdle>>>>,
}

/// What one holder, such as a listener, may take of a [`DescriptorPool`].
#[derive(Debug, Clone)]
pub struct DescriptorShare {
    pool: DescriptorPool,
    reserved: usize,
    cost: usize,
}

impl DescriptorPool {
    /// A pool of so many descriptors.
    pub fn new(size: usize) -> Self {
        Self {
            free: Arc::new(AtomicUsize::new(size)),
            size,
            holders: Arc::default(),
        }
    }

    /// The share of a holder that has `reserved` connections for itself. Each further one takes `cost` descriptors.
    pub fn share(&self, reserved: usize, cost: usize) -> DescriptorShare {
        DescriptorShare {
            pool: self.clone(),
            reserved,
            cost: cost.max(1),
        }
    }
}

impl DescriptorShare {
    /// Makes the idle connections of a holder available to others.
    pub(crate) fn register(&self, holder: Weak<dyn EvictIdle>) {
        let mut holders = self.pool.holders.lock_ignoring_poison();
        holders.retain(|holder| holder.strong_count() > 0);
        holders.push(holder);
    }

    /// Asks all holders to close idle connections. The caller must hold none of their locks.
    pub(crate) fn evict_idle(&self) {
        let holders: Vec<_> = {
            let holders = self.pool.holders.lock_ignoring_poison();
            holders.iter().filter_map(Weak::upgrade).collect()
        };
        for holder in holders {
            holder.evict_idle();
        }
    }

    /// The connections that are reserved for it.
    pub(crate) fn reserved(&self) -> usize {
        self.reserved
    }

    /// The connections that it can have while all others have none beyond their own.
    pub fn max_connections(&self) -> usize {
        self.reserved + self.pool.size / self.cost
    }

    /// Takes descriptors for one more connection of a holder that has `open`; false when there are none.
    pub(crate) fn try_acquire(&self, open: usize) -> bool {
        let take = |free: usize| free.checked_sub(self.cost);
        open < self.reserved
            || self
                .pool
                .free
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, take)
                .is_ok()
    }

    /// Whether less than a `part` (as of one half, one quarter) of what is shared is free.
    pub(crate) fn has_less_than(&self, part: usize) -> bool {
        self.pool.free.load(Ordering::Relaxed) < self.pool.size / part
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
