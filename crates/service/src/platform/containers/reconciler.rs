//! The loop that makes what runs equal to what shall run.
//!
//! Level-triggered: whatever happened (a change in the database, an event of the engine, a crash of either,
//! or nothing at all for a while), it looks at both and does what is missing. Projects are reconciled side by
//! side, each by one task at a time.

use super::disk_watch;
use super::fleet::Fleet;
use super::gc::{self, GcSchedule};
use super::reconcile::{ObservedInstances, ReconcileResult, reconcile_project};
use super::shutdown::shutdown;
use crate::{Core, Result};
use estrade_model::ProjectId;
use estrade_model::error::error_chain;
use estrade_runtime::{Event, Instance, NetworkPolicy};
use estrade_store::{Change, ChangeKind, images};
use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tokio::task::{AbortHandle, Id as TaskId, JoinError, JoinSet};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};
use tokio_util::sync::CancellationToken;

/// How often it looks although nothing woke it.
const POLL_INTERVAL: Duration = Duration::from_secs(10);
/// The same while nothing runs and nothing shall.
const IDLE_POLL_INTERVAL: Duration = Duration::from_mins(1);
/// How soon it looks for an engine that is away.
const ENGINE_RETRY_DELAY: Duration = Duration::from_secs(1);
/// How soon images, networks and volumes are looked through after a project changed.
const GC_DELAY: Duration = gc::RETRY_DELAY;
/// The same while nothing runs.
const IDLE_GC_DELAY: Duration = Duration::from_secs(10);
/// Changes and events within this time are handled together.
const BATCH_DELAY: Duration = Duration::from_millis(10);
/// The least time between two looks, whatever wakes it.
const MIN_RECONCILE_INTERVAL: Duration = Duration::from_millis(50);

/// The engine tells of an event a moment before its lists know of it.
const EVENT_LAG: Duration = Duration::from_millis(250);

/// Keeps the engine's instances as the database wants them.
pub struct Reconciler {
    core: Arc<Core>,
    fleet: Arc<Fleet>,
    reconciling: JoinSet<(ProjectId, Result<ReconcileResult>)>,
    busy: HashMap<ProjectId, (TaskId, AbortHandle)>,
    /// Projects that changed while they were being reconciled.
    dirty: HashSet<ProjectId>,
    /// Whether an instance that shall go is gone.
    leaving: JoinSet<bool>,
    /// Work in the background; whether some of it is left for later.
    chores: JoinSet<bool>,
    watching: JoinSet<()>,
    events: Option<BoxStream<'static, std::result::Result<Event, estrade_runtime::Error>>>,
    last: Instant,
    next: Instant,
    /// When to check the effect of an event a second time.
    echo: Option<Instant>,
    gc_schedule: GcSchedule,
    /// When the firewall's rules were set; none: not by this process.
    firewall: Option<Instant>,
    setting_firewall: JoinSet<()>,
    /// Whether it was logged that they could not be set.
    unprotected: Arc<AtomicBool>,
    engine: EngineState,
    /// Nothing runs and nothing shall.
    idle: bool,
}

/// How the engine was when it was looked at last.
#[derive(Clone, Copy, PartialEq, Eq)]
enum EngineState {
    /// Not looked at yet.
    Never,
    Available,
    /// Away, and it may never have been here.
    Away,
    /// Away, and what it has of ours shall go.
    AwayWithGarbage,
    /// Away, and that was logged.
    AwayReported,
}

enum WakeReason {
    Stop,
    Reconcile,
    CheckDisks,
}

