//! The worker: takes releases from the queue and brings each to a terminal state.
//!
//! Level-triggered: it looks at the database when a release changed and once a second anyway, so a
//! missed message costs a second and nothing else.

use super::claim::{Claim, Held, drop_leases, renew_leases};
use super::transition::{Failure, Walk, time_allowed, walk};
use super::work::carry_out;
use crate::{Core, Error, Result};
use estrade_model::ReleaseId;
use estrade_model::error::causes;
use estrade_model::release::ReleaseState;
use estrade_store::release_queue::{self, OverdueRow};
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

/// How many releases one server works on at once.
const MOST_AT_ONCE: usize = 16;
/// How often it looks although nothing woke it: for what is due, and on PostgreSQL for what another server left.
const POLL: Duration = Duration::from_secs(1);
/// How often leases are renewed; several times within one.
const RENEW: Duration = Duration::from_secs(1);
/// Most overdue releases that are ended in one go.
const MOST_OVERDUE: u32 = 100;

/// Works on releases until it is told to stop.
pub struct Worker {
    core: Arc<Core>,
    jobs: JoinSet<()>,
    running: HashMap<TaskId, Running>,
}

struct Running {
    held: Held,
    lost: CancellationToken,
}

impl Worker {
    /// Works until `stop`; what is unfinished then is given back to the queue.
    pub fn run(core: Arc<Core>, stop: CancellationToken) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            // Listening begins before the first look, so that nothing falls in between.
            let mut changes = core.db.changes().subscribe();
            let mut worker = Self {
                core,
                jobs: JoinSet::new(),
                running: HashMap::new(),
            };
            report("take over", worker.take_over().await);
            let (mut polls, mut renewals) = (every(POLL), every(RENEW));
            let mut look = true;
            while !stop.is_cancelled() {
                if look {
                    report("claim", worker.claim().await);
                }
                look = true;
                tokio::select! {
                    () = stop.cancelled() => {}
                    touched = heard(&mut changes) => if worker.works_on(&touched) {
                        report("renew", worker.renew().await);
                    },
                    Some(done) = worker.jobs.join_next_with_id() => worker.forget(done),
                    _ = polls.tick() => report("end overdue", end_overdue(&worker.core).await),
                    _ = renewals.tick(), if worker.is_busy() => {
                        report("renew", worker.renew().await);
                        look = false;
                    }
                }
            }
            worker.stop().await;
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
        let free = MOST_AT_ONCE.saturating_sub(self.running.len());
        let Ok(most @ 1..) = u32::try_from(free) else {
            return Ok(());
        };
        for claim in Claim::take(&self.core, most).await? {
            let lost = CancellationToken::new();
            let held = Held {
                release: claim.release(),
                lease: claim.lease().to_owned(),
            };
            let job = self.jobs.spawn(work_on(claim, lost.clone()));
            self.running.insert(job.id(), Running { held, lost });
        }
        Ok(())
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

    fn forget(&mut self, done: std::result::Result<(TaskId, ()), JoinError>) {
        let id = match done {
            Ok((id, ())) => id,
            Err(error) => {
                tracing::error!(%error, "the work on a release broke off");
                error.id()
            }
        };
        self.running.remove(&id);
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

async fn work_on(claim: Claim, lost: CancellationToken) {
    let (release, _hurry) = (claim.release(), claim.core().rush.begin());
    let done = tokio::select! {
        done = carry_out(claim) => done,
        () = lost.cancelled() => return,
    };
    if let Err(error) = done {
        tracing::warn!(
            %release,
            error = causes(&error),
            "could not work on a release; it is taken up again"
        );
    }
}

/// Ends releases that have been in one state for too long, whoever works on them.
pub async fn end_overdue(core: &Core) -> Result<()> {
    let now = core.now();
    let overdue = release_queue::overdue_releases(&core.db, now, MOST_OVERDUE).await?;
    for OverdueRow { id, state } in overdue {
        let allowed = time_allowed(&core.settings, state);
        core.db
            .transact(move |tx| {
                Box::pin(async move {
                    let failure = timed_out(allowed, state);
                    let end = Walk {
                        release: id,
                        from: state,
                        through: &[end_of(state)],
                        lease: None,
                        deadline: now,
                        failure: Some(&failure),
                    };
                    walk(tx, &end, now).await
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

/// Waits until a release may have changed; returns those that are known to have.
async fn heard(changes: &mut Receiver<Change>) -> Vec<ReleaseId> {
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
    // One look answers all that has come meanwhile.
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
            error = causes(&error),
            "the release worker will try again"
        );
    }
}
