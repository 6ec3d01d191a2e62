//! Buffers for what does not outlive a turn, a few per thread. Those of a connection are in no cache of the
//! processor when its turn comes, and would wait in memory meanwhile.

use std::cell::RefCell;

/// So many are kept; more are never used at once.
const MAX_POOLED: usize = 4;
/// What has become larger is not kept.
const MAX_CAPACITY: usize = 64 * 1024;
/// What one begins with.
const INITIAL_CAPACITY: usize = 16 * 1024;

thread_local! {
    static POOL: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

/// An empty buffer with some room.
pub fn acquire() -> Vec<u8> {
    let pooled = POOL.with_borrow_mut(Vec::pop);
    pooled.unwrap_or_else(|| Vec::with_capacity(INITIAL_CAPACITY))
}

/// Gives a buffer back, with whatever is in it.
pub fn release(mut buffer: Vec<u8>) {
    if !(INITIAL_CAPACITY..=MAX_CAPACITY).contains(&buffer.capacity()) {
        return;
    }
    buffer.clear();
    POOL.with_borrow_mut(|pool| {
        if pool.len() < MAX_POOLED {
            pool.push(buffer);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_given_back_is_empty_and_used_again() {
        let (mut first, second) = (acquire(), acquire());
        first.extend_from_slice(b"x");
        let places = [first.as_ptr(), second.as_ptr()];
        assert_ne!(places[0], places[1]);
        release(second);
        release(first);
        let again = [acquire(), acquire()];
        assert_eq!(again.each_ref().map(Vec::as_ptr), places);
        assert!(again.iter().all(Vec::is_empty));
    }

    #[test]
    fn neither_many_nor_large_ones_are_kept() {
        release(Vec::with_capacity(MAX_CAPACITY + 1));
        release(Vec::new());
        (0..2 * MAX_POOLED).for_each(|_| release(Vec::with_capacity(INITIAL_CAPACITY)));
        assert_eq!(POOL.with_borrow(Vec::len), MAX_POOLED);
        assert_eq!(acquire().capacity(), INITIAL_CAPACITY);
    }
}
