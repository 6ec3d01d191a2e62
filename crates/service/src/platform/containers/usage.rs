//! What the instances of projects use, measured every ten seconds and kept in memory for an hour.

mod ring;

use super::fleet::Fleet;
use crate::{Core, Error, Result, Scope, Traffic, platform::projects};
use estrade_model::ProjectId;
use estrade_model::error::error_chain;
use estrade_model::metrics::{
    MetricDisk, MetricLimits, MetricSample, MetricSummary, ProjectMetrics, SummaryBytes,
    SummaryCpu, SummaryNetwork, SummaryRequests,
};
use estrade_model::plan::Plan;
use estrade_model::sync::MutexExt;
use estrade_runtime::{Instance, InstanceId, InstanceState, Stats};
use estrade_store::projects as project_rows;
use futures_util::{StreamExt, stream};
use ring::Ring;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::{Instant, MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

/// From one sample to the next.
const SAMPLE_INTERVAL: Duration = Duration::from_secs(10);
/// While nothing runs, the engine is queried only every so many steps.
const IDLE_STEPS: u32 = 6;
/// Instances that are measured at once. The engine takes up to a second for each.
const MAX_CONCURRENT_SAMPLES: usize = 64;
/// When the last measurement is longer ago, what a new instance has used may be older than that.
const MAX_SAMPLE_AGE: Duration = Duration::from_secs(30);

/// Classes of status, as [`Traffic`] counts them.
const STATUS_CLASSES: [&str; 5] = ["1xx", "2xx", "3xx", "4xx", "5xx"];

/// Measures what instances use.
pub struct UsageMeter {
    core: Arc<Core>,
    fleet: Arc<Fleet>,
    /// Bounded by what runs: a project of which nothing ran for an hour is not in it.
    rings: Mutex<HashMap<ProjectId, Ring>>,
    /// What was measured since it was last recorded; bounded by what runs within a minute.
    unrecorded: Mutex<HashMap<ProjectId, UsageSums>>,
}

/// What the instances of a project used, one sample added to the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct UsageSums {
    pub(crate) samples: u64,
    /// In thousandths of a core.
    pub(crate) cpu_millis: u64,
    pub(crate) memory_kib: u64,
}

/// What one measurement leaves for the next.
#[derive(Default)]
pub struct Measuring {
    /// When the last one was.
    at: Option<Instant>,
    last: HashMap<InstanceId, Reading>,
    /// Steps until the engine is queried again, while nothing runs.
    rest: u32,
}

/// What an instance has used until a moment.
struct Reading {
    at: Instant,
    stats: Stats,
}

impl UsageMeter {
    /// A meter that has measured nothing yet.
    pub fn new(fleet: &Arc<Fleet>) -> Arc<Self> {
        Arc::new(Self {
            core: Arc::clone(&fleet.core),
            fleet: Arc::clone(fleet),
            rings: Mutex::default(),
            unrecorded: Mutex::default(),
        })
    }

