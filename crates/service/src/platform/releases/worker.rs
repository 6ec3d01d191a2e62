//! The worker: takes releases from the queue and brings each to a terminal state.
//!
//! Level-triggered: it looks at the database when a release changed and once a second anyway, so a
//! missed message costs a second and nothing else.

use super::EagerCompressor;
use super::build::save_caches;
use super::build_slots::MAX_BUILDS;
use super::claim::{Claim, HeldLease, drop_leases, renew_leases, requeue};
use super::schedule::{Load, MAX_DEPLOYS, MAX_PER_OWNER, MAX_STATIC, Schedule};
use super::steps::{RunOutcome, run_release};
use super::transition::{Failure, MAX_QUEUED, Transition, apply_transition, time_allowed};
use crate::nodes::Membership;
use crate::platform::containers::Fleet;
use crate::{Core, Error, Result};
use estrade_model::error::error_chain;
use estrade_model::release::ReleaseState;
use estrade_model::{OwnerId, ReleaseId};
use estrade_store::release_queue::{self, ClaimFilter, OverdueRow, ReleaseQueue};
use estrade_store::{Change, ChangeKind};
use futures_util::future::BoxFuture;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::{RecvError, TryRecvError};
use tokio::task::{Id as TaskId, JoinError, JoinSet};
use tokio::time::{Interval, MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

/// Most releases of one owner and queue that are considered at once; more than can be taken.
const MAX_CONSIDERED: u32 = 32;
/// Most releases of all that are considered at once.
const MAX_CANDIDATES: u32 = 1024;
/// How often it looks although nothing woke it: for what is due, and on PostgreSQL for what another server left.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// How often leases are renewed; several times within one.
const RENEW_INTERVAL: Duration = Duration::from_secs(1);
/// Most overdue releases that are ended in one go.
const MAX_OVERDUE: u32 = 100;

/// Works on releases until it is cancelled.
pub struct Worker {
    core: Arc<Core>,
    fleet: Arc<Fleet>,
    eager_compressor: EagerCompressor,
    nodes: Arc<Membership>,
    jobs: JoinSet<RunOutcome>,
    running: HashMap<TaskId, Running>,
    schedule: Schedule,
}

struct Running {
    held: HeldLease,
    owner: OwnerId,
    /// Whether it is a static one.
    is_static: bool,
    lost: CancellationToken,
}

impl Worker {
    /// Works until `stop`; what is unfinished then is given back to the queue.
    pub fn run(
        fleet: Arc<Fleet>,
        eager_compressor: EagerCompressor,
        nodes: Arc<Membership>,
        stop: CancellationToken,
    ) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            let also = Arc::clone(&fleet);
            let saving = save_caches(&also.core, &also.package_caches, &stop);
            let working = async {
                let core = Arc::clone(&fleet.core);
                // Listening begins before the first look, so that nothing falls in between.
                let mut changes = core.db.changes().subscribe();
                let mut worker = Self {
                    core,
                    fleet,
                    eager_compressor,
                    nodes,
                    jobs: JoinSet::new(),
                    running: HashMap::new(),
                    schedule: Schedule::default(),
                };
                report("take over", worker.take_over().await);
                let slots = Arc::clone(&worker.fleet.build_slots);
                let (mut polls, mut renewals) = (every(POLL_INTERVAL), every(RENEW_INTERVAL));
                let mut look = true;
                while !stop.is_cancelled() {
                    if look {
                        report("claim", worker.claim().await);
                    }
                    look = true;
                    tokio::select! {
                        () = stop.cancelled() => {}
                        touched = next_changes(&mut changes) => if worker.works_on(&touched) {
                            report("renew", worker.renew().await);
                        },
                        Some(done) = worker.jobs.join_next_with_id() => worker.forget(done),
                        () = slots.freed() => {}
                        _ = polls.tick() => report("end overdue", end_overdue(&worker.core).await),
                        _ = renewals.tick(), if worker.is_busy() => {
                            report("renew", worker.renew().await);
                            look = false;
                        }
                    }
                }
                worker.stop().await;
            };
            tokio::join!(working, saving);
        })
    }

    /// On SQLite no other server exists: leases are those of an earlier life of this one.
    async fn take_over(&self) -> Result<()> {
        if !self.core.db.is_sqlite() {
            return Ok(());
        }
        let count = self
            .core
            .db
            .transact(|tx| {
                Box::pin(async move { Ok::<_, Error>(release_queue::drop_all_leases(tx).await?) })
            })
            .await?;
        if count > 0 {
            tracing::info!(count, "took over unfinished releases");
        }
        Ok(())
    }

    async fn claim(&mut self) -> Result<()> {
        let load = self.load();
        let builds = load.has_room(ReleaseQueue::Build);
        if !builds && !load.has_room(ReleaseQueue::Static) && !load.has_room(ReleaseQueue::Deploy) {
            return Ok(());
        }
        let filter = ClaimFilter {
            engine: !self.nodes.leaves_containers_to_others(),
            builds,
            per_owner: MAX_CONSIDERED,
            limit: MAX_CANDIDATES,
        };
        let now = self.core.now();
        let waiting = release_queue::claimable_releases(&self.core.db, now, filter).await?;
        let picked = self.schedule.pick(waiting, load);
        let queues: HashMap<_, _> = picked.iter().map(|(row, queue)| (row.id, *queue)).collect();
        let rows = picked.into_iter().map(|(row, _)| row).collect();
        for mut claim in Claim::take_these(&self.core, rows).await? {
            let queue = queues.get(&claim.release()).copied();
            if queue == Some(ReleaseQueue::Build) {
                claim.take_build_slot(&self.fleet.build_slots);
            }
            let (lost, owner) = (CancellationToken::new(), claim.owner());
            let held = HeldLease {
                release: claim.release(),
                lease: claim.lease().to_owned(),
            };
            let job = self.jobs.spawn(work_on(
                claim,
                Arc::clone(&self.fleet),
                self.eager_compressor.clone(),
                held.clone(),
                lost.clone(),
            ));
            let running = Running {
                held,
                owner,
                is_static: queue == Some(ReleaseQueue::Static),
                lost,
            };
            self.running.insert(job.id(), running);
        }
        Ok(())
    }

    /// What is in work here. A release that was built and is being put in place has given its build slot back.
    fn load(&self) -> Load {
        let slots = &self.fleet.build_slots;
        let mut load = Load {
            per_owner: MAX_PER_OWNER,
            ..Load::default()
        };
        let mut containers: HashMap<OwnerId, usize> = HashMap::new();
        for running in self.running.values() {
            let count = if running.is_static {
                let key = (ReleaseQueue::Static, running.owner);
                load.active.entry(key).or_default()
            } else {
                containers.entry(running.owner).or_default()
            };
            *count += 1;
        }
        let statics: usize = load.active.values().sum();
        let others: usize = containers.values().sum();
        for (owner, count) in containers {
            let builds = slots.held_by(owner);
            let deploys = count.saturating_sub(builds);
            load.active.insert((ReleaseQueue::Build, owner), builds);
            load.active.insert((ReleaseQueue::Deploy, owner), deploys);
        }
        let free = slots.free();
        let deploys = others.saturating_sub(MAX_BUILDS.saturating_sub(free));
        let rooms = [
            (ReleaseQueue::Static, MAX_STATIC.saturating_sub(statics)),
            (ReleaseQueue::Deploy, MAX_DEPLOYS.saturating_sub(deploys)),
            // What is built must be put in place.
            (
                ReleaseQueue::Build,
                free.min((MAX_DEPLOYS + MAX_BUILDS).saturating_sub(others)),
            ),
        ];
        load.room.extend(rooms);
        load
    }

    fn is_busy(&self) -> bool {
        !self.running.is_empty()
    }

    fn works_on(&self, touched: &[ReleaseId]) -> bool {
        self.running
            .values()
            .any(|running| touched.contains(&running.held.release))
    }

    /// Keeps the leases alive, and stops the work on releases that are not ours any more.
    async fn renew(&self) -> Result<()> {
        let held: Vec<_> = self.running.values().map(|it| it.held.clone()).collect();
        if held.is_empty() {
            return Ok(());
        }
        let lost = renew_leases(&self.core, held).await?;
        for running in self.running.values() {
            if lost.contains(&running.held.release) {
                running.lost.cancel();
            }
        }
        Ok(())
    }

    fn forget(&mut self, done: std::result::Result<(TaskId, RunOutcome), JoinError>) {
        let (id, done) = match done {
            Ok(done) => done,
            Err(error) => {
                tracing::error!(%error, "the run of a release was aborted");
                (error.id(), RunOutcome::Settled)
            }
        };
        if let (Some(running), RunOutcome::NeedsBuild) = (self.running.remove(&id), done) {
            self.schedule.note_build(running.held.release);
        }
    }

    async fn stop(mut self) {
        for running in self.running.values() {
            running.lost.cancel();
        }
        while self.jobs.join_next().await.is_some() {}
        let held: Vec<_> = self.running.into_values().map(|it| it.held).collect();
        if !held.is_empty() {
            report("give back", drop_leases(&self.core, held).await);
        }
    }
}

