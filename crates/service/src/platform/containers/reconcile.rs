//! Reconciles one project: makes its instances in the engine equal to the desired state in the database.
//!
//! May be dropped at any await and begun again: it reads the state first, and each step is idempotent.

use super::crash_loop::{self, CrashReport};
use super::crashes::Verdict;
use super::fleet::Fleet;
use super::launch::{LaunchError, launch, tell, wait_until_healthy};
use super::rebuild::rebuild;
use super::shutdown::StopReason;
use super::workload::Workload;
use crate::platform::releases::Failure;
use crate::{Core, Error, Result};
use estrade_model::ProjectId;
use estrade_model::error::error_chain;
use estrade_model::project::ProjectStatus;
use estrade_runtime::{Instance, InstanceState};
use estrade_store::workloads;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// How soon to look again at what is about to change by itself.
const SHORT_RECHECK_DELAY: Duration = Duration::from_millis(500);
/// How soon to check again whether a crashed instance stays up, or an instance whose state was unknown.
const RECHECK_DELAY: Duration = Duration::from_secs(30);

/// What is left to do for a project.
#[derive(Debug, Default)]
pub(super) struct ReconcileResult {
    /// Instances to end.
    pub(super) leaving: Vec<(Instance, StopReason)>,
    /// When to look again, although nothing may have changed.
    pub(super) recheck_after: Option<Duration>,
}

impl ReconcileResult {
    fn recheck_in(&mut self, wait: Duration) {
        self.recheck_after = Some(self.recheck_after.map_or(wait, |again| again.min(wait)));
    }
}

/// What the engine has of a project, and whether it may have lost it all at once.
#[derive(Debug, Default)]
pub(super) struct ObservedInstances {
    pub(super) instances: Vec<Instance>,
    /// The engine was away: instances that ended did so with it.
    pub(super) after_outage: bool,
    /// When it was looked at.
    pub(super) at: Option<Instant>,
}

/// Looks after one project. `found` was read before this is called: an instance whose release is not
/// DEPLOYING now was no newer one then.
pub(super) async fn reconcile_project(
    fleet: Arc<Fleet>,
    project: ProjectId,
    found: ObservedInstances,
) -> Result<ReconcileResult> {
    let core = &fleet.core;
    let mut result = ReconcileResult::default();
    // In this order: what was found and is not DEPLOYING any more is live by the time of the second
    // look, or has failed.
    let deploying = workloads::list_deploying(&core.db, project).await?;
    let Some(row) = workloads::read_workload(&core.db, project).await? else {
        let all = found.instances.into_iter();
        result.leaving = all
            .map(|instance| (instance, StopReason::Unwanted))
            .collect();
        return Ok(result);
    };
    if let Some(at) = found.at {
        fleet.forget_missing(project, &found.instances, at);
    }
    let (status, on) = (row.status, row.scale > 0);
    let live = match row.live {
        Some(release) if on => Workload::read(core, row, release).await?,
        _ => None,
    };
    if live.is_none() && status == ProjectStatus::CrashLoop {
        crash_loop::end(core, project).await?;
    }
    let release = live.as_ref().map(|live| live.run.release);
    let (ours, others): (Vec<_>, Vec<_>) = found
        .instances
        .into_iter()
        .partition(|instance| Some(instance.key.release) == release);
    let left = others
        .into_iter()
        .filter(|instance| !deploying.contains(&instance.key.release));
    let why = if on {
        StopReason::Replaced
    } else {
        StopReason::Unwanted
    };
    result.leaving = left.map(|instance| (instance, why)).collect();
    if let Some(live) = live {
        if !live.project.zero_downtime {
            // What is live has ended for a release on its way, or waits for one that failed to end.
            if !deploying.is_empty() {
                return Ok(result);
            }
            if !result.leaving.is_empty() {
                result.recheck_in(SHORT_RECHECK_DELAY);
                return Ok(result);
            }
        }
        let mut reconciler = InstanceReconciler {
            core,
            fleet: &fleet,
            live: &live,
            after_outage: found.after_outage,
            result: &mut result,
        };
        reconciler.reconcile(ours).await?;
    }
    Ok(result)
}

/// Checks an instance that runs and that this process has not started. One whose program has not begun never
/// will: launching it creates it anew.
async fn check_running(
    fleet: &Fleet,
    live: &Workload,
    instance: Instance,
) -> std::result::Result<Instance, LaunchError> {
    if !fleet.core.runtime.is_half_started(&instance.id).await {
        return wait_until_healthy(fleet, live, instance).await;
    }
    launch(fleet, live, instance.key.number).await
}

