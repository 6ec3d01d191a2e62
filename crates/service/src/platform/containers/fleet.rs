//! In-memory state of the instances on this node: which are healthy and get requests, which are shutting
//! down, and which crashed. All of it can be rebuilt from the engine and the database.

use super::crashes::Crashes;
use super::logs::LogCollector;
use super::rebuild_attempts::RebuildAttempts;
use crate::platform::releases::{BuildSlots, CacheQueue};
use crate::{Core, PublisherSlot};
use estrade_model::sync::MutexExt;
use estrade_model::{ProjectId, ReleaseId};
use estrade_runtime::{Instance, InstanceId};
use futures_util::future::BoxFuture;
use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::Instant;

/// How long requests of an instance that leaves may go on.
pub(super) const DRAIN_TIMEOUT: Duration = Duration::from_secs(30);
/// How long the last lines of an instance may take to be kept.
const LOG_SETTLE_TIMEOUT: Duration = Duration::from_secs(10);

/// How many instances are started at once: after a restart of the machine all want to.
const MAX_CONCURRENT_STARTS: usize = 8;

/// The instances of this node.
pub struct Fleet {
    pub(crate) core: Arc<Core>,
    /// Gets the addresses of each release.
    pub(crate) publisher: Arc<PublisherSlot>,
    log_collector: Arc<LogCollector>,
    state: Mutex<FleetState>,
    /// Room for instances that are being started.
    pub(super) starts: Semaphore,
    pub(crate) build_slots: Arc<BuildSlots>,
    /// What builds have downloaded, to be kept for the next ones.
    pub(crate) package_caches: CacheQueue,
}

impl Fleet {
    /// Knows of no instance yet.
    pub fn new(
        core: &Arc<Core>,
        publisher: &Arc<PublisherSlot>,
        log_collector: &Arc<LogCollector>,
    ) -> Arc<Self> {
        Arc::new(Self {
            core: Arc::clone(core),
            publisher: Arc::clone(publisher),
            log_collector: Arc::clone(log_collector),
            state: Mutex::default(),
            starts: Semaphore::new(MAX_CONCURRENT_STARTS),
            build_slots: Arc::default(),
            package_caches: CacheQueue::default(),
        })
    }
}

#[derive(Default)]
struct FleetState {
    healthy: HashMap<(ProjectId, ReleaseId), HashMap<InstanceId, Healthy>>,
    leaving: HashSet<InstanceId>,
    crashes: Crashes,
    rebuilds: RebuildAttempts,
    disk: HashMap<InstanceId, u64>,
}

/// An instance that gets requests.
#[derive(Debug)]
struct Healthy {
    address: SocketAddr,
    since: Instant,
}

impl Fleet {
    /// Publishes a healthy instance, unless it is shutting down.
    pub(super) fn enter(&self, instance: &Instance) {
        let Some(address) = instance.address else {
            return;
        };
        let mut state = self.state();
        if state.leaving.contains(&instance.id) {
            return;
        }
        let entry = Healthy {
            address,
            since: Instant::now(),
        };
        let all = state.healthy.entry(release_key(instance)).or_default();
        all.entry(instance.id.clone()).or_insert(entry);
        // Nothing is removed, so there is nothing to drain.
        drop(self.publish(release_key(instance), all, DRAIN_TIMEOUT));
    }

