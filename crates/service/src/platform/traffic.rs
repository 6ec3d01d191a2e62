//! The traffic and the use of projects over time: counted in memory, recorded every minute.
//!
//! The edge and the meter only count upwards. [`TrafficRecorder`] compares with what it saw a minute ago and adds the
//! difference to two steps in the database, the minute and the half hour. Steps are sums, so that nodes add to each
//! other, and a restart loses at most what was not recorded yet.

mod latency;
mod series;
mod steps;

pub use latency::{Latency, MAX_MEASURED_LATENCY, latency_of};
pub use series::{TrafficPoint, TrafficRange, TrafficSeries};

use crate::platform::containers::usage::UsageMeter;
use crate::platform::projects::{self, ProjectSummary};
use crate::publisher::PublisherSlot;
use crate::{Core, Result, Scope, Traffic};
use estrade_model::error::error_chain;
use estrade_model::sync::MutexExt;
use estrade_model::{ProjectId, Timestamp};
use estrade_store::traffic::{self, TrafficStep, TrafficSums};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use steps::{HALF_HOUR, MINUTE, start_of};
use tokio_util::sync::CancellationToken;

/// How long minutes are kept; also read by the sweep.
pub(crate) const MINUTES_RETENTION: Duration = Duration::from_mins(65);
/// How long half hours are kept.
pub(crate) const HALF_HOURS_RETENTION: Duration = Duration::from_hours(7 * 24 + 1);
/// Projects that one transaction records: it never holds up the writer for long.
const BATCH_PROJECTS: usize = 250;
/// Steps of a sparkline: a day of half hours.
pub const SPARKLINE_STEPS: usize = 48;

/// Records the traffic of this node.
pub struct TrafficRecorder {
    core: Arc<Core>,
    publisher: Arc<PublisherSlot>,
    meter: Arc<UsageMeter>,
    /// What is recorded, as the edge counts it; bounded by the edge's table of routes.
    recorded: Mutex<HashMap<ProjectId, Traffic>>,
    /// One at a time, so that nothing is recorded twice.
    recording: tokio::sync::Mutex<()>,
}

impl TrafficRecorder {
    /// A recorder that has recorded nothing yet.
    pub fn new(core: &Arc<Core>, publisher: &Arc<PublisherSlot>, meter: &Arc<UsageMeter>) -> Self {
        Self {
            core: Arc::clone(core),
            publisher: Arc::clone(publisher),
            meter: Arc::clone(meter),
            recorded: Mutex::default(),
            recording: tokio::sync::Mutex::default(),
        }
    }

    /// Records at the end of every minute until `stop`, and once more at the end.
    pub async fn run(self: Arc<Self>, stop: CancellationToken) {
        loop {
            let into_minute = self.core.now().millis().rem_euclid(MINUTE * 1000);
            let rest = u64::try_from(MINUTE * 1000 - into_minute).unwrap_or(1000);
            let waited = stop.run_until_cancelled(tokio::time::sleep(Duration::from_millis(rest)));
            let is_over = waited.await.is_none();
            if let Err(error) = self.record().await {
                let error = error_chain(&error);
                tracing::warn!(error, "cannot record the traffic of projects");
            }
            if is_over {
                return;
            }
        }
    }

    /// Adds what was counted since the last time to the present steps.
    pub async fn record(&self) -> Result<()> {
        let _one_at_a_time = self.recording.lock().await;
        // Right after the minute that it counts.
        let at = self.core.now().before(Duration::from_millis(500));
        let counted: HashMap<ProjectId, Traffic> = self
            .publisher
            .get()
            .map(|publisher| publisher.all_traffic())
            .unwrap_or_default()
            .into_iter()
            .collect();
        let mut sums = HashMap::new();
        {
            let mut recorded = self.recorded.lock_ignoring_poison();
            // What the edge does not know any more counts from nothing when it comes back.
            recorded.retain(|project, _| counted.contains_key(project));
            for (project, traffic) in &counted {
                let new = difference(traffic, recorded.get(project));
                if new.requests > 0 {
                    sums.insert(*project, new);
                }
            }
        }
        for (project, used) in self.meter.take_unrecorded() {
            let sums = sums.entry(project).or_default();
            sums.samples = used.samples;
            sums.cpu_millis = used.cpu_millis;
            sums.memory_kib = used.memory_kib;
        }
        let sums: Vec<_> = sums.into_iter().collect();
        for batch in sums.chunks(BATCH_PROJECTS) {
            self.write(batch, at).await?;
            let mut recorded = self.recorded.lock_ignoring_poison();
            for (project, _) in batch {
                if let Some(traffic) = counted.get(project) {
                    recorded.insert(*project, *traffic);
                }
            }
        }
        Ok(())
    }

