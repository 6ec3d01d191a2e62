//! A table from small ids to reference-counted values: append-only, read without a lock.
//!
//! Invariant: an id is never reused. An id that outlives its value (in the response cache) resolves to
//! nothing, and never to another value.
//!
//! It is what lets an entry of the response cache be one cache line: two ids take 8 bytes, need no count of references
//! on the way, and are followed only on a hit. It has no measurement apart from that of the response cache.

use arc_swap::{ArcSwapAny, Guard, RefCnt};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// Slots that are allocated at once…
const CHUNK_SIZE: u32 = 4096;
/// …and how often: 2^20 ids in all.
const MAX_CHUNKS: u32 = 256;

type Chunk<R> = Box<[ArcSwapAny<R>]>;

/// Chunks are allocated on demand and never moved, so a reader needs no lock. When the ids are used up,
/// later values get none and are simply not cached.
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
    /// Assigns the next id; none when they are used up.
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

    pub(crate) fn get(&self, id: u32) -> Option<Guard<R>> {
        self.slot(id).map(ArcSwapAny::load)
    }

    /// Replaces the value of an id, for example by nothing.
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