    /// Withdraws an instance: it gets no new requests. The future resolves when those in flight have ended, or
    /// after `limit`.
    pub(super) fn leave(&self, instance: &Instance, limit: Duration) -> BoxFuture<'static, ()> {
        let mut state = self.state();
        let key = release_key(instance);
        let Some(all) = state.healthy.get_mut(&key) else {
            return Box::pin(std::future::ready(()));
        };
        if all.remove(&instance.id).is_none() {
            return Box::pin(std::future::ready(()));
        }
        let drained = self.publish(key, all, limit);
        if all.is_empty() {
            state.healthy.remove(&key);
        }
        drained
    }

    /// Withdraws instances of a project that were known before a query of the engine and that it did not
    /// find: they were removed by other means, and their addresses may belong to other containers by now.
    pub(super) fn forget_missing(&self, project: ProjectId, found: &[Instance], at: Instant) {
        let is_there = |id: &InstanceId| found.iter().any(|it| it.id == *id);
        let mut state = self.state();
        for (key, all) in &mut state.healthy {
            let before = all.len();
            if key.0 == project {
                all.retain(|id, healthy| healthy.since >= at || is_there(id));
            }
            if all.len() < before {
                drop(self.publish(*key, all, Duration::ZERO));
            }
        }
        state.healthy.retain(|_, all| !all.is_empty());
    }

    /// How many instances of a release get requests.
    pub(super) fn count_healthy(&self, project: ProjectId, release: ReleaseId) -> usize {
        let state = self.state();
        state
            .healthy
            .get(&(project, release))
            .map_or(0, HashMap::len)
    }

    /// Whether an instance gets requests.
    pub(super) fn is_healthy(&self, instance: &Instance) -> bool {
        let state = self.state();
        let all = state.healthy.get(&release_key(instance));
        all.is_some_and(|all| all.contains_key(&instance.id))
    }

    /// Records the disk usage of instances whose disk the engine does not limit.
    pub(super) fn note_disks(&self, written: HashMap<InstanceId, u64>) {
        self.state().disk = written;
    }

    /// The disk usage of a project's instances whose disk the engine does not limit.
    pub(crate) fn disk_of(&self, project: ProjectId) -> Option<u64> {
        let state = self.state();
        let of_project = state.healthy.iter().filter(|((it, _), _)| *it == project);
        let ids = of_project.flat_map(|(_, all)| all.keys());
        ids.filter_map(|id| state.disk.get(id).copied()).max()
    }

    /// Claims the shutdown of an instance; false when it is claimed already.
    pub(super) fn begin_leaving(&self, id: &InstanceId) -> bool {
        self.state().leaving.insert(id.clone())
    }

    /// Whether its shutdown is claimed.
    pub(super) fn is_leaving(&self, id: &InstanceId) -> bool {
        self.state().leaving.contains(id)
    }

    /// It is gone, or could not be ended and shall be tried again.
    pub(super) fn end_leaving(&self, id: &InstanceId) {
        let mut state = self.state();
        state.leaving.remove(id);
        state.crashes.take_full(id);
    }

    pub(super) fn crashes<T>(&self, look: impl FnOnce(&mut Crashes) -> T) -> T {
        look(&mut self.state().crashes)
    }

    /// Which images were made again.
    pub(super) fn rebuilds<T>(&self, look: impl FnOnce(&mut RebuildAttempts) -> T) -> T {
        look(&mut self.state().rebuilds)
    }

    /// Clears the crash history of a release, so that its instances are started at once.
    pub(crate) fn reset_backoff(&self, release: ReleaseId) {
        let mut state = self.state();
        state.crashes.forget(release);
        state.rebuilds.forget(release);
    }

    /// Waits until what an instance that has ended wrote is kept: it is removed after this.
    pub(super) async fn settle_logs(&self, instance: &InstanceId) {
        self.log_collector
            .settle(instance, LOG_SETTLE_TIMEOUT)
            .await;
    }

    fn publish(
        &self,
        (project, release): (ProjectId, ReleaseId),
        all: &HashMap<InstanceId, Healthy>,
        limit: Duration,
    ) -> BoxFuture<'static, ()> {
        let addresses: Vec<_> = all.values().map(|healthy| healthy.address).collect();
        match self.publisher.get() {
            Some(publisher) => publisher.publish(project, release, &addresses, limit),
            None => Box::pin(std::future::ready(())),
        }
    }

    fn state(&self) -> MutexGuard<'_, FleetState> {
        self.state.lock_ignoring_poison()
    }
}

fn release_key(instance: &Instance) -> (ProjectId, ReleaseId) {
    (instance.key.project, instance.key.release)
}
