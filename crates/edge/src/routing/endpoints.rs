//! Endpoints: the addresses of each running release on this node, published by the container services.
//!
//! Which release of a project is live is in the database and nowhere else. So the instances of a new
//! release are published before the commit that makes it the live one, and those of the old release
//! are removed after it: a request finds the one or the other, and nothing in between.

use crate::routing::load_balancer::{InFlightGuard, Instances};
use arc_swap::ArcSwap;
use estrade_model::sync::MutexExt;
use estrade_model::{ProjectId, ReleaseId};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};

/// Where the releases that run on this node can be reached.
#[derive(Debug, Default)]
pub struct Endpoints {
    sets: Mutex<HashMap<(ProjectId, ReleaseId), Arc<EndpointSet>>>,
}

/// Where a release can be reached at the moment.
#[derive(Debug)]
pub(crate) struct EndpointSet(ArcSwap<Instances>);

impl Endpoints {
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
        let mut sets = self.sets();
        let set = EndpointSet::of(&mut sets, project, release);
        let (next, draining) = set.0.load().with_addresses(addresses);
        set.0.store(Arc::new(next));
        // After the swap: a request that a draining instance refuses retries and finds the new set.
        draining.start_draining();
        // Garbage collection: empty sets that no route refers to.
        drop(set);
        sets.retain(|_, set| Arc::strong_count(set) > 1 || !set.0.load().is_empty());
        draining
    }

    /// Where a release can be reached.
    pub fn instances(&self, project: ProjectId, release: ReleaseId) -> Option<Arc<Instances>> {
        let set = self.sets().get(&(project, release)).cloned()?;
        Some(set.0.load_full())
    }

    pub(crate) fn set(&self, project: ProjectId, release: ReleaseId) -> Arc<EndpointSet> {
        EndpointSet::of(&mut self.sets(), project, release)
    }

    fn sets(&self) -> MutexGuard<'_, HashMap<(ProjectId, ReleaseId), Arc<EndpointSet>>> {
        self.sets.lock_ignoring_poison()
    }
}

impl EndpointSet {
    fn of(
        sets: &mut HashMap<(ProjectId, ReleaseId), Arc<Self>>,
        project: ProjectId,
        release: ReleaseId,
    ) -> Arc<Self> {
        let new = || Arc::new(Self(ArcSwap::from_pointee(Instances::new(release, []))));
        Arc::clone(sets.entry((project, release)).or_insert_with(new))
    }

    /// Picks an instance that was not tried yet; again when the set was replaced meanwhile.
    pub(crate) fn acquire(&self, tried: &[u64]) -> Option<InFlightGuard> {
        loop {
            let instances = self.0.load();
            if let Some(guard) = instances.acquire(tried) {
                return Some(guard);
            }
            if Arc::ptr_eq(&instances, &self.0.load()) {
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
        let endpoints = Endpoints::default();
        let project: ProjectId = "0123456789abcdef01234567".parse().unwrap();
        let release = |n: u32| -> ReleaseId { format!("{n:024x}").parse().unwrap() };
        let address = [([127, 0, 0, 1], 1).into()];
        for n in 0..100 {
            drop(endpoints.set(project, release(n)));
        }
        let live = endpoints.set(project, release(1));
        assert!(endpoints.publish(project, release(2), &address).is_empty());
        assert_eq!(endpoints.sets().len(), 2);
        // A reader of the live one sees what is said about it, also after it had none.
        assert!(live.acquire(&[]).is_none());
        drop(endpoints.publish(project, release(1), &address));
        assert!(live.acquire(&[]).is_some());
        assert_eq!(
            endpoints
                .publish(project, release(1), &[])
                .addresses()
                .count(),
            1
        );
        assert!(live.acquire(&[]).is_none());
        drop(endpoints.publish(project, release(1), &address));
        assert!(live.acquire(&[]).is_some());
        drop(live);
        drop(endpoints.publish(project, release(1), &[]));
        drop(endpoints.publish(project, release(2), &[]));
        assert!(endpoints.sets().is_empty());
    }
}
