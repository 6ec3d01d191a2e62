//! Things by number, for who remembers very many of them in few bytes each.

use arc_swap::{ArcSwapAny, Guard, RefCnt};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// Room is made for so many at once…
const CHUNK_SIZE: u32 = 4096;
/// …and so often.
const MAX_CHUNKS: u32 = 256;

type Chunk<R> = Box<[ArcSwapAny<R>]>;

/// A list that only grows, and is read without a lock. No number is given to two things, so one that is
/// remembered for too long leads to nothing, and never to something else. There are a million: who comes
/// later gets none.
pub(crate) struct IdTable<R: RefCnt> {
    chunks: Box<[OnceLock<Chunk<R>>]>,
    next: AtomicU32,
}

impl<R: RefCnt> Default for IdTable<R> {
    fn default() -> Self {
        Self {
            chunks: (0..MAX_CHUNKS).map(|_| OnceLock::new()).collect(),
            next: AtomicU32::new(0),
        }
    }
}

impl<R: RefCnt + Default> IdTable<R> {
    /// Gives it a number; none when there are no more.
    pub(crate) fn add(&self, it: R) -> Option<u32> {
        let next = |next: u32| (next < CHUNK_SIZE * MAX_CHUNKS).then(|| next + 1);
        let id = self
            .next
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, next)
            .ok()?;
        let chunk = self.chunks.get((id / CHUNK_SIZE) as usize)?;
        let chunk = chunk.get_or_init(|| (0..CHUNK_SIZE).map(|_| ArcSwapAny::default()).collect());
        chunk.get((id % CHUNK_SIZE) as usize)?.store(it);
        Some(id)
    }

    /// What has this number.
    pub(crate) fn get(&self, id: u32) -> Option<Guard<R>> {
        self.slot(id).map(ArcSwapAny::load)
    }

    /// From now on this has the number, or nothing.
    pub(crate) fn set(&self, id: u32, it: R) {
        if let Some(slot) = self.slot(id) {
            slot.store(it);
        }
    }

    fn slot(&self, id: u32) -> Option<&ArcSwapAny<R>> {
        let chunk = self.chunks.get((id / CHUNK_SIZE) as usize)?.get()?;
        chunk.get((id % CHUNK_SIZE) as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn what_has_a_number_is_found_until_it_is_taken_away() {
        let table: IdTable<Option<Arc<u32>>> = IdTable::default();
        let ids: Vec<u32> = (0..CHUNK_SIZE * 2 + 3)
            .map(|it| table.add(Some(Arc::new(it))).unwrap())
            .collect();
        let get = |id: u32| table.get(id).and_then(|it| it.as_deref().copied());
        for (it, id) in ids.iter().enumerate() {
            assert_eq!(get(*id), u32::try_from(it).ok());
        }
        table.set(ids[CHUNK_SIZE as usize], None);
        assert_eq!(get(ids[CHUNK_SIZE as usize]), None);
        let next = table.add(Some(Arc::new(7))).unwrap();
        assert_eq!((next, get(next)), (CHUNK_SIZE * 2 + 3, Some(7)));
        assert_eq!((get(next + 1), get(u32::MAX)), (None, None));
    }

    #[test]
    fn numbers_come_to_an_end() {
        let table: IdTable<Option<Arc<u32>>> = IdTable::default();
        table
            .next
            .store(CHUNK_SIZE * MAX_CHUNKS - 1, Ordering::Relaxed);
        assert_eq!(
            table.add(Some(Arc::new(1))),
            Some(CHUNK_SIZE * MAX_CHUNKS - 1)
        );
        assert_eq!(table.add(Some(Arc::new(2))), None);
        assert_eq!(table.add(Some(Arc::new(3))), None);
    }
}
