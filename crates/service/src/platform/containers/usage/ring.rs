//! The last hour of one project, small enough to keep for hundreds.

use estrade_model::Timestamp;
use estrade_model::metrics::MetricSample;
use std::collections::VecDeque;
use std::time::Duration;

/// Samples that are kept: an hour of them.
const KEPT: usize = 360;
/// How long samples are kept.
const HOUR: Duration = Duration::from_hours(1);
/// Room is made for ten minutes at a time, so that a young project costs little.
const MORE: usize = 60;
/// CPU is kept in this part of a core.
const CPU_UNIT: f64 = 10_000.0;

/// 32 bytes instead of 48.
#[derive(Debug, Clone, Copy)]
struct Packed {
    at: Timestamp,
    cpu: u32,
    memory_kib: u32,
    network_in: u32,
    network_out: u32,
    instances: u32,
}

/// The last samples of a project, oldest first.
#[derive(Debug, Default)]
pub(super) struct Ring(VecDeque<Packed>);

impl Ring {
    pub(super) fn push(&mut self, sample: &MetricSample) {
        self.forget_before(sample.timestamp);
        while self.0.len() >= KEPT {
            self.0.pop_front();
        }
        if self.0.len() == self.0.capacity() {
            self.0.reserve_exact(MORE);
        }
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a conversion of floats saturates, and no machine has 400,000 cores"
        )]
        let cpu = (sample.cpu * CPU_UNIT).round() as u32;
        self.0.push_back(Packed {
            at: sample.timestamp,
            cpu,
            memory_kib: saturated(sample.memory.div_ceil(1024)),
            network_in: saturated(sample.network_in),
            network_out: saturated(sample.network_out),
            instances: sample.instances,
        });
    }

    /// Drops what is older than an hour.
    pub(super) fn forget_before(&mut self, now: Timestamp) {
        let old = |sample: &Packed| sample.at.after(HOUR) <= now;
        while self.0.front().is_some_and(old) {
            self.0.pop_front();
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn samples(&self) -> impl Iterator<Item = MetricSample> + '_ {
        self.0.iter().map(|sample| MetricSample {
            timestamp: sample.at,
            cpu: f64::from(sample.cpu) / CPU_UNIT,
            memory: u64::from(sample.memory_kib) * 1024,
            network_in: sample.network_in.into(),
            network_out: sample.network_out.into(),
            instances: sample.instances,
        })
    }
}

fn saturated(number: u64) -> u32 {
    number.try_into().unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(second: i64) -> MetricSample {
        MetricSample {
            timestamp: Timestamp::from_millis(second * 1000),
            cpu: 1.25,
            memory: 64 << 20,
            network_in: 1,
            network_out: u64::MAX,
            instances: 3,
        }
    }

    #[test]
    fn an_hour_is_kept_in_little_room() {
        let mut ring = Ring::default();
        for second in 0..10_000 {
            ring.push(&sample(second * 10));
        }
        assert_eq!(ring.0.len(), KEPT);
        // 200 projects: 2.3 MB.
        assert!(ring.0.capacity() * size_of::<Packed>() <= 11_520);
        let first = ring.samples().next().unwrap();
        assert_eq!(first.timestamp.millis(), (10_000 - 360) * 10_000);
        let expected = MetricSample {
            network_out: u32::MAX.into(),
            ..sample(9_640 * 10)
        };
        assert_eq!(first, expected);
        // A fast clock does not make it grow.
        for second in 100_000..101_000 {
            ring.push(&sample(second));
        }
        assert_eq!(ring.0.len(), KEPT);
    }

    #[test]
    fn what_is_old_goes() {
        let mut ring = Ring::default();
        ring.push(&sample(0));
        ring.push(&sample(10));
        ring.forget_before(Timestamp::from_millis(3_600_000));
        assert_eq!(ring.samples().count(), 1);
        ring.forget_before(Timestamp::from_millis(3_610_000));
        assert!(ring.is_empty());
    }
}
