//! Percentiles of the time to respond, from a histogram.

use crate::publisher::RESPONSE_TIMES;
use std::time::Duration;

/// How long is measured: what took longer counts as just that long, and nothing else does.
pub const MAX_MEASURED_LATENCY: Duration = RESPONSE_TIMES[RESPONSE_TIMES.len() - 1];

/// The time to respond that half of the responses, and 99 of 100, stay below. [`MAX_MEASURED_LATENCY`] stands for that
/// time and everything beyond it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Latency {
    pub p50: Duration,
    pub p99: Duration,
}

/// The percentiles of a histogram; none without a response.
///
/// Within a bucket responses count as spread evenly, each in the middle of its share, so that none is at the bucket's
/// end. Those beyond the last bound count as just that long: how much longer they took is not known.
pub fn latency_of(times: &[u64; RESPONSE_TIMES.len() + 1]) -> Option<Latency> {
    let total: u64 = times.iter().sum();
    (total > 0).then(|| Latency {
        p50: percentile(times, total, 50),
        p99: percentile(times, total, 99),
    })
}

fn percentile(times: &[u64; RESPONSE_TIMES.len() + 1], total: u64, percent: u64) -> Duration {
    let rank = total.saturating_mul(percent).div_ceil(100).max(1);
    let (mut below, mut lower) = (0_u64, Duration::ZERO);
    for (count, upper) in times.iter().zip(RESPONSE_TIMES) {
        if below + count >= rank {
            let float = |count: u64| f64::from(u32::try_from(count).unwrap_or(u32::MAX));
            let share = (float(rank - below) - 0.5) / float((*count).max(1));
            return lower + upper.saturating_sub(lower).mul_f64(share.clamp(0.0, 1.0));
        }
        below += count;
        lower = upper;
    }
    lower
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_lie_in_their_bucket() {
        let mut times = [0; 10];
        assert_eq!(latency_of(&times), None);
        times[5] = 98; // 1 to 5 ms
        times[8] = 2; // 100 ms to 1 s
        let latency = latency_of(&times).unwrap();
        assert!(latency.p50 > Duration::from_millis(1) && latency.p50 < Duration::from_millis(5));
        assert!(latency.p99 > Duration::from_millis(100) && latency.p99 < Duration::from_secs(1));
    }

    #[test]
    fn what_took_less_than_the_last_bound_is_less() {
        let mut times = [0; 10];
        times[8] = 1;
        let latency = latency_of(&times).unwrap();
        assert_eq!(latency.p50, Duration::from_millis(550));
        assert!(latency.p99 < MAX_MEASURED_LATENCY);
    }

    #[test]
    fn what_took_longer_than_any_bound_counts_as_the_last() {
        let mut times = [0; 10];
        times[9] = 1;
        let latency = latency_of(&times).unwrap();
        assert_eq!(latency.p50, Duration::from_secs(1));
        times[9] = u64::MAX / 200;
        assert_eq!(latency_of(&times).unwrap().p99, Duration::from_secs(1));
    }
}
