//! Stores what every instance writes.

use super::log_state::InstanceLogState;
use super::merging;
use super::reader::Reader;
use super::retention;
use super::shared::ContainerLogs;
use crate::Core;
use estrade_model::error::error_chain;
use estrade_model::sync::MutexExt;
use estrade_runtime::{
    Error as EngineError, EventKind, Instance, InstanceId, InstanceKey, InstanceState,
};
use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// How often all instances are looked at, besides hearing of those that start and end.
const POLL_INTERVAL: Duration = Duration::from_secs(5);
/// How long after it began to listen the collector looks at what it may have missed before.
const FIRST_POLL_DELAY: Duration = Duration::from_millis(100);
/// How long to wait for an engine that is away: at first, and at most.
const MIN_RETRY_DELAY: Duration = Duration::from_millis(500);
const MAX_RETRY_DELAY: Duration = Duration::from_secs(5);
/// How often small blocks are merged.
const MERGE_INTERVAL: Duration = Duration::from_mins(10);
/// How often what is too old or too much is removed.
const PRUNE_INTERVAL: Duration = Duration::from_mins(1);
/// How many logs are read at once: each takes a batch and what the connection holds.
const MAX_CONCURRENT_SWEEPS: usize = 16;

/// Stores what every instance of this installation writes: each line once, however often this process or
/// the engine begins anew. Lines are stored about a second after they were written.
///
/// The engine holds what is not stored yet, so nothing of it is in memory but a batch for each instance that
/// writes. An instance that writes faster than its log can be read for longer than the engine's files
/// reach loses lines; one line then says so where they were.
pub struct LogCollector {
    core: Arc<Core>,
    logs: Arc<ContainerLogs>,
    log_states: Mutex<HashMap<InstanceId, Arc<InstanceLogState>>>,
    sweeps: Arc<Semaphore>,
    tasks: TaskTracker,
    stop: CancellationToken,
}

impl LogCollector {
    /// A collector that does nothing until [`Self::run`]. There must be one only for each engine.
    pub fn new(core: &Arc<Core>, logs: &Arc<ContainerLogs>) -> Arc<Self> {
        Arc::new(Self {
            core: Arc::clone(core),
            logs: Arc::clone(logs),
            log_states: Mutex::default(),
            sweeps: Arc::new(Semaphore::new(MAX_CONCURRENT_SWEEPS)),
            tasks: TaskTracker::new(),
            stop: CancellationToken::new(),
        })
    }