impl Reconciler {
    /// Works until `stop`. Instances go on without it.
    pub fn run(fleet: Arc<Fleet>, stop: CancellationToken) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            let core = Arc::clone(&fleet.core);
            let mut changes = core.db.changes().subscribe();
            let now = Instant::now();
            let mut reconciler = Self {
                core,
                fleet,
                reconciling: JoinSet::new(),
                busy: HashMap::new(),
                dirty: HashSet::new(),
                leaving: JoinSet::new(),
                chores: JoinSet::new(),
                watching: JoinSet::new(),
                events: None,
                last: now,
                next: now,
                echo: None,
                gc_schedule: GcSchedule::new(now),
                firewall: None,
                setting_firewall: JoinSet::new(),
                unprotected: Arc::default(),
                engine: EngineState::Never,
                idle: false,
            };
            let mut disks = interval(disk_watch::POLL_INTERVAL);
            disks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            loop {
                let reason = tokio::select! {
                    () = stop.cancelled() => WakeReason::Stop,
                    reason = reconciler.wait_for_work(&mut changes) => reason,
                    _ = disks.tick() => WakeReason::CheckDisks,
                };
                match reason {
                    WakeReason::Stop => break,
                    WakeReason::Reconcile => {
                        stop.run_until_cancelled(reconciler.run_pass()).await;
                    }
                    WakeReason::CheckDisks => reconciler.watch_disks(),
                }
            }
            reconciler.reconciling.shutdown().await;
            reconciler.leaving.shutdown().await;
            reconciler.chores.shutdown().await;
            reconciler.watching.shutdown().await;
            reconciler.setting_firewall.shutdown().await;
            if reconciler.firewall.is_some() {
                remove_network_policy(&reconciler.core).await;
            }
            // Its connection would be waited for.
            reconciler.events = None;
            reconciler.core.runtime.shutdown().await;
        })
    }

    /// Waits until there may be something to do.
    async fn wait_for_work(&mut self, changes: &mut Receiver<Change>) -> WakeReason {
        loop {
            tokio::select! {
                change = next_change(changes) => self.schedule_for(change),
                event = next_event(&mut self.events) => {
                    if matches!(event, Some(Ok(_))) {
                        // Instances that are no longer desired may have been started.
                        self.idle = false;
                        self.echo = Some(Instant::now() + EVENT_LAG);
                        self.reconcile_in(BATCH_DELAY);
                    } else {
                        self.events = None;
                        self.reconcile_in(ENGINE_RETRY_DELAY);
                    }
                }
                Some(reconciled) = self.reconciling.join_next() => self.reconciled(reconciled),
                Some(left) = self.leaving.join_next() => {
                    let failed = matches!(left, Ok(false));
                    report("end an instance", left);
                    // What the engine cannot do now it cannot do at once either.
                    let (gc_delay, delay) = if failed { (GC_DELAY, ENGINE_RETRY_DELAY) } else { (Duration::ZERO, BATCH_DELAY) };
                    self.collect_garbage_in(gc_delay);
                    self.reconcile_in(delay);
                }
                Some(done) = self.chores.join_next() => self.garbage_collected(done),
                () = sleep_until(self.next) => return WakeReason::Reconcile,
            }
        }
    }

    fn reconcile_in(&mut self, wait: Duration) {
        let soonest = self.last + MIN_RECONCILE_INTERVAL;
        self.next = self.next.min((Instant::now() + wait).max(soonest));
    }

    /// There is something to clean up, after so long at the latest.
    fn collect_garbage_in(&mut self, wait: Duration) {
        self.gc_schedule.request_by(Instant::now() + wait);
    }

    fn garbage_collected(&mut self, done: std::result::Result<bool, JoinError>) {
        let left = matches!(done, Ok(true));
        if let Some(again) = self.gc_schedule.ended(Instant::now(), left) {
            // It may be an instance that uses it.
            self.idle = false;
            self.reconcile_in(again);
        }
        report("clean up", done);
    }

    fn schedule_for(&mut self, change: RelevantChange) {
        match change {
            RelevantChange::Workload(project) => {
                // A task that starts instances that are no longer desired need not go on.
                if let Some((_, task)) = self.busy.get(&project) {
                    task.abort();
                    self.dirty.insert(project);
                }
                self.reconcile_in(BATCH_DELAY);
            }
            RelevantChange::Anything => self.reconcile_in(BATCH_DELAY),
            RelevantChange::Lagged => {
                self.collect_garbage_in(GC_DELAY);
                self.reconcile_in(BATCH_DELAY);
            }
            // A disk may be gone, or what a build left behind.
            RelevantChange::Project => {
                let soon = if self.idle { IDLE_GC_DELAY } else { GC_DELAY };
                self.collect_garbage_in(soon);
                self.reconcile_in(soon);
            }
        }
    }

    fn reconciled(
        &mut self,
        reconciled: std::result::Result<(ProjectId, Result<ReconcileResult>), JoinError>,
    ) {
        let (project, reconciled) = match reconciled {
            Ok(reconciled) => reconciled,
            Err(error) => {
                let task = error.id();
                self.busy.retain(|_, (id, _)| *id != task);
                if !error.is_cancelled() {
                    tracing::error!(%error, "reconciling a project was aborted");
                }
                // The engine may have been about to make something for it.
                self.collect_garbage_in(GC_DELAY);
                self.reconcile_in(BATCH_DELAY);
                return;
            }
        };
        self.busy.remove(&project);
        let changed = self.dirty.remove(&project);
        if changed {
            self.reconcile_in(BATCH_DELAY);
        }
        match reconciled {
            Ok(ReconcileResult {
                leaving,
                recheck_after: again,
            }) => {
                // What changed meanwhile is looked at again before anything is ended.
                let leaving = if changed { Vec::new() } else { leaving };
                for (instance, why) in leaving {
                    if self.fleet.is_leaving(&instance.id) {
                        continue;
                    }
                    let fleet = Arc::clone(&self.fleet);
                    self.leaving
                        .spawn(async move { shutdown(&fleet, instance, why).await });
                }
                if let Some(again) = again {
                    self.reconcile_in(again.max(BATCH_DELAY));
                }
            }
            Err(error) => {
                tracing::warn!(%project, error = error_chain(&error), "reconciling a project failed, trying again later");
                self.reconcile_in(ENGINE_RETRY_DELAY);
            }
        }
    }

    /// Reads the desired and the actual state, and spawns a task for each project that is not being reconciled.
    async fn run_pass(&mut self) {
        let now = Instant::now();
        self.last = now;
        self.echo = self.echo.filter(|echo| *echo > now);
        self.next = self.echo.unwrap_or(now + POLL_INTERVAL);
        let wanted = match images::list_projects(&self.core.db).await {
            Ok(wanted) => wanted,
            Err(error) => {
                tracing::warn!(error = error_chain(&error), "cannot read what shall run");
                return;
            }
        };
        // Steps of builds are containers too: the firewall must hold for them.
        let is_building = self.fleet.build_slots.is_busy();
        if wanted.is_empty() && self.idle && !is_building {
            self.next = Instant::now() + IDLE_POLL_INTERVAL;
            self.collect_garbage();
            return;
        }
        let found = match self.core.runtime.instances().await {
            Ok(found) => found,
            Err(error) => return self.engine_away(&error, wanted.is_empty()),
        };
        let after_outage =
            std::mem::replace(&mut self.engine, EngineState::Available) != EngineState::Available;
        if self.events.is_none() {
            self.events = Some(self.core.runtime.events());
        }
        self.idle = wanted.is_empty() && found.is_empty() && !is_building;
        let interval = self.core.settings.containers.firewall_interval;
        if after_outage || (!self.idle && self.firewall.is_none_or(|at| now >= at + interval)) {
            self.set_firewall(now);
        }
        if !self.idle {
            self.gc_schedule.request_eventually();
        }
        self.reconcile_all(wanted, found, (now, after_outage));
        self.collect_garbage();
    }

    fn reconcile_all(
        &mut self,
        wanted: Vec<ProjectId>,
        found: Vec<Instance>,
        (at, after_outage): (Instant, bool),
    ) {
        let mut projects: HashMap<ProjectId, Vec<Instance>> = wanted
            .into_iter()
            .map(|project| (project, Vec::new()))
            .collect();
        for instance in found {
            projects
                .entry(instance.key.project)
                .or_default()
                .push(instance);
        }
        for (project, instances) in projects {
            if self.busy.contains_key(&project) {
                self.dirty.insert(project);
                continue;
            }
            let (fleet, found) = (
                Arc::clone(&self.fleet),
                ObservedInstances {
                    instances,
                    after_outage,
                    at: Some(at),
                },
            );
            let task = self
                .reconciling
                .spawn(async move { (project, reconcile_project(fleet, project, found).await) });
            self.busy.insert(project, (task.id(), task));
        }
    }

    fn engine_away(&mut self, error: &estrade_runtime::Error, nothing_wanted: bool) {
        let missed = self.engine == EngineState::AwayReported;
        let (seen, wait) = match self.engine {
            _ if !nothing_wanted => (EngineState::AwayReported, ENGINE_RETRY_DELAY),
            EngineState::Never | EngineState::Away => (EngineState::Away, IDLE_POLL_INTERVAL),
            EngineState::Available | EngineState::AwayWithGarbage | EngineState::AwayReported => {
                (EngineState::AwayWithGarbage, GC_DELAY)
            }
        };
        self.engine = seen;
        self.events = None;
        self.next = Instant::now() + wait;
        if !nothing_wanted && !missed {
            tracing::warn!(error = error_chain(error), "the container engine is away");
        }
    }

    /// Without them the engine's own rules hold, and the listeners look at their peers.
    fn set_firewall(&mut self, now: Instant) {
        let Some(policy) = network_policy(&self.core) else {
            return;
        };
        self.firewall = Some(now);
        while self.setting_firewall.try_join_next().is_some() {}
        if !self.setting_firewall.is_empty() {
            return;
        }
        let reported = Arc::clone(&self.unprotected);
        let runtime = Arc::clone(&self.core.runtime);
        self.setting_firewall.spawn(async move {
            let applied = runtime.apply_network_policy(&policy).await;
            let was_reported = reported.swap(applied.is_err(), Ordering::Relaxed);
            if let (Err(error), false) = (applied, was_reported) {
                tracing::warn!(
                    error = error_chain(&error),
                    "containers may reach ports of this host and private networks"
                );
            }
        });
    }

    fn watch_disks(&mut self) {
        let fleet = Arc::clone(&self.fleet);
        while self.watching.try_join_next().is_some() {}
        if self.idle || self.engine != EngineState::Available || !self.watching.is_empty() {
            return;
        }
        self.watching
            .spawn(async move { disk_watch::check_disks(&fleet).await });
    }

    fn collect_garbage(&mut self) {
        let now = Instant::now();
        let Some(due) = self
            .gc_schedule
            .due()
            .filter(|_| self.engine == EngineState::Available)
        else {
            return;
        };
        let busy = self.chores.len() > 4;
        if now < due || busy {
            let again = if busy { now + GC_DELAY } else { due };
            self.next = self.next.min(again);
            return;
        }
        self.gc_schedule.begin(now);
        if let Some(due) = self.gc_schedule.due() {
            self.next = self.next.min(due);
        }
        let core = Arc::clone(&self.core);
        self.chores.spawn(async move { !gc::collect(&core).await });
    }
}

