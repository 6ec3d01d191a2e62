//! Thread-local pool of buffers for work that ends within one poll.
//!
//! Between two polls of a connection everything else has passed through the caches of the processor, so a buffer of its
//! own would be fetched from memory each time and held there meanwhile; those of the thread stay in the cache. With it
//! and the stream as a task of its own an event costs 0.971 to 0.979 × of before, which alone would not pay, and 5,000
//! streams are held in 83 MiB instead of 97, which does (`./bench gateway --only streams --rounds 20 --before FILE`).
//!
//! Invariant: who awaits something holds no buffer of the pool, unless there are bytes in it.

use std::cell::RefCell;

/// Buffers that a thread keeps; more are never used at once.
const MAX_POOLED: usize = 4;
/// A buffer that has grown beyond this is freed: one large message must not hold memory for ever.
const MAX_CAPACITY: usize = 64 * 1024;
/// Capacity of a new buffer.
const INITIAL_CAPACITY: usize = 16 * 1024;

thread_local! {
    static POOL: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

/// An empty buffer with some capacity.
#[inline]
pub fn acquire() -> Vec<u8> {
    let pooled = POOL.with_borrow_mut(Vec::pop);
    pooled.unwrap_or_else(|| Vec::with_capacity(INITIAL_CAPACITY))
}

/// Gives a buffer back; what is in it is discarded.
#[inline]
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
