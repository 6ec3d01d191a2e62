//! What a project did over a span of time, step by step.

use super::latency::{Latency, latency_of};
use super::steps::{HALF_HOUR, MINUTE, start_of};
use estrade_model::Timestamp;
use estrade_store::traffic::{TrafficRow, TrafficSums};
use std::time::Duration;

/// Which span of time is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TrafficRange {
    #[default]
    Hour,
    Day,
    Week,
}

impl TrafficRange {
    /// The step of the rows that it is read from, in seconds.
    pub(super) fn stored_step(self) -> i64 {
        match self {
            Self::Hour => MINUTE,
            Self::Day | Self::Week => HALF_HOUR,
        }
    }

    /// The step of its points, in seconds.
    fn step(self) -> i64 {
        match self {
            Self::Hour => MINUTE,
            Self::Day => HALF_HOUR,
            Self::Week => 4 * HALF_HOUR,
        }
    }

    fn points(self) -> usize {
        match self {
            Self::Hour => 60,
            Self::Day => 48,
            Self::Week => 84,
        }
    }

    /// When its first point begins.
    pub(super) fn start(self, now: Timestamp) -> Timestamp {
        let steps = u64::try_from(self.step()).unwrap_or(1) * (self.points() as u64 - 1);
        start_of(now, self.step()).before(Duration::from_secs(steps))
    }
}

/// One step of a series.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TrafficPoint {
    pub at: Timestamp,
    pub requests: u64,
    /// Responses with a status of 500 and above.
    pub errors: u64,
    /// None without a response.
    pub latency: Option<Latency>,
    /// What instances used on average: cores and bytes of memory. None while none were measured.
    pub used: Option<(f64, u64)>,
}

/// What a project did, step by step.
#[derive(Debug, Clone, PartialEq)]
pub struct TrafficSeries {
    /// How long a step is.
    pub step: Duration,
    /// Oldest first, without gaps.
    pub points: Vec<TrafficPoint>,
    pub requests: u64,
    pub errors: u64,
    /// Bytes of bodies.
    pub bytes: u64,
    /// Of all responses together.
    pub latency: Option<Latency>,
}

impl TrafficSeries {
    pub(super) fn new(
        range: TrafficRange,
        now: Timestamp,
        rows: Vec<TrafficRow>,
        unrecorded: TrafficSums,
    ) -> Self {
        let (first, step) = (range.start(now), range.step());
        let mut steps = vec![TrafficSums::default(); range.points()];
        let present = TrafficRow {
            at: now,
            sums: unrecorded,
        };
        let mut total = TrafficSums::default();
        for row in rows.into_iter().chain([present]) {
            let index = (row.at.millis() - first.millis()).div_euclid(step * 1000);
            if let Some(sums) = usize::try_from(index).ok().and_then(|at| steps.get_mut(at)) {
                sums.add(&row.sums);
                total.add(&row.sums);
            }
        }
        let moments = (0_i64..).map(|index| {
            Timestamp::from_millis(first.millis().saturating_add(index * step * 1000))
        });
        Self {
            step: Duration::from_secs(u64::try_from(step).unwrap_or(0)),
            points: moments.zip(&steps).map(point).collect(),
            requests: total.requests,
            errors: total.errors,
            bytes: total.bytes,
            latency: latency_of(&total.times),
        }
    }
}

fn point((at, sums): (Timestamp, &TrafficSums)) -> TrafficPoint {
    let average = |sum: u64| sum.checked_div(sums.samples);
    let cores = |millis: u64| f64::from(u32::try_from(millis).unwrap_or(u32::MAX)) / 1000.0;
    let cpu = average(sums.cpu_millis).map(cores);
    let memory = average(sums.memory_kib).map(|kib| kib.saturating_mul(1024));
    TrafficPoint {
        at,
        requests: sums.requests,
        errors: sums.errors,
        latency: latency_of(&sums.times),
        used: cpu.zip(memory),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(at: Timestamp, requests: u64) -> TrafficRow {
        let sums = TrafficSums {
            requests,
            samples: 2,
            cpu_millis: 500,
            memory_kib: 64,
            ..TrafficSums::default()
        };
        TrafficRow { at, sums }
    }

    #[test]
    fn a_series_has_every_step_and_ends_now() {
        let now = Timestamp::from_millis(1_794_704_523_004);
        for range in [TrafficRange::Hour, TrafficRange::Day, TrafficRange::Week] {
            let present = start_of(now, range.stored_step());
            let old = range.start(now).before(Duration::from_secs(1));
            let rows = vec![row(old, 100), row(range.start(now), 1), row(present, 2)];
            let unrecorded = TrafficSums {
                requests: 4,
                ..TrafficSums::default()
            };
            let series = TrafficSeries::new(range, now, rows, unrecorded);
            assert_eq!(series.points.len(), range.points(), "{range:?}");
            assert_eq!(series.requests, 7, "{range:?}");
            assert_eq!(series.points[0].requests, 1, "{range:?}");
            let last = series.points.last().unwrap();
            assert_eq!(last.requests, 6, "{range:?}");
            assert!(last.at <= now && now < last.at.after(series.step));
            assert_eq!(last.used, Some((0.25, 32 << 10)));
            assert_eq!(series.points[1].used, None);
        }
    }
}
