//! The routing table: host names and what they lead to.
//!
//! Readers take no lock: they look at a snapshot. A writer replaces the snapshot of one of many
//! shards, so that a change among 100,000 names copies a few hundred of them.

use arc_swap::ArcSwap;
use estrade_model::sync::MutexExt;
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex};

const SHARDS: usize = 256;

type Names<V> = HashMap<Box<str>, Arc<V>>;

/// Values by name.
pub(crate) struct NameTable<V> {
    shards: Box<[ArcSwap<Names<V>>]>,
    hasher: RandomState,
    /// Serialises writers: two concurrent copies of a shard would undo each other.
    writing: Mutex<()>,
}

impl<V> Default for NameTable<V> {
    fn default() -> Self {
        Self {
            shards: (0..SHARDS).map(|_| ArcSwap::default()).collect(),
            hasher: RandomState::new(),
            writing: Mutex::new(()),
        }
    }
}

impl<V> NameTable<V> {
    /// What a name leads to.
    pub(crate) fn get(&self, name: &str) -> Option<Arc<V>> {
        self.shard(name).load().get(name).cloned()
    }

    /// Removes a name, if it still leads to `value`.
    pub(crate) fn remove(&self, name: &str, value: &Arc<V>) {
        self.change(name, |names| {
            if names.get(name).is_some_and(|it| Arc::ptr_eq(it, value)) {
                names.remove(name);
            }
        });
    }

    /// Adds many at once, copying each shard once.
    pub(crate) fn extend(&self, values: impl IntoIterator<Item = (Box<str>, Arc<V>)>) {
        let mut by_shard: HashMap<usize, Vec<_>> = HashMap::new();
        for (name, value) in values {
            by_shard
                .entry(self.shard_of(&name))
                .or_default()
                .push((name, value));
        }
        let _writing = self.writing.lock_ignoring_poison();
        for (shard, values) in by_shard {
            let mut names = Names::clone(&self.shards[shard].load());
            names.extend(values);
            self.shards[shard].store(Arc::new(names));
        }
    }

    fn change(&self, name: &str, change: impl FnOnce(&mut Names<V>)) {
        let _writing = self.writing.lock_ignoring_poison();
        let shard = self.shard(name);
        let mut names = Names::clone(&shard.load());
        change(&mut names);
        shard.store(Arc::new(names));
    }

    fn shard(&self, name: &str) -> &ArcSwap<Names<V>> {
        &self.shards[self.shard_of(name)]
    }

    fn shard_of(&self, name: &str) -> usize {
        usize::try_from(self.hasher.hash_one(name) % SHARDS as u64).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_and_go() {
        let table = NameTable::default();
        let (one, two) = (Arc::new(1), Arc::new(2));
        table.extend((0..1000).map(|n| (format!("n{n}").into(), Arc::new(n))));
        table.extend([("a".into(), Arc::clone(&one))]);
        assert_eq!(table.get("a").as_deref(), Some(&1));
        assert_eq!(table.get("n999").as_deref(), Some(&999));
        table.extend([("a".into(), Arc::clone(&two))]);
        table.remove("a", &one);
        assert_eq!(table.get("a").as_deref(), Some(&2));
        table.remove("a", &two);
        assert_eq!(table.get("a"), None);
    }
}