/// What instances and builds may reach; none where nothing shall hold them.
fn network_policy(core: &Core) -> Option<NetworkPolicy> {
    let settings = &core.settings.containers;
    settings.firewall.then(|| NetworkPolicy {
        open_ports: settings.inference_port.into_iter().collect(),
        egress: settings.egress,
    })
}

/// Takes back what this process has set. What still runs is held by the engine's own rules until the next
/// start.
async fn remove_network_policy(core: &Core) {
    if let Err(error) = core.runtime.remove_network_policy().await {
        tracing::debug!(
            error = error_chain(&error),
            "no rules of the firewall were removed"
        );
    }
}

fn report<T>(what: &str, done: std::result::Result<T, JoinError>) {
    if let Err(error) = done
        && !error.is_cancelled()
    {
        tracing::error!(%error, "a task was aborted: to {what}");
    }
}

/// Waits for the next event; for ever without a stream of them.
async fn next_event(
    events: &mut Option<BoxStream<'static, std::result::Result<Event, estrade_runtime::Error>>>,
) -> Option<std::result::Result<Event, estrade_runtime::Error>> {
    match events {
        Some(events) => events.next().await,
        None => std::future::pending().await,
    }
}

/// What may have changed.
#[derive(Clone, Copy)]
enum RelevantChange {
    /// What runs of a project.
    Workload(ProjectId),
    /// Something else of one.
    Project,
    Anything,
    /// It may have been any of these.
    Lagged,
}

async fn next_change(changes: &mut Receiver<Change>) -> RelevantChange {
    loop {
        match changes.recv().await {
            Ok(change) => match change.kind {
                ChangeKind::Route => {
                    let project = change.id.parse();
                    return project.map_or(RelevantChange::Anything, RelevantChange::Workload);
                }
                ChangeKind::Release => return RelevantChange::Anything,
                ChangeKind::Project => return RelevantChange::Project,
                ChangeKind::Everything => return RelevantChange::Lagged,
                _ => {}
            },
            Err(RecvError::Lagged(_)) => return RelevantChange::Lagged,
            Err(RecvError::Closed) => std::future::pending().await,
        }
    }
}
