//! A bounded cache of live state that never serves what a change has made stale.

use crate::Result;
use estrade_model::Id;
use estrade_model::sync::MutexExt;
use estrade_store::{Change, ChangeKind, Db};
use quick_cache::sync::Cache;
use std::future::Future;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard};

/// State by key, loaded on first use and invalidated by the change feed. Absence is not cached.
pub(crate) struct StateCache<K, V> {
    cache: Cache<K, Arc<V>>,
    /// Counts invalidations, so that a load that raced with one is not kept. Locked while the cache
    /// changes: otherwise a stale state could be seen between its insertion and its removal, by a
    /// request that followed the response to the change.
    epoch: Mutex<u64>,
}

impl<T: 'static, V: Send + Sync + 'static> StateCache<Id<T>, V> {
    /// A cache of at most `most` states. A change of kind `one` drops the state it names; a change
    /// of a kind in `all`, and one of unknown kind, drops everything.
    pub(crate) fn hooked(
        db: &Db,
        most: usize,
        one: ChangeKind,
        all: &'static [ChangeKind],
    ) -> Arc<Self> {
        let states = Arc::new(Self {
            cache: Cache::new(most),
            epoch: Mutex::new(0),
        });
        let hooked = Arc::clone(&states);
        db.changes().on_change(move |Change { kind, id }| {
            if *kind == one
                && let Ok(id) = id.parse()
            {
                hooked.invalidate(&id);
            } else if *kind == one || all.contains(kind) || *kind == ChangeKind::Everything {
                hooked.clear();
            }
        });
        states
    }
}

impl<K: Hash + Eq + Copy, V> StateCache<K, V> {
    /// The cached state, or what `load` finds.
    pub(crate) async fn get_or_load<F>(
        &self,
        key: K,
        load: impl Fn() -> F,
    ) -> Result<Option<Arc<V>>>
    where
        F: Future<Output = Result<Option<V>>>,
    {
        if let Some(state) = self.cache.get(&key) {
            return Ok(Some(state));
        }
        let before = *self.epoch();
        let Some(state) = load().await?.map(Arc::new) else {
            return Ok(None);
        };
        let epoch = self.epoch();
        // A change that came while we read found nothing to remove.
        if *epoch == before {
            self.cache.insert(key, Arc::clone(&state));
        }
        drop(epoch);
        Ok(Some(state))
    }

    /// The cached state, without loading.
    pub(crate) fn get(&self, key: &K) -> Option<Arc<V>> {
        self.cache.get(key)
    }

    /// Forgets the state of `key`.
    pub(crate) fn invalidate(&self, key: &K) {
        let mut epoch = self.epoch();
        *epoch += 1;
        self.cache.remove(key);
    }

    /// Forgets the states that `keep` refuses. Looks at all of them: for rare changes.
    pub(crate) fn retain(&self, keep: impl Fn(&V) -> bool) {
        let mut epoch = self.epoch();
        *epoch += 1;
        self.cache.retain(|_, state| keep(state));
    }

    pub(crate) fn clear(&self) {
        let mut epoch = self.epoch();
        *epoch += 1;
        self.cache.clear();
    }

    fn epoch(&self) -> MutexGuard<'_, u64> {
        self.epoch.lock_ignoring_poison()
    }
}
