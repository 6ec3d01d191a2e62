//! How many shells may be open at once: on this node, and of one owner.

use estrade_model::OwnerId;
use estrade_model::sync::MutexExt;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

/// Shells that may be open on this node at once.
pub(crate) const MAX_SHELLS: usize = 64;
/// Of these, in projects of one owner.
pub(crate) const MAX_SHELLS_PER_OWNER: usize = 16;

/// The shells that are open on this node.
#[derive(Debug, Default)]
pub struct ShellSlots(Mutex<HashMap<OwnerId, usize>>);

/// Room for one shell, until it is dropped.
#[derive(Debug)]
pub(crate) struct ShellSlot {
    slots: Arc<ShellSlots>,
    owner: OwnerId,
}

/// Whose shells are too many.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TooMany {
    OfOwner,
    OfAll,
}

impl ShellSlots {
    /// Takes room for a shell in a project of that owner.
    pub(crate) fn take(self: &Arc<Self>, owner: OwnerId) -> Result<ShellSlot, TooMany> {
        let mut open = self.open();
        let all: usize = open.values().sum();
        let of_owner = open.get(&owner).copied().unwrap_or(0);
        if of_owner >= MAX_SHELLS_PER_OWNER {
            return Err(TooMany::OfOwner);
        }
        if all >= MAX_SHELLS {
            return Err(TooMany::OfAll);
        }
        open.insert(owner, of_owner + 1);
        drop(open);
        let slots = Arc::clone(self);
        Ok(ShellSlot { slots, owner })
    }

    fn open(&self) -> MutexGuard<'_, HashMap<OwnerId, usize>> {
        self.0.lock_ignoring_poison()
    }
}

impl Drop for ShellSlot {
    fn drop(&mut self) {
        let mut open = self.slots.open();
        if let Some(count) = open.get_mut(&self.owner) {
            *count -= 1;
            if *count == 0 {
                open.remove(&self.owner);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_owner_leaves_room_for_others_and_all_have_a_limit() {
        let slots = Arc::new(ShellSlots::default());
        let owners: Vec<_> = (0..5).map(|_| OwnerId::generate(1, 1)).collect();
        let mut held = Vec::new();
        for owner in &owners[..4] {
            held.extend((0..MAX_SHELLS_PER_OWNER).map(|_| slots.take(*owner).unwrap()));
            assert_eq!(slots.take(*owner).unwrap_err(), TooMany::OfOwner);
        }
        assert_eq!(slots.take(owners[4]).unwrap_err(), TooMany::OfAll);
        held.pop();
        slots.take(owners[4]).unwrap();
        drop(held);
        assert!(slots.open().is_empty());
    }
}