    async fn write(&self, batch: &[(ProjectId, TrafficSums)], at: Timestamp) -> Result<()> {
        let in_steps = |&(project, sums): &(ProjectId, TrafficSums)| {
            [MINUTE, HALF_HOUR].map(|step| TrafficStep {
                project,
                step,
                at: start_of(at, step),
                sums,
            })
        };
        let steps: Arc<Vec<TrafficStep>> = Arc::new(batch.iter().flat_map(in_steps).collect());
        self.core
            .db
            .transact(move |tx| {
                let steps = Arc::clone(&steps);
                Box::pin(async move { Ok(traffic::add_traffic(tx, &steps).await?) })
            })
            .await
    }

    /// What was counted of a project and is not recorded yet.
    fn unrecorded(&self, project: ProjectId) -> TrafficSums {
        let traffic = self.publisher.get().and_then(|it| it.traffic(project));
        let mut sums = traffic.map_or_else(TrafficSums::default, |traffic| {
            let recorded = self.recorded.lock_ignoring_poison();
            difference(&traffic, recorded.get(&project))
        });
        let used = self.meter.unrecorded(project);
        sums.samples = used.samples;
        sums.cpu_millis = used.cpu_millis;
        sums.memory_kib = used.memory_kib;
        sums
    }

    /// What a project did in the last hour, day or week, up to this moment.
    pub async fn read_series(
        &self,
        scope: &Scope,
        project: &str,
        range: TrafficRange,
    ) -> Result<TrafficSeries> {
        let project = projects::find_project(&self.core, scope, project).await?.id;
        let now = self.core.now();
        let rows = traffic::list_traffic(
            &self.core.db,
            project,
            range.stored_step(),
            range.start(now),
        )
        .await?;
        Ok(TrafficSeries::new(
            range,
            now,
            rows,
            self.unrecorded(project),
        ))
    }

    /// The requests of each project of a page (64 at most) in the last day, half hour by half hour, oldest first.
    /// Projects without any are left out.
    pub async fn list_sparklines(
        &self,
        projects: &[ProjectSummary],
    ) -> Result<HashMap<ProjectId, [u64; SPARKLINE_STEPS]>> {
        let projects: Vec<_> = projects.iter().map(|it| it.project.id).collect();
        let last = start_of(self.core.now(), HALF_HOUR);
        let first = last.before(Duration::from_secs(1800 * (SPARKLINE_STEPS as u64 - 1)));
        let rows = traffic::list_requests(&self.core.db, &projects, HALF_HOUR, first).await?;
        let mut sparklines: HashMap<ProjectId, [u64; SPARKLINE_STEPS]> = HashMap::new();
        let mut add = |project, at: Timestamp, requests: u64| {
            let index = (at.millis() - first.millis()) / (HALF_HOUR * 1000);
            let steps = sparklines.entry(project).or_insert([0; SPARKLINE_STEPS]);
            if let Some(step) = usize::try_from(index).ok().and_then(|at| steps.get_mut(at)) {
                *step += requests;
            }
        };
        for row in rows {
            add(row.project, row.at, row.requests);
        }
        for project in projects {
            let requests = self.unrecorded(project).requests;
            if requests > 0 {
                add(project, last, requests);
            }
        }
        Ok(sparklines)
    }
}

/// What was counted since. A counter that is lower than before began again.
fn difference(now: &Traffic, before: Option<&Traffic>) -> TrafficSums {
    let total = |traffic: &Traffic| traffic.requests.iter().sum::<u64>();
    let nothing = Traffic::default();
    let before = before
        .filter(|before| total(before) <= total(now))
        .unwrap_or(&nothing);
    let mut sums = TrafficSums {
        requests: total(now) - total(before),
        errors: now.requests[4].saturating_sub(before.requests[4]),
        bytes: now.bytes.saturating_sub(before.bytes),
        ..TrafficSums::default()
    };
    for (time, (now, before)) in sums
        .times
        .iter_mut()
        .zip(now.times.iter().zip(before.times))
    {
        *time = now.saturating_sub(before);
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;

    fn traffic(requests: u64, errors: u64) -> Traffic {
        let mut times = [0; 10];
        times[2] = requests + errors;
        Traffic {
            requests: [0, requests, 0, 0, errors],
            bytes: 10 * requests,
            times,
        }
    }

    #[test]
    fn a_difference_is_what_came_since() {
        let new = difference(&traffic(7, 3), Some(&traffic(5, 1)));
        assert_eq!((new.requests, new.errors, new.bytes), (4, 2, 20));
        assert_eq!(new.times[2], 4);
        assert_eq!(difference(&traffic(7, 3), None).requests, 10);
        // The edge forgot the route and counts anew.
        assert_eq!(difference(&traffic(2, 0), Some(&traffic(5, 1))).requests, 2);
        assert_eq!(
            difference(&traffic(5, 1), Some(&traffic(5, 1))),
            TrafficSums::default()
        );
    }

    #[test]
    fn steps_begin_at_multiples() {
        let at = Timestamp::from_millis(1_794_704_523_004);
        assert_eq!(start_of(at, MINUTE).millis() % 60_000, 0);
        assert!(at.millis() - start_of(at, HALF_HOUR).millis() < 1_800_000);
    }
}