async fn work_on(
    claim: Claim,
    fleet: Arc<Fleet>,
    eager: EagerCompressor,
    held: HeldLease,
    lost: CancellationToken,
) -> RunOutcome {
    let (core, release) = (Arc::clone(claim.core()), claim.release());
    let _foreground = eager.priority_gate().enter_foreground();
    let work = async {
        let done = run_release(claim, &fleet, &eager).await?;
        if done == RunOutcome::NeedsBuild {
            requeue(&core, held).await?;
        }
        Ok::<_, Error>(done)
    };
    let done = tokio::select! {
        done = work => done,
        () = lost.cancelled() => return RunOutcome::Settled,
    };
    done.unwrap_or_else(|error| {
        tracing::warn!(
            %release,
            error = error_chain(&error),
            "could not work on a release; it is taken up again"
        );
        RunOutcome::Settled
    })
}

/// Ends releases that have been in one state for too long, even under a live lease.
pub async fn end_overdue(core: &Core) -> Result<()> {
    let now = core.now();
    let overdue = release_queue::overdue_releases(&core.db, now, MAX_OVERDUE).await?;
    for OverdueRow {
        id,
        state,
        created_at,
    } in overdue
    {
        let queued = state == ReleaseState::Pending && now >= created_at.after(MAX_QUEUED);
        let allowed = time_allowed(&core.settings, state);
        core.db
            .transact(move |tx| {
                Box::pin(async move {
                    let failure = if queued {
                        queued_too_long()
                    } else {
                        timed_out(allowed, state)
                    };
                    let end = Transition {
                        release: id,
                        from: state,
                        through: &[end_of(state)],
                        lease: None,
                        deadline: now,
                        failure: Some(&failure),
                    };
                    apply_transition(tx, &end, now).await
                })
            })
            .await?;
    }
    Ok(())
}

