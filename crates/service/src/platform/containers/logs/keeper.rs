//! Stores what every instance writes.

use super::desk::Desk;
use super::merging;
use super::reader::Reader;
use super::retention;
use crate::Core;
use estrade_model::error::error_chain;
use estrade_runtime::{
    Error as EngineError, EventKind, Instance, InstanceId, InstanceKey, InstanceState,
};
use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// How often all instances are looked at, besides hearing of those that start and end.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// How long after it began to listen the keeper looks at what it may have missed before.
const LOOK_FIRST: Duration = Duration::from_millis(100);
/// How long to wait for an engine that is away: at first, and at most.
const AWAY_FIRST: Duration = Duration::from_millis(500);
const AWAY_MOST: Duration = Duration::from_secs(5);
/// How often small blocks are merged.
const MERGE_EVERY: Duration = Duration::from_mins(10);
/// How often what is too old or too much is removed.
const PRUNE_EVERY: Duration = Duration::from_mins(1);
/// How many logs are read at once: each takes a batch and what the connection holds.
const SWEEPS: usize = 16;

/// Stores what every instance of this installation writes: each line once, however often this process or
/// the engine begins anew. Lines are stored about a second after they were written.
///
/// The engine holds what is not stored yet, so nothing of it is in memory but a batch for each instance that
/// writes. An instance that writes faster than its log can be read for longer than the engine's files
/// reach loses lines; one line then says so where they were.
pub struct LogKeeper {
    core: Arc<Core>,
    desks: Mutex<HashMap<InstanceId, Arc<Desk>>>,
    sweeps: Arc<Semaphore>,
    tasks: TaskTracker,
    stop: CancellationToken,
}

/// Where those who end instances find the keeper.
#[derive(Default)]
pub(crate) struct KeeperSlot(Mutex<Weak<LogKeeper>>);

impl KeeperSlot {
    pub(crate) fn get(&self) -> Option<Arc<LogKeeper>> {
        self.slot().upgrade()
    }

    fn slot(&self) -> MutexGuard<'_, Weak<LogKeeper>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LogKeeper {
    /// A keeper, who does nothing until [`Self::run`]. From now on it is the one whom those wait for who
    /// end instances. There must be one only for each engine.
    pub fn new(core: &Arc<Core>) -> Arc<Self> {
        let keeper = Arc::new(Self {
            core: Arc::clone(core),
            desks: Mutex::default(),
            sweeps: Arc::new(Semaphore::new(SWEEPS)),
            tasks: TaskTracker::new(),
            stop: CancellationToken::new(),
        });
        *core.log_keeper.slot() = Arc::downgrade(&keeper);
        keeper
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
            let desk = match self.known_desk(id) {
                Some(desk) => desk,
                None => match self.core.engine.instance(id).await? {
                    Some(instance) => self.desk(id, instance.key),
                    None => return Ok(()),
                },
            };
            desk.interrupt();
            let reader = self.reader(id, desk.key, stop);
            // In a task: a batch on its way to the database must not be left alone.
            let drained = self.tasks.spawn(async move { desk.drain(reader).await });
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
        let mut away = AWAY_FIRST;
        loop {
            let mut events = Box::pin(self.core.engine.events());
            let mut next_look = Instant::now() + LOOK_FIRST;
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
                    () = sleep_until(next_look) => {
                        // So long it has listened: the engine is there.
                        away = AWAY_FIRST;
                        self.look().await;
                        next_look = Instant::now() + LOOK_EVERY;
                    }
                }
            }
            sleep(away).await;
            away = (away * 2).min(AWAY_MOST);
        }
    }

    async fn look(&self) {
        let instances = match self.core.engine.instances().await {
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
                    self.desk(id, *key).runs();
                    self.follow(id, *key, false);
                }
                InstanceState::Exited(_) => self.follow(id, *key, false),
                InstanceState::Created | InstanceState::Other | InstanceState::Unclear => {}
            }
        }
        let there: HashSet<_> = instances.into_iter().map(|instance| instance.id).collect();
        self.desks()
            .retain(|id, desk| there.contains(id) || !desk.is_idle());
    }

    /// Has somebody follow an instance, unless somebody does or nothing is left to read.
    fn follow(&self, id: &InstanceId, key: InstanceKey, started: bool) {
        let desk = self.desk(id, key);
        if let Some(stop) = desk.open(started, || self.stop.child_token()) {
            let reader = self.reader(id, key, stop);
            self.tasks.spawn(async move { desk.follow(reader).await });
        }
    }

    fn reader(&self, id: &InstanceId, key: InstanceKey, stop: CancellationToken) -> Reader {
        Reader {
            core: Arc::clone(&self.core),
            id: id.clone(),
            key,
            sweeps: Arc::clone(&self.sweeps),
            stop,
        }
    }

    async fn prune(&self, stop: &CancellationToken) {
        let mut ticks = interval(PRUNE_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            if let Err(error) = retention::prune(&self.core, stop).await {
                tracing::warn!(error = error_chain(&error), "cannot remove old logs");
            }
        }
    }

    async fn merge(&self, stop: &CancellationToken) {
        let mut ticks = interval(MERGE_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            if let Err(error) = merging::merge(&self.core, stop).await {
                tracing::warn!(
                    error = error_chain(&error),
                    "cannot merge small blocks of logs"
                );
            }
        }
    }

    fn desks(&self) -> MutexGuard<'_, HashMap<InstanceId, Arc<Desk>>> {
        self.desks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn known_desk(&self, id: &InstanceId) -> Option<Arc<Desk>> {
        self.desks().get(id).cloned()
    }

    fn desk(&self, id: &InstanceId, key: InstanceKey) -> Arc<Desk> {
        let mut desks = self.desks();
        let desk = desks.entry(id.clone());
        Arc::clone(desk.or_insert_with(|| Arc::new(Desk::new(key))))
    }
}
