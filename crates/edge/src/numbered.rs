//! Things by number, for who remembers very many of them in few bytes each.

use arc_swap::{ArcSwapAny, Guard, RefCnt};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// Room is made for so many at once…
const CHUNK: u32 = 4096;
/// …and so often.
const CHUNKS: u32 = 256;

type Chunk<R> = Box<[ArcSwapAny<R>]>;

/// A list that only grows, and is read without a lock. No number is given to two things, so one that is
/// remembered for too long leads to nothing, and never to something else. There are a million: who comes
/// later gets none.
pub(crate) struct Numbered<R: RefCnt> {
    chunks: Box<[OnceLock<Chunk<R>>]>,
    next: AtomicU32,
}

impl<R: RefCnt> Default for Numbered<R> {
    fn default() -> Self {
        Self {
            chunks: (0..CHUNKS).map(|_| OnceLock::new()).collect(),
            next: AtomicU32::new(0),
        }
    }
}

impl<R: RefCnt + Default> Numbered<R> {
    /// Gives it a number; none when there are no more.
    pub(crate) fn add(&self, it: R) -> Option<u32> {
        let next = |next: u32| (next < CHUNK * CHUNKS).then(|| next + 1);
        let number = self
            .next
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, next)
            .ok()?;
        let chunk = self.chunks.get((number / CHUNK) as usize)?;
        let chunk = chunk.get_or_init(|| (0..CHUNK).map(|_| ArcSwapAny::default()).collect());
        chunk.get((number % CHUNK) as usize)?.store(it);
        Some(number)
    }

    /// What has this number.
    pub(crate) fn get(&self, number: u32) -> Option<Guard<R>> {
        self.place(number).map(ArcSwapAny::load)
    }

    /// From now on this has the number, or nothing.
    pub(crate) fn set(&self, number: u32, it: R) {
        if let Some(place) = self.place(number) {
            place.store(it);
        }
    }

    fn place(&self, number: u32) -> Option<&ArcSwapAny<R>> {
        let chunk = self.chunks.get((number / CHUNK) as usize)?.get()?;
        chunk.get((number % CHUNK) as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn what_has_a_number_is_found_until_it_is_taken_away() {
        let numbered: Numbered<Option<Arc<u32>>> = Numbered::default();
        let numbers: Vec<u32> = (0..CHUNK * 2 + 3)
            .map(|it| numbered.add(Some(Arc::new(it))).unwrap())
            .collect();
        let get = |number: u32| numbered.get(number).and_then(|it| it.as_deref().copied());
        for (it, number) in numbers.iter().enumerate() {
            assert_eq!(get(*number), u32::try_from(it).ok());
        }
        numbered.set(numbers[CHUNK as usize], None);
        assert_eq!(get(numbers[CHUNK as usize]), None);
        let next = numbered.add(Some(Arc::new(7))).unwrap();
        assert_eq!((next, get(next)), (CHUNK * 2 + 3, Some(7)));
        assert_eq!((get(next + 1), get(u32::MAX)), (None, None));
    }

    #[test]
    fn numbers_come_to_an_end() {
        let numbered: Numbered<Option<Arc<u32>>> = Numbered::default();
        numbered.next.store(CHUNK * CHUNKS - 1, Ordering::Relaxed);
        assert_eq!(numbered.add(Some(Arc::new(1))), Some(CHUNK * CHUNKS - 1));
        assert_eq!(numbered.add(Some(Arc::new(2))), None);
        assert_eq!(numbered.add(Some(Arc::new(3))), None);
    }
}
