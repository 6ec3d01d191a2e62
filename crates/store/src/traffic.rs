//! What visitors of projects got and what instances used, as sums per step of time.

use crate::id_list::{bind_ids, id_list};
use crate::prune::prune;
use crate::{Db, Record, Row, StoreError, Tx, Value};
use estrade_model::{ProjectId, Timestamp};

/// Elements of the histogram of the time to respond.
pub const TIME_BUCKETS: usize = 10;

/// The sums of one step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TrafficSums {
    pub requests: u64,
    /// Responses with a status of 500 and above.
    pub errors: u64,
    /// Bytes of bodies.
    pub bytes: u64,
    /// How often instances were measured.
    pub samples: u64,
    /// CPU in thousandths of a core, one sample after the other.
    pub cpu_millis: u64,
    /// Memory in KiB, one sample after the other.
    pub memory_kib: u64,
    /// Responses by the time that they took.
    pub times: [u64; TIME_BUCKETS],
}

impl TrafficSums {
    /// Adds what another step has.
    pub fn add(&mut self, other: &Self) {
        let sum = |one: &mut u64, more: u64| *one = one.saturating_add(more);
        sum(&mut self.requests, other.requests);
        sum(&mut self.errors, other.errors);
        sum(&mut self.bytes, other.bytes);
        sum(&mut self.samples, other.samples);
        sum(&mut self.cpu_millis, other.cpu_millis);
        sum(&mut self.memory_kib, other.memory_kib);
        for (one, more) in self.times.iter_mut().zip(other.times) {
            sum(one, more);
        }
    }
}

/// A step of a project.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrafficStep {
    pub project: ProjectId,
    /// How long it is, in seconds.
    pub step: i64,
    /// When it begins.
    pub at: Timestamp,
    pub sums: TrafficSums,
}

/// Adds sums to their steps. What belongs to a project that is gone is left out.
pub async fn add_traffic(tx: &mut Tx, steps: &[TrafficStep]) -> Result<(), StoreError> {
    let row = |step: &TrafficStep| -> Result<Vec<Value>, StoreError> {
        let sums = &step.sums;
        let mut values = vec![step.project.into(), step.step.into(), step.at.into()];
        let counted = [
            sums.requests,
            sums.errors,
            sums.bytes,
            sums.samples,
            sums.cpu_millis,
            sums.memory_kib,
        ];
        for count in counted.into_iter().chain(sums.times) {
            values.push(i64::try_from(count).map_err(StoreError::bug)?.into());
        }
        Ok(values)
    };
    tx.execute_many(
        "INSERT INTO project_traffic AS sums (project_id, step, at, requests, errors, bytes, samples, cpu_millis,
             memory_kib, t0, t1, t2, t3, t4, t5, t6, t7, t8, t9)
         SELECT p.id, CAST($2 AS BIGINT), CAST($3 AS BIGINT), CAST($4 AS BIGINT), CAST($5 AS BIGINT),
             CAST($6 AS BIGINT), CAST($7 AS BIGINT), CAST($8 AS BIGINT), CAST($9 AS BIGINT), CAST($10 AS BIGINT),
             CAST($11 AS BIGINT), CAST($12 AS BIGINT), CAST($13 AS BIGINT), CAST($14 AS BIGINT), CAST($15 AS BIGINT),
             CAST($16 AS BIGINT), CAST($17 AS BIGINT), CAST($18 AS BIGINT), CAST($19 AS BIGINT)
         FROM projects p WHERE p.id = $1
         ON CONFLICT (project_id, step, at) DO UPDATE SET
             requests = sums.requests + excluded.requests, errors = sums.errors + excluded.errors,
             bytes = sums.bytes + excluded.bytes, samples = sums.samples + excluded.samples,
             cpu_millis = sums.cpu_millis + excluded.cpu_millis,
             memory_kib = sums.memory_kib + excluded.memory_kib,
             t0 = sums.t0 + excluded.t0, t1 = sums.t1 + excluded.t1, t2 = sums.t2 + excluded.t2,
             t3 = sums.t3 + excluded.t3, t4 = sums.t4 + excluded.t4, t5 = sums.t5 + excluded.t5,
             t6 = sums.t6 + excluded.t6, t7 = sums.t7 + excluded.t7, t8 = sums.t8 + excluded.t8,
             t9 = sums.t9 + excluded.t9",
        steps.iter().map(row).collect::<Result<_, _>>()?,
    )
    .await
}

/// When a step begins, and its sums.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrafficRow {
    pub at: Timestamp,
    pub sums: TrafficSums,
}

impl Record for TrafficRow {
    fn from_row(row: &mut Row<'_>) -> Result<Self, StoreError> {
        let at = row.take()?;
        let mut sums = TrafficSums {
            requests: row.take()?,
            errors: row.take()?,
            bytes: row.take()?,
            samples: row.take()?,
            cpu_millis: row.take()?,
            memory_kib: row.take()?,
            times: [0; TIME_BUCKETS],
        };
        for time in &mut sums.times {
            *time = row.take()?;
        }
        Ok(Self { at, sums })
    }
}

/// The steps of a project from a moment on, oldest first.
pub async fn list_traffic(
    db: &Db,
    project: ProjectId,
    step: i64,
    since: Timestamp,
) -> Result<Vec<TrafficRow>, StoreError> {
    db.read(
        "SELECT at, requests, errors, bytes, samples, cpu_millis, memory_kib, t0, t1, t2, t3, t4, t5, t6, t7, t8, t9
         FROM project_traffic WHERE project_id = $1 AND step = $2 AND at >= $3 ORDER BY at",
    )
    .bind(project)
    .bind(step)
    .bind(since)
    .fetch_all()
    .await
}

/// Requests of a project in one step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StepRequests {
    pub project: ProjectId,
    pub at: Timestamp,
    pub requests: u64,
}

impl Record for StepRequests {
    fn from_row(row: &mut Row<'_>) -> Result<Self, StoreError> {
        Ok(Self {
            project: row.take()?,
            at: row.take()?,
            requests: row.take()?,
        })
    }
}

/// Requests of projects since a moment, in one query. At most 64 are looked at; whose they are is for the caller to
/// know.
pub async fn list_requests(
    db: &Db,
    projects: &[ProjectId],
    step: i64,
    since: Timestamp,
) -> Result<Vec<StepRequests>, StoreError> {
    let query = db.read(concat!(
        "SELECT project_id, at, requests FROM project_traffic WHERE step = $65 AND at >= $66 AND project_id IN ",
        id_list!()
    ));
    bind_ids(query, projects.iter().copied())
        .bind(step)
        .bind(since)
        .fetch_all()
        .await
}

/// Removes minutes from before a moment.
pub async fn prune_minutes(db: &Db, before: Timestamp, limit: u32) -> Result<u64, StoreError> {
    prune(
        db,
        "DELETE FROM project_traffic WHERE (project_id, step, at) IN
             (SELECT project_id, step, at FROM project_traffic WHERE step = 60 AND at < $1 ORDER BY at LIMIT $2)",
        before,
        limit,
    )
    .await
}

/// Removes half hours from before a moment.
pub async fn prune_half_hours(db: &Db, before: Timestamp, limit: u32) -> Result<u64, StoreError> {
    prune(
        db,
        "DELETE FROM project_traffic WHERE (project_id, step, at) IN
             (SELECT project_id, step, at FROM project_traffic WHERE step = 1800 AND at < $1 ORDER BY at LIMIT $2)",
        before,
        limit,
    )
    .await
}