/// Keeps the instances of a live release.
struct InstanceReconciler<'k> {
    core: &'k Core,
    fleet: &'k Fleet,
    live: &'k Workload,
    after_outage: bool,
    result: &'k mut ReconcileResult,
}

impl InstanceReconciler<'_> {
    async fn reconcile(&mut self, ours: Vec<Instance>) -> Result<()> {
        let most = self.live.project.scale;
        let (mut missing, mut unknown, mut stale) = (Vec::new(), Vec::new(), Vec::new());
        let (mut of_number, surplus): (Vec<_>, Vec<_>) = ours
            .into_iter()
            .partition(|instance| instance.key.number <= most);
        self.replace(surplus);
        for number in 1..=most {
            let digest = self.live.spec(number).digest();
            let all: Vec<_> = of_number
                .extract_if(.., |instance| instance.key.number == number)
                .collect();
            let (same, old): (Vec<_>, Vec<_>) = all
                .into_iter()
                .partition(|instance| instance.digest == digest);
            match same.into_iter().next() {
                Some(instance) if self.fleet.is_leaving(&instance.id) => {
                    self.result.recheck_in(SHORT_RECHECK_DELAY);
                }
                Some(instance) if instance.state == InstanceState::Running => {
                    if self.fleet.is_healthy(&instance) {
                        self.replace(old);
                    } else {
                        unknown.push(instance);
                    }
                }
                Some(instance) if matches!(instance.state, InstanceState::Exited(_)) => {
                    if self.ended(&instance).await? {
                        missing.push(number);
                    }
                }
                Some(instance) if instance.state == InstanceState::Unclear => {
                    self.result.recheck_in(RECHECK_DELAY);
                }
                Some(instance) if instance.state == InstanceState::Other => {
                    self.replace(vec![instance]);
                    self.result.recheck_in(SHORT_RECHECK_DELAY);
                }
                _ if old.iter().any(|it| it.state == InstanceState::Running)
                    && !self.live.project.zero_downtime =>
                {
                    self.replace(old);
                    self.result.recheck_in(SHORT_RECHECK_DELAY);
                }
                _ if old.iter().any(|it| it.state == InstanceState::Running) => {
                    stale.push((number, old));
                }
                _ => {
                    self.replace(old);
                    missing.push(number);
                }
            }
        }
        let complete = missing.is_empty();
        self.complete(unknown, missing).await?;
        if complete {
            self.roll(stale).await?;
        }
        self.recover().await
    }

    fn replace(&mut self, instances: Vec<Instance>) {
        let leaving = instances.into_iter().map(|it| (it, StopReason::Replaced));
        self.result.leaving.extend(leaving);
    }

    /// Checks instances that run but that this process has not found healthy yet, and starts those that are
    /// missing, unless they are in crash backoff. Each gets requests as soon as it is healthy.
    async fn complete(&mut self, unknown: Vec<Instance>, missing: Vec<u32>) -> Result<()> {
        let (core, fleet, live) = (self.core, self.fleet, self.live);
        let mut due = Vec::new();
        for number in missing {
            match fleet.crashes(|crashes| crashes.wait(live.run.release, number)) {
                Some(wait) => self.result.recheck_in(wait),
                None => due.push(number),
            }
        }
        if !due.is_empty() {
            let network = core.runtime.ensure_network(live.project.owner).await;
            network.map_err(Error::internal)?;
        }
        let checks = unknown.into_iter().map(|instance| {
            let number = instance.key.number;
            let check = async move { (number, check_running(fleet, live, instance).await) };
            check.boxed()
        });
        let starts = due
            .into_iter()
            .map(|number| async move { (number, launch(fleet, live, number).await) }.boxed());
        let mut all: FuturesUnordered<_> = checks.chain(starts).collect();
        while let Some(one) = all.next().await {
            self.register_launched(vec![one]).await?;
        }
        Ok(())
    }

    /// Replaces one instance that was made from something else, as after a restart or with another plan;
    /// the next one when this is done.
    async fn roll(&mut self, stale: Vec<(u32, Vec<Instance>)>) -> Result<()> {
        let more = stale.len() > 1;
        let Some((number, old)) = stale.into_iter().next() else {
            return Ok(());
        };
        let release = self.live.run.release;
        if let Some(wait) = self.fleet.crashes(|crashes| crashes.wait(release, number)) {
            self.result.recheck_in(wait);
            return Ok(());
        }
        let launched = launch(self.fleet, self.live, number).await;
        if launched.is_ok() {
            self.replace(old);
        }
        if more {
            self.result.recheck_in(Duration::ZERO);
        }
        self.register_launched(vec![(number, launched)]).await
    }

    async fn register_launched(
        &mut self,
        launched: Vec<(u32, std::result::Result<Instance, LaunchError>)>,
    ) -> Result<()> {
        for (number, launched) in launched {
            match launched {
                Ok(instance) => self.fleet.enter(&instance),
                Err(LaunchError::Unhealthy { instance, failure }) => {
                    self.crashed(number, Some(&instance), failure, Duration::ZERO)
                        .await?;
                }
                Err(LaunchError::Engine(error)) if error.is_engine_away() => {
                    return Err(Error::internal(error));
                }
                Err(LaunchError::Engine(_)) if self.has_lost_image().await? => {
                    let wait = rebuild(self.fleet, self.live).await?;
                    self.result.recheck_in(wait);
                }
                Err(LaunchError::Engine(error)) => {
                    let project = self.live.project.project;
                    tracing::warn!(%project, number, error = error_chain(&error), "the engine refused an instance");
                    let failure = Failure {
                        reason: "engine_refused",
                        message: error.to_string(),
                    };
                    self.crashed(number, None, failure, Duration::ZERO).await?;
                }
            }
        }
        Ok(())
    }

    /// Whether the engine refuses because it does not have the image any more.
    async fn has_lost_image(&self) -> Result<bool> {
        let found = self.core.image_builder.image(self.live.image()).await;
        Ok(found.map_err(Error::internal)?.is_none())
    }

    /// An instance that ended by itself; whether it may be started again now.
    async fn ended(&mut self, instance: &Instance) -> Result<bool> {
        let InstanceState::Exited(exit) = &instance.state else {
            return Ok(false);
        };
        if self.after_outage {
            self.remove(instance).await?;
            return Ok(true);
        }
        let failure = tell(self.fleet, self.live, instance, Some(exit)).await;
        let ran = match (instance.started_at, exit.at) {
            (Some(from), Some(to)) => to.millis().saturating_sub(from.millis()),
            _ => 0,
        };
        let ran = Duration::from_millis(u64::try_from(ran).unwrap_or(0));
        let number = instance.key.number;
        let verdict = self.crashed(number, Some(instance), failure, ran).await?;
        Ok(verdict.wait.is_zero())
    }

    /// Notes a crash and removes what is left of the instance: the next one begins anew.
    async fn crashed(
        &mut self,
        number: u32,
        instance: Option<&Instance>,
        failure: Failure,
        ran: Duration,
    ) -> Result<Verdict> {
        let key = (self.live.run.release, number);
        let id = instance.map(|instance| &instance.id);
        let verdict = self.fleet.crashes(|crashes| crashes.note(key, id, ran));
        if verdict.new {
            let report = CrashReport {
                live: self.live,
                failure: &failure,
                looping: verdict.looping,
            };
            report.record(self.core).await?;
        }
        if let Some(instance) = instance {
            self.remove(instance).await?;
        }
        self.result.recheck_in(verdict.wait);
        Ok(verdict)
    }

    async fn remove(&self, instance: &Instance) -> Result<()> {
        drop(self.fleet.leave(instance, Duration::ZERO));
        self.fleet.settle_logs(&instance.id).await;
        let removed = self.core.runtime.remove_instance(&instance.id).await;
        removed.map_err(Error::internal)
    }

    /// A project whose instances stay up is not in a crash loop any more.
    async fn recover(&mut self) -> Result<()> {
        if self.live.project.status != ProjectStatus::CrashLoop {
            return Ok(());
        }
        let (release, fleet) = (self.live.run.release, self.fleet);
        let healthy = fleet.count_healthy(self.live.project.project, release);
        if healthy < self.live.project.scale as usize
            || fleet.crashes(|crashes| crashes.is_crash_looping(release))
        {
            self.result.recheck_in(RECHECK_DELAY);
            return Ok(());
        }
        crash_loop::end(self.core, self.live.project.project).await
    }
}
