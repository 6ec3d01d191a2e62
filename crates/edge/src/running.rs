//! What runs on this node: the instances of each release, as those who start and stop them say.
//!
//! Which release of a project is live is in the database and nowhere else. So the instances of a new
//! release are published before the commit that makes it the live one, and those of the old release
//! are taken away after it: a visitor finds the one or the other, and nothing in between.

use crate::instances::{Entered, Instances};
use arc_swap::ArcSwap;
use estrade_model::{ProjectId, ReleaseId};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Where the releases that run on this node can be reached.
#[derive(Debug, Default)]
pub struct Running {
    slots: Mutex<HashMap<(ProjectId, ReleaseId), Arc<Slot>>>,
}

/// Where a release can be reached at the moment.
#[derive(Debug)]
pub(crate) struct Slot(ArcSwap<Instances>);

impl Running {
    /// From now on a release can be reached at exactly these addresses, and nowhere without any.
    ///
    /// Instances that it had before and has no more get no new request; they are returned, so that
    /// they can be stopped once they are [drained](Instances::drained). Those that it keeps go on.
    pub fn publish(
        &self,
        project: ProjectId,
        release: ReleaseId,
        addresses: &[SocketAddr],
    ) -> Instances {
        let mut slots = self.slots();
        let slot = Slot::of(&mut slots, project, release);
        let (next, leaving) = slot.0.load().succeed(addresses);
        slot.0.store(Arc::new(next));
        // Only now: who is turned away looks again, and finds the new ones.
        leaving.leave();
        // What nothing is said about and nobody looks at is not kept.
        drop(slot);
        slots.retain(|_, slot| Arc::strong_count(slot) > 1 || !slot.0.load().is_empty());
        leaving
    }

    /// Where a release can be reached.
    pub fn instances(&self, project: ProjectId, release: ReleaseId) -> Option<Arc<Instances>> {
        let slot = self.slots().get(&(project, release)).cloned()?;
        Some(slot.0.load_full())
    }

    pub(crate) fn slot(&self, project: ProjectId, release: ReleaseId) -> Arc<Slot> {
        Slot::of(&mut self.slots(), project, release)
    }

    fn slots(&self) -> MutexGuard<'_, HashMap<(ProjectId, ReleaseId), Arc<Slot>>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Slot {
    fn of(
        slots: &mut HashMap<(ProjectId, ReleaseId), Arc<Self>>,
        project: ProjectId,
        release: ReleaseId,
    ) -> Arc<Self> {
        let new = || Arc::new(Self(ArcSwap::from_pointee(Instances::new(release, []))));
        Arc::clone(slots.entry((project, release)).or_insert_with(new))
    }

    /// Gives a request to one of the instances, but for those that were tried already.
    pub(crate) fn enter(&self, tried: &[u64]) -> Option<Entered> {
        loop {
            let set = self.0.load();
            if let Some(entered) = set.enter(tried) {
                return Some(entered);
            }
            if Arc::ptr_eq(&set, &self.0.load()) {
                return None;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_gone_and_looked_at_by_nobody_is_not_kept() {
        let running = Running::default();
        let project: ProjectId = "0123456789abcdef01234567".parse().unwrap();
        let release = |n: u32| -> ReleaseId { format!("{n:024x}").parse().unwrap() };
        let address = [([127, 0, 0, 1], 1).into()];
        for n in 0..100 {
            drop(running.slot(project, release(n)));
        }
        let live = running.slot(project, release(1));
        assert!(running.publish(project, release(2), &address).is_empty());
        assert_eq!(running.slots().len(), 2);
        // Whoever looks at the live one sees what is said about it, also after it had none.
        assert!(live.enter(&[]).is_none());
        drop(running.publish(project, release(1), &address));
        assert!(live.enter(&[]).is_some());
        assert_eq!(
            running
                .publish(project, release(1), &[])
                .addresses()
                .count(),
            1
        );
        assert!(live.enter(&[]).is_none());
        drop(running.publish(project, release(1), &address));
        assert!(live.enter(&[]).is_some());
        drop(live);
        drop(running.publish(project, release(1), &[]));
        drop(running.publish(project, release(2), &[]));
        assert!(running.slots().is_empty());
    }
}
