//! Build slots: bound how many images are built or fetched at once, in total and per owner.
//!
//! A slot is taken with the claim of a release and not waited for: a release that needs one stays in the
//! queue, where it holds nothing, until the worker finds a slot for it ([`super::schedule`]).

use estrade_model::OwnerId;
use estrade_model::sync::MutexExt;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use tokio::sync::Notify;

/// How many images are built or fetched at once.
pub(super) const MAX_BUILDS: usize = 4;

/// The build slots of this node.
#[derive(Debug, Default)]
pub(crate) struct BuildSlots {
    held: Mutex<HashMap<OwnerId, usize>>,
    freed: Notify,
}

/// The right to build; dropping it frees the slot.
#[derive(Debug)]
pub(super) struct BuildSlot {
    slots: Arc<BuildSlots>,
    owner: OwnerId,
}

impl BuildSlots {
    /// How many more builds may begin.
    pub(super) fn free(&self) -> usize {
        MAX_BUILDS.saturating_sub(self.held().values().sum())
    }

    /// Whether anything is built or fetched.
    pub(crate) fn is_busy(&self) -> bool {
        !self.held().is_empty()
    }

    /// How many builds of an owner are under way.
    pub(super) fn held_by(&self, owner: OwnerId) -> usize {
        self.held().get(&owner).copied().unwrap_or(0)
    }

    /// Takes a slot, without a wait or a limit: [`super::schedule`] has decided before which release may have
    /// one, also for a release that was BUILDING when its worker crashed.
    pub(super) fn take(self: &Arc<Self>, owner: OwnerId) -> BuildSlot {
        *self.held().entry(owner).or_default() += 1;
        BuildSlot {
            slots: Arc::clone(self),
            owner,
        }
    }

    /// Returns when a slot was freed, also before this was called.
    pub(super) async fn freed(&self) {
        self.freed.notified().await;
    }

    fn held(&self) -> MutexGuard<'_, HashMap<OwnerId, usize>> {
        self.held.lock_ignoring_poison()
    }
}

impl Drop for BuildSlot {
    fn drop(&mut self) {
        let mut held = self.slots.held();
        if let Some(count) = held.get_mut(&self.owner) {
            *count -= 1;
            if *count == 0 {
                held.remove(&self.owner);
            }
        }
        drop(held);
        self.slots.freed.notify_one();
    }
}
