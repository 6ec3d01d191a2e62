//! The workspaces of keys: thousands of keys have the same ones, so they share them in memory.

use bytes::Bytes;
use estrade_model::OwnerId;
use estrade_model::sync::MutexExt;
use estrade_model::workspace::WorkspaceRef;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};

/// When lists that no key has any more are looked for, at the earliest.
const PRUNE_AT: usize = 1024;

/// The workspaces of one or many keys.
#[derive(Debug)]
pub(crate) struct WorkspaceList {
    pub(crate) owner: OwnerId,
    pub(crate) list: Vec<WorkspaceRef>,
    /// Their ids, joined by commas.
    pub(crate) ids: Bytes,
}

/// All lists in use. A list is found by its ids, and is the same only if its names are too: a
/// workspace may have got another since.
#[derive(Default)]
pub(crate) struct WorkspaceLists(Mutex<SharedLists>);

#[derive(Default)]
struct SharedLists {
    lists: HashMap<Bytes, Weak<WorkspaceList>>,
    prune_at: usize,
}

impl WorkspaceLists {
    /// The shared list that is equal to this one.
    pub(crate) fn share(&self, owner: OwnerId, list: Vec<WorkspaceRef>) -> Arc<WorkspaceList> {
        let ids: Vec<_> = list.iter().map(|it| it.id.to_string()).collect();
        let ids = Bytes::from(ids.join(","));
        let mut known = self.0.lock_ignoring_poison();
        if let Some(same) = known.lists.get(&ids).and_then(Weak::upgrade)
            && (same.owner, &same.list) == (owner, &list)
        {
            return same;
        }
        known.prune();
        let new = Arc::new(WorkspaceList {
            owner,
            list,
            ids: ids.clone(),
        });
        known.lists.insert(ids, Arc::downgrade(&new));
        new
    }
}

impl SharedLists {
    fn prune(&mut self) {
        if self.lists.len() >= self.prune_at.max(PRUNE_AT) {
            self.lists.retain(|_, list| list.strong_count() > 0);
            self.prune_at = self.lists.len() * 2;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(number: u64, name: &str) -> Vec<WorkspaceRef> {
        vec![WorkspaceRef {
            id: format!("{number:024x}").parse().unwrap(),
            name: name.into(),
        }]
    }

    fn share(lists: &WorkspaceLists, list: Vec<WorkspaceRef>) -> Arc<WorkspaceList> {
        lists.share(format!("{:024x}", 7).parse().unwrap(), list)
    }

    #[test]
    fn equal_lists_are_one_and_a_new_name_makes_another() {
        let lists = WorkspaceLists::default();
        let (one, same) = (
            share(&lists, list(1, "main")),
            share(&lists, list(1, "main")),
        );
        assert!(Arc::ptr_eq(&one, &same));
        assert_eq!(one.ids, one.list[0].id.to_string());
        let renamed = share(&lists, list(1, "other"));
        assert_eq!(
            (&*one.list[0].name, &*renamed.list[0].name),
            ("main", "other")
        );
        assert!(!Arc::ptr_eq(&one, &share(&lists, list(2, "main"))));
    }

    #[test]
    fn lists_that_no_key_has_are_forgotten() {
        let lists = WorkspaceLists::default();
        let kept = share(&lists, list(0, "kept"));
        for number in 1..10_000 {
            share(&lists, list(number, "main"));
        }
        assert!(lists.0.lock().unwrap().lists.len() <= PRUNE_AT);
        assert!(Arc::ptr_eq(&kept, &share(&lists, list(0, "kept"))));
    }
}