    /// Measures until `stop`.
    pub async fn run(self: Arc<Self>, stop: CancellationToken) {
        let mut steps = interval(SAMPLE_INTERVAL);
        steps.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut measuring = Measuring::default();
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                _ = steps.tick() => {}
            }
            let measured = tokio::select! {
                () = stop.cancelled() => return,
                measured = self.step(&mut measuring) => measured,
            };
            if let Err(error) = measured {
                tracing::debug!(error = error_chain(&error), "cannot measure instances");
            }
        }
    }

    /// Measures once, unless nothing runs and the engine was queried recently.
    pub async fn step(&self, measuring: &mut Measuring) -> Result<()> {
        if measuring.rest > 0 {
            measuring.rest -= 1;
            return Ok(());
        }
        self.forget_old();
        // Where nothing was ever built there is nothing to measure, and maybe no engine.
        if measuring.last.is_empty() {
            measuring.rest = IDLE_STEPS - 1;
            if !project_rows::has_images(&self.core.db).await? {
                return Ok(());
            }
        }
        let instances = self.core.runtime.instances().await;
        let instances = instances.map_err(Error::internal)?;
        let running = |instance: &Instance| instance.state == InstanceState::Running;
        let readings = stream::iter(instances.into_iter().filter(running))
            .map(|instance| self.read(instance))
            .buffer_unordered(MAX_CONCURRENT_SAMPLES)
            .filter_map(|reading| async { reading })
            .collect::<Vec<_>>()
            .await;
        if !readings.is_empty() {
            measuring.rest = 0;
        }
        self.note(measuring.compare(readings));
        Ok(())
    }

    /// None: it has ended, or the engine does not know.
    async fn read(&self, instance: Instance) -> Option<(Instance, Reading)> {
        let stats = match self.core.runtime.stats(&instance.id).await {
            Ok(stats) => stats?,
            Err(error) => {
                tracing::debug!(error = error_chain(&error), "cannot measure an instance");
                return None;
            }
        };
        let at = Instant::now();
        Some((instance, Reading { at, stats }))
    }

    fn note(&self, used: HashMap<ProjectId, Use>) {
        let now = self.core.now();
        {
            let mut unrecorded = self.unrecorded.lock_ignoring_poison();
            for (project, used) in &used {
                let sums = unrecorded.entry(*project).or_default();
                sums.samples += 1;
                sums.cpu_millis += whole(used.cpu * 1000.0);
                sums.memory_kib += used.memory / 1024;
            }
        }
        let mut rings = self.rings.lock_ignoring_poison();
        for (project, used) in used {
            rings.entry(project).or_default().push(&MetricSample {
                timestamp: now,
                cpu: used.cpu,
                memory: used.memory,
                network_in: whole(used.network_in),
                network_out: whole(used.network_out),
                instances: used.instances,
            });
        }
    }

    /// What was measured since the last call.
    pub(crate) fn take_unrecorded(&self) -> HashMap<ProjectId, UsageSums> {
        std::mem::take(&mut self.unrecorded.lock_ignoring_poison())
    }

    /// What was measured of a project and is not recorded yet.
    pub(crate) fn unrecorded(&self, project: ProjectId) -> UsageSums {
        let unrecorded = self.unrecorded.lock_ignoring_poison();
        unrecorded.get(&project).copied().unwrap_or_default()
    }

    fn forget_old(&self) {
        let now = self.core.now();
        let mut rings = self.rings.lock_ignoring_poison();
        rings.retain(|_, ring| {
            ring.forget_before(now);
            !ring.is_empty()
        });
    }

    /// What a project's instances on this node used in the last hour, and the project's name.
    pub async fn read_metrics(
        &self,
        scope: &Scope,
        project: &str,
    ) -> Result<(String, ProjectMetrics)> {
        let row = projects::find_project(&self.core, scope, project).await?;
        let plan = self.core.settings.plans.get(&row.plan);
        let limits = MetricLimits {
            memory: plan.map_or(0, |plan| plan.memory_mb.saturating_mul(1 << 20)),
            cpus: plan.map_or(0, |plan| plan.cpus),
        };
        let rings = self.rings.lock_ignoring_poison();
        let ring = rings.get(&row.id);
        let metrics = ProjectMetrics {
            step: SAMPLE_INTERVAL.as_secs(),
            samples: ring.map_or_else(Vec::new, |ring| ring.samples().collect()),
            limits,
            disk: MetricDisk {
                used: self.fleet.disk_of(row.id),
                limit: plan.map_or(0, Plan::disk_bytes),
            },
        };
        Ok((row.name, metrics))
    }
}

impl UsageMeter {
    /// The present resource usage of a project's instances on this node, and its traffic.
    pub async fn read_summary(&self, scope: &Scope, project: &str) -> Result<MetricSummary> {
        let row = projects::find_project(&self.core, scope, project).await?;
        let plan = self.core.settings.plans.get(&row.plan);
        let oldest = self.core.now().before(MAX_SAMPLE_AGE);
        let sample = {
            let rings = self.rings.lock_ignoring_poison();
            let last = rings.get(&row.id).and_then(|ring| ring.samples().last());
            last.filter(|sample| sample.timestamp >= oldest)
        };
        let of_all = |one: u64| one.saturating_mul(row.scale.into());
        Ok(MetricSummary {
            timestamp: sample.map(|sample| sample.timestamp),
            instances: sample.map_or(0, |sample| sample.instances),
            cpu: SummaryCpu {
                used: sample.map_or(0.0, |sample| sample.cpu),
                limit: of_all(plan.map_or(0, |plan| plan.cpus)),
            },
            memory: SummaryBytes {
                used: sample.map_or(0, |sample| sample.memory),
                limit: of_all(plan.map_or(0, |plan| plan.memory_mb.saturating_mul(1 << 20))),
            },
            disk: MetricDisk {
                used: self.fleet.disk_of(row.id),
                limit: plan.map_or(0, Plan::disk_bytes),
            },
            network: SummaryNetwork {
                r#in: sample.map_or(0, |sample| sample.network_in),
                out: sample.map_or(0, |sample| sample.network_out),
            },
            requests: requests_of(&self.fleet, row.id),
        })
    }
}