    /// Stores what instances write until `stop`. What they write after that is stored by the next one.
    pub fn run(self: Arc<Self>, stop: CancellationToken) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            let work = async { tokio::join!(self.watch(), self.prune(&stop), self.merge(&stop)) };
            stop.run_until_cancelled(work).await;
            self.stop.cancel();
            self.tasks.close();
            self.tasks.wait().await;
        })
    }

    /// Returns when everything is stored that an instance wrote which does not run any more, or when the
    /// limit is over. Then its container may be removed.
    pub async fn settle(&self, id: &InstanceId, limit: Duration) {
        let stop = self.stop.child_token();
        let _stop = stop.clone().drop_guard();
        let settled = async {
            let log_state = match self.known_log_state(id) {
                Some(log_state) => log_state,
                None => match self.core.runtime.instance(id).await? {
                    Some(instance) => self.log_state(id, instance.key),
                    None => return Ok(()),
                },
            };
            log_state.interrupt();
            let reader = self.reader(id, log_state.key, stop);
            // In a task: a batch on its way to the database must not be left alone.
            let drained = self
                .tasks
                .spawn(async move { log_state.drain(reader).await });
            let _ = drained.await;
            Ok::<_, EngineError>(())
        };
        match timeout(limit, settled).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                tracing::warn!(
                    error = error_chain(&error),
                    "cannot look at an instance that ended"
                );
            }
            Err(_) => tracing::warn!("the last lines of an instance were not stored in time"),
        }
    }

    /// Listens to the engine, and looks at everything from time to time.
    async fn watch(&self) {
        let mut away = MIN_RETRY_DELAY;
        loop {
            let mut events = self.core.runtime.events();
            let mut next_poll = Instant::now() + FIRST_POLL_DELAY;
            loop {
                tokio::select! {
                    event = events.next() => match event {
                        Some(Ok(event)) => match event.kind {
                            EventKind::Started => self.follow(&event.id, event.key, true),
                            EventKind::Ended(_) => self.follow(&event.id, event.key, false),
                            EventKind::OutOfMemory | EventKind::Removed => {}
                        },
                        Some(Err(_)) | None => break,
                    },
                    () = sleep_until(next_poll) => {
                        // So long it has listened: the engine is there.
                        away = MIN_RETRY_DELAY;
                        self.poll_instances().await;
                        next_poll = Instant::now() + POLL_INTERVAL;
                    }
                }
            }
            sleep(away).await;
            away = (away * 2).min(MAX_RETRY_DELAY);
        }
    }

    /// Looks at all instances, for events that were missed.
    async fn poll_instances(&self) {
        let instances = match self.core.runtime.instances().await {
            Ok(instances) => instances,
            Err(error) => {
                tracing::debug!(
                    error = error_chain(&error),
                    "cannot look for instances that write"
                );
                return;
            }
        };
        for Instance { id, key, state, .. } in &instances {
            match state {
                InstanceState::Running => {
                    self.log_state(id, *key).runs();
                    self.follow(id, *key, false);
                }
                InstanceState::Exited(_) => self.follow(id, *key, false),
                InstanceState::Created | InstanceState::Other | InstanceState::Unclear => {}
            }
        }
        let there: HashSet<_> = instances.into_iter().map(|instance| instance.id).collect();
        self.log_states()
            .retain(|id, log_state| there.contains(id) || !log_state.is_idle());
    }

    /// Spawns a follower of an instance, unless there is one or nothing is left to read.
    fn follow(&self, id: &InstanceId, key: InstanceKey, started: bool) {
        let log_state = self.log_state(id, key);
        if let Some(stop) = log_state.open(started, || self.stop.child_token()) {
            let reader = self.reader(id, key, stop);
            self.tasks
                .spawn(async move { log_state.follow(reader).await });
        }
    }

    fn reader(&self, id: &InstanceId, key: InstanceKey, stop: CancellationToken) -> Reader {
        Reader {
            core: Arc::clone(&self.core),
            logs: Arc::clone(&self.logs),
            id: id.clone(),
            key,
            sweeps: Arc::clone(&self.sweeps),
            stop,
        }
    }

    async fn prune(&self, stop: &CancellationToken) {
        let mut ticks = interval(PRUNE_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            if let Err(error) = retention::prune(&self.core, stop).await {
                tracing::warn!(error = error_chain(&error), "cannot remove old logs");
            }
        }
    }

    async fn merge(&self, stop: &CancellationToken) {
        let mut ticks = interval(MERGE_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            if let Err(error) = merging::merge(&self.core, &self.logs, stop).await {
                tracing::warn!(
                    error = error_chain(&error),
                    "cannot merge small blocks of logs"
                );
            }
        }
    }

    fn log_states(&self) -> MutexGuard<'_, HashMap<InstanceId, Arc<InstanceLogState>>> {
        self.log_states.lock_ignoring_poison()
    }

    fn known_log_state(&self, id: &InstanceId) -> Option<Arc<InstanceLogState>> {
        self.log_states().get(id).cloned()
    }

    fn log_state(&self, id: &InstanceId, key: InstanceKey) -> Arc<InstanceLogState> {
        let mut log_states = self.log_states();
        let log_state = log_states.entry(id.clone());
        Arc::clone(log_state.or_insert_with(|| Arc::new(InstanceLogState::new(key))))
    }
}