/// A release that only waited has not timed out in anything: it failed.
fn end_of(state: ReleaseState) -> ReleaseState {
    if state.may_become(ReleaseState::TimedOut) {
        ReleaseState::TimedOut
    } else {
        ReleaseState::Failed
    }
}

fn timed_out(allowed: Duration, state: ReleaseState) -> Failure {
    let minutes = allowed.as_secs() / 60;
    Failure {
        reason: "timeout",
        message: format!("it was {state} for more than {minutes} minutes; deploy again"),
    }
}

fn queued_too_long() -> Failure {
    let hours = MAX_QUEUED.as_secs() / 3600;
    Failure {
        reason: "timeout",
        message: format!("it waited in the queue for more than {hours} hours; deploy again"),
    }
}

/// Waits until a release may have changed; returns those that are known to have.
async fn next_changes(changes: &mut Receiver<Change>) -> Vec<ReleaseId> {
    let is_ours = |kind| matches!(kind, ChangeKind::Release | ChangeKind::Everything);
    let mut touched: Vec<ReleaseId> = Vec::new();
    loop {
        match changes.recv().await {
            Ok(change) if is_ours(change.kind) => {
                touched.extend(change.id.parse::<ReleaseId>());
                break;
            }
            Ok(_) => {}
            Err(RecvError::Lagged(_)) => break,
            // The database is closing; `stop` will end the wait.
            Err(RecvError::Closed) => std::future::pending().await,
        }
    }
    // Drains the notifications: one query covers all of them.
    loop {
        match changes.try_recv() {
            Ok(change) if change.kind == ChangeKind::Release => {
                touched.extend(change.id.parse::<ReleaseId>());
            }
            Ok(_) | Err(TryRecvError::Lagged(_)) => {}
            Err(TryRecvError::Empty | TryRecvError::Closed) => return touched,
        }
    }
}

fn every(period: Duration) -> Interval {
    let mut ticks = interval(period);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}

/// A database that is away for a while is no reason to stop: the next look may succeed.
fn report(step: &str, result: Result<()>) {
    if let Err(error) = result {
        tracing::warn!(
            step,
            error = error_chain(&error),
            "the release worker will try again"
        );
    }
}