fn requests_of(fleet: &Fleet, project: ProjectId) -> SummaryRequests {
    let traffic = fleet.publisher.get().and_then(|it| it.traffic(project));
    let Traffic {
        requests, bytes, ..
    } = traffic.unwrap_or_default();
    SummaryRequests {
        total: requests.iter().sum(),
        by_status: STATUS_CLASSES.into_iter().zip(requests).collect(),
        bytes,
    }
}

/// What the instances of a project use together; rates are per second.
#[derive(Debug, Default, PartialEq)]
struct Use {
    cpu: f64,
    memory: u64,
    network_in: f64,
    network_out: f64,
    instances: u32,
}

impl Measuring {
    /// The usage since the last measurement. An instance that was not measured before has none yet.
    fn compare(&mut self, readings: Vec<(Instance, Reading)>) -> HashMap<ProjectId, Use> {
        let before = self.at.replace(Instant::now());
        let mut used: HashMap<ProjectId, Use> = HashMap::new();
        let mut last = HashMap::with_capacity(readings.len());
        for (instance, reading) in readings {
            if let Some(rates) = reading.since(self.last.get(&instance.id), before) {
                let sum = used.entry(instance.key.project).or_default();
                sum.cpu += rates.cpu;
                sum.memory += rates.memory;
                sum.network_in += rates.network_in;
                sum.network_out += rates.network_out;
                sum.instances += 1;
            }
            last.insert(instance.id, reading);
        }
        self.last = last;
        used
    }
}

impl Reading {
    /// What was used since the reading before. An instance that is new since a recent measurement has used
    /// everything after it.
    fn since(&self, before: Option<&Self>, measured: Option<Instant>) -> Option<Use> {
        const NOTHING: Stats = Stats {
            cpu_ns: 0,
            memory: 0,
            pids: 0,
            received: 0,
            sent: 0,
        };
        let recent = measured.filter(|at| self.at.duration_since(*at) < MAX_SAMPLE_AGE);
        let (from, stats) = match before {
            // A container that was started again counts from nothing.
            Some(before) if before.stats.cpu_ns > self.stats.cpu_ns => (before.at, NOTHING),
            Some(before) => (before.at, before.stats),
            None => (recent?, NOTHING),
        };
        let seconds = self.at.duration_since(from).as_secs_f64().max(0.001);
        let rate = |now: u64, before: u64| precise(now.saturating_sub(before)) / seconds;
        Some(Use {
            cpu: rate(self.stats.cpu_ns, stats.cpu_ns) / 1e9,
            memory: self.stats.memory,
            network_in: rate(self.stats.received, stats.received),
            network_out: rate(self.stats.sent, stats.sent),
            instances: 1,
        })
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "a byte more or less in a petabyte does not matter"
)]
fn precise(number: u64) -> f64 {
    number as f64
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a conversion of floats saturates"
)]
fn whole(number: f64) -> u64 {
    number.round() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(at: Instant, cpu_ms: u64, bytes: u64) -> Reading {
        let stats = Stats {
            cpu_ns: cpu_ms * 1_000_000,
            memory: 7,
            pids: 1,
            received: bytes,
            sent: 2 * bytes,
        };
        Reading { at, stats }
    }

    #[test]
    fn rates_are_of_the_time_between_two_readings() {
        let start = Instant::now();
        let later = start + Duration::from_secs(10);
        let (first, second) = (reading(start, 1_000, 100), reading(later, 6_000, 1_100));
        let used = second.since(Some(&first), Some(start)).unwrap();
        let expected = Use {
            cpu: 0.5,
            memory: 7,
            network_in: 100.0,
            network_out: 200.0,
            instances: 1,
        };
        assert_eq!(used, expected);
    }

    #[test]
    fn a_new_instance_has_used_everything_since_the_last_measurement() {
        let start = Instant::now();
        let new = reading(start + Duration::from_secs(10), 2_000, 0);
        assert!((new.since(None, Some(start)).unwrap().cpu - 0.2).abs() < 1e-9);
        // It is unknown since when it runs.
        assert_eq!(new.since(None, None), None);
        let late = reading(start + Duration::from_mins(1), 2_000, 0);
        assert_eq!(late.since(None, Some(start)), None);
    }

    #[test]
    fn a_container_that_was_started_again_counts_from_nothing() {
        let start = Instant::now();
        let before = reading(start, 9_000, 9_000);
        let again = reading(start + Duration::from_secs(10), 1_000, 50);
        let used = again.since(Some(&before), Some(start)).unwrap();
        assert!((used.cpu - 0.1).abs() < 1e-9, "{used:?}");
        assert!((used.network_in - 5.0).abs() < 1e-9, "{used:?}");
    }
}
