//! Buffers for what does not outlive a turn, a few per thread. Those of a connection are in no cache of the
//! processor when its turn comes, and would wait in memory meanwhile.

use std::cell::RefCell;

/// So many are kept; more are never used at once.
const MOST: usize = 4;
/// What has become larger is not kept.
const LARGEST: usize = 64 * 1024;
/// What one begins with.
const ROOM: usize = 16 * 1024;

thread_local! {
    static SPARES: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

/// An empty buffer with some room.
pub fn take() -> Vec<u8> {
    let spare = SPARES.with_borrow_mut(Vec::pop);
    spare.unwrap_or_else(|| Vec::with_capacity(ROOM))
}

/// Gives a buffer back, with whatever is in it.
pub fn give_back(mut buffer: Vec<u8>) {
    if !(ROOM..=LARGEST).contains(&buffer.capacity()) {
        return;
    }
    buffer.clear();
    SPARES.with_borrow_mut(|spares| {
        if spares.len() < MOST {
            spares.push(buffer);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_given_back_is_empty_and_used_again() {
        let (mut first, second) = (take(), take());
        first.extend_from_slice(b"x");
        let places = [first.as_ptr(), second.as_ptr()];
        assert_ne!(places[0], places[1]);
        give_back(second);
        give_back(first);
        let again = [take(), take()];
        assert_eq!(again.each_ref().map(Vec::as_ptr), places);
        assert!(again.iter().all(Vec::is_empty));
    }

    #[test]
    fn neither_many_nor_large_ones_are_kept() {
        give_back(Vec::with_capacity(LARGEST + 1));
        give_back(Vec::new());
        (0..2 * MOST).for_each(|_| give_back(Vec::with_capacity(ROOM)));
        assert_eq!(SPARES.with_borrow(Vec::len), MOST);
        assert_eq!(take().capacity(), ROOM);
    }
}
