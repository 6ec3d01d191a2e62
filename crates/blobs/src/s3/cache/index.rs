//! What the cache holds and in which order it was used.

use std::collections::{BTreeMap, HashMap};

use foldhash::fast::RandomState;

use crate::ObjectId;

/// One cached object.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub(super) hash: blake3::Hash,
    pub(super) size: u64,
    /// Whether its file was compared with its hash since this process began.
    pub(super) is_verified: bool,
    /// Tells it from an entry of the same object that came later.
    pub(super) generation: u64,
    last_use: u64,
}

/// Least recently used goes first.
#[derive(Debug, Default)]
pub(super) struct Index {
    entries: HashMap<ObjectId, Entry, RandomState>,
    by_use: BTreeMap<u64, ObjectId>,
    /// Counts uses and generations.
    tick: u64,
    pub(super) bytes: u64,
    /// For objects that are arriving.
    reserved: u64,
}

impl Index {
    /// Finds an object and counts that as a use.
    pub(super) fn find(&mut self, id: ObjectId) -> Option<Entry> {
        self.tick += 1;
        let entry = self.entries.get_mut(&id)?;
        self.by_use.remove(&entry.last_use);
        self.by_use.insert(self.tick, id);
        entry.last_use = self.tick;
        Some(*entry)
    }

    /// Adds an object, for which there is room.
    pub(super) fn insert(
        &mut self,
        id: ObjectId,
        hash: blake3::Hash,
        size: u64,
        is_verified: bool,
    ) {
        self.remove(id);
        self.tick += 1;
        let entry = Entry {
            hash,
            size,
            is_verified,
            generation: self.tick,
            last_use: self.tick,
        };
        self.entries.insert(id, entry);
        self.by_use.insert(self.tick, id);
        self.bytes += size;
    }

    pub(super) fn set_verified(&mut self, id: ObjectId, generation: u64) {
        if let Some(entry) = self.entries.get_mut(&id)
            && entry.generation == generation
        {
            entry.is_verified = true;
        }
    }

    pub(super) fn remove(&mut self, id: ObjectId) -> Option<Entry> {
        let entry = self.entries.remove(&id)?;
        self.by_use.remove(&entry.last_use);
        self.bytes -= entry.size;
        Some(entry)
    }

    /// Removes an entry unless another one took its place.
    pub(super) fn remove_generation(&mut self, id: ObjectId, generation: u64) -> bool {
        let is_same = |entry: &Entry| entry.generation == generation;
        self.entries.get(&id).is_some_and(is_same) && self.remove(id).is_some()
    }

    /// Takes room for an object that arrives; returns what has to go for it, or none if there is no room.
    pub(super) fn reserve(&mut self, size: u64, capacity: u64) -> Option<Vec<(ObjectId, Entry)>> {
        let reserved = self.reserved.saturating_add(size);
        if size > capacity || (self.reserved > 0 && reserved > capacity / 2) {
            return None;
        }
        self.reserved = reserved;
        Some(self.evict(capacity - reserved))
    }

    /// Makes room because the disk is full: a quarter of what there is.
    pub(super) fn shrink(&mut self) -> Vec<(ObjectId, Entry)> {
        self.evict(self.bytes - self.bytes / 4)
    }

    /// Adds an object that has arrived in reserved room. Others that arrive at the same time may have taken more than
    /// there is: then something goes, but not this one.
    pub(super) fn insert_reserved(
        &mut self,
        id: ObjectId,
        hash: blake3::Hash,
        size: u64,
        capacity: u64,
    ) -> Vec<(ObjectId, Entry)> {
        self.release(size);
        self.insert(id, hash, size, true);
        self.evict(capacity)
    }

    fn evict(&mut self, capacity: u64) -> Vec<(ObjectId, Entry)> {
        let mut evicted = Vec::new();
        while self.bytes > capacity {
            let Some((_, &id)) = self.by_use.first_key_value() else {
                break;
            };
            evicted.extend(self.remove(id).map(|entry| (id, entry)));
        }
        evicted
    }

    pub(super) fn release(&mut self, size: u64) {
        self.reserved -= size;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BlobError, UniqueId};

    #[test]
    fn what_was_not_used_for_longest_goes_first() -> Result<(), BlobError> {
        let mut index = Index::default();
        let hash = blake3::hash(b"");
        let ids = [(); 3].map(|()| UniqueId::new().map(ObjectId::File));
        let [a, b, c] = ids;
        let (a, b, c) = (a?, b?, c?);
        for id in [a, b, c] {
            index.insert(id, hash, 10, true);
        }
        assert!(index.find(a).is_some());
        let ids = |evicted: Vec<(ObjectId, Entry)>| -> Vec<_> {
            evicted.into_iter().map(|(id, _)| id).collect()
        };
        assert_eq!(index.reserve(5, 30).map(ids), Some(vec![b]));
        assert_eq!(index.reserve(10, 30).map(ids), Some(vec![c]));
        assert!(index.reserve(1, 30).is_none(), "half of it arrives already");
        index.release(15);
        assert_eq!((index.bytes, index.reserved), (10, 0));
        assert!(index.find(b).is_none() && index.find(a).is_some());
        Ok(())
    }

    #[test]
    fn a_quarter_goes_when_the_disk_is_full() -> Result<(), BlobError> {
        let mut index = Index::default();
        assert!(index.shrink().is_empty());
        for _ in 0..8 {
            let id = ObjectId::File(UniqueId::new()?);
            index.insert(id, blake3::hash(b""), 10, true);
        }
        assert_eq!(index.shrink().len(), 2);
        while index.bytes > 10 {
            assert!(!index.shrink().is_empty());
        }
        assert_eq!(index.shrink().len(), 1);
        Ok(())
    }

    #[test]
    fn a_later_entry_is_not_taken_for_an_earlier_one() -> Result<(), BlobError> {
        let mut index = Index::default();
        let id = ObjectId::File(UniqueId::new()?);
        index.insert(id, blake3::hash(b""), 10, false);
        let before = index.find(id).map_or(0, |it| it.generation);
        index.insert(id, blake3::hash(b""), 10, false);
        index.set_verified(id, before);
        assert!(!index.remove_generation(id, before));
        assert!(index.find(id).is_some_and(|it| !it.is_verified));
        assert_eq!(index.bytes, 10);
        Ok(())
    }
}
