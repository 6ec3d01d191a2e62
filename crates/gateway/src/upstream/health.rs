//! Health of a target: circuit breaker, latency and throughput.
//!
//! The breaker opens after consecutive failures or a failure rate, then admits one probe per pause, with a pause that
//! doubles. So calls do not wait for timeouts of a provider that is down, and a provider that recovers is not flooded.

use estrade_model::sync::MutexExt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;
use tokio::time::Instant;

/// This many consecutive failures open the breaker…
const MAX_CONSECUTIVE_FAILURES: u32 = 5;
/// …or failures of more than half of the last calls…
const WINDOW: usize = 20;
/// …within this time.
const WINDOW_SPAN: Duration = Duration::from_secs(30);
/// Time from opening to the first probe. It doubles with each probe that fails.
const MIN_PROBE_DELAY: Duration = Duration::from_secs(5);
const MAX_PROBE_DELAY: Duration = Duration::from_mins(1);
/// At most one failure is logged in this time.
const LOG_INTERVAL: Duration = Duration::from_mins(1);
/// Older measurements are ignored.
const MAX_SAMPLE_AGE: Duration = Duration::from_mins(5);

/// Health of one target, shared by all workers.
pub(crate) struct Health {
    created_at: Instant,
    /// Fast path: number of failures in the breaker. While it is 0, successes take no lock.
    failures: AtomicUsize,
    breaker: Mutex<Breaker>,
    latency: Average,
    throughput: Average,
}

#[derive(Default)]
struct Breaker {
    consecutive_failures: u32,
    recent: Vec<(Instant, bool)>,
    open: Option<Open>,
    /// When a failure was last logged.
    reported_at: Option<Instant>,
}

/// What is logged of a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Notice {
    /// It opened the breaker.
    Opened,
    Failed,
    /// One was logged within `LOG_INTERVAL`.
    Nothing,
}

#[derive(Clone, Copy)]
struct Open {
    since: Instant,
    probe_at: Instant,
    pause: Duration,
    probing: bool,
}

/// State of a breaker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    Closed,
    /// Half open: the next call is the probe.
    Due,
    /// Since when. The probe is not due yet, or under way.
    Open(Instant),
}

/// Guard of a call that the breaker admitted. Each call counts as one success or one failure.
pub(crate) struct BreakerPermit<'h> {
    health: &'h Health,
    probe: bool,
    settled: bool,
}

impl Health {
    pub(crate) fn new() -> Self {
        let created_at = Instant::now();
        Self {
            created_at,
            failures: AtomicUsize::new(0),
            breaker: Mutex::default(),
            latency: Average::new(),
            throughput: Average::new(),
        }
    }

    fn breaker(&self) -> MutexGuard<'_, Breaker> {
        self.breaker.lock_ignoring_poison()
    }

    pub(crate) fn state(&self, now: Instant) -> State {
        if self.failures.load(Ordering::Acquire) == 0 {
            return State::Closed;
        }
        match self.breaker().open {
            None => State::Closed,
            Some(open) if !open.probing && now >= open.probe_at => State::Due,
            Some(open) => State::Open(open.since),
        }
    }

    /// Admits a call. With an open breaker: the one probe, or a call without another target (`anyway`).
    pub(crate) fn acquire(&self, now: Instant, anyway: bool) -> Option<BreakerPermit<'_>> {
        let mut probe = false;
        if self.failures.load(Ordering::Acquire) > 0
            && let Some(open) = &mut self.breaker().open
        {
            if !open.probing && now >= open.probe_at {
                open.probing = true;
                probe = true;
            } else if !anyway {
                return None;
            }
        }
        Some(BreakerPermit {
            health: self,
            probe,
            settled: false,
        })
    }

    /// A response was complete.
    pub(crate) fn succeeded(&self, now: Instant) {
        if self.failures.load(Ordering::Acquire) == 0 {
            return;
        }
        let mut breaker = self.breaker();
        breaker.consecutive_failures = 0;
        if breaker.open.take().is_some() {
            breaker.recent.clear();
        }
        breaker.record(now, true);
        self.remember(&breaker);
    }

    /// A response broke off.
    pub(crate) fn response_failed(&self, now: Instant) -> Notice {
        self.failed(now, false)
    }

    fn failed(&self, now: Instant, probe: bool) -> Notice {
        let mut breaker = self.breaker();
        breaker.consecutive_failures = breaker.consecutive_failures.saturating_add(1);
        breaker.record(now, false);
        let bad = breaker.recent.iter().filter(|(_, good)| !good).count();
        let too_many = breaker.consecutive_failures >= MAX_CONSECUTIVE_FAILURES
            || breaker.recent.len() >= WINDOW && bad * 2 > WINDOW;
        let mut notice = breaker.notice(now);
        match &mut breaker.open {
            Some(open) if probe => {
                open.pause = (open.pause * 2).min(MAX_PROBE_DELAY);
                open.probe_at = now + open.pause;
                open.probing = false;
            }
            None if too_many => {
                notice = Notice::Opened;
                breaker.open = Some(Open {
                    since: now,
                    probe_at: now + MIN_PROBE_DELAY,
                    pause: MIN_PROBE_DELAY,
                    probing: false,
                });
            }
            _ => {}
        }
        self.remember(&breaker);
        notice
    }

    fn remember(&self, breaker: &Breaker) {
        let bad = breaker.recent.iter().filter(|(_, good)| !good).count();
        let remembered = bad + usize::from(breaker.open.is_some());
        self.failures.store(remembered, Ordering::Release);
    }

    /// Adds the measurements of a call.
    pub(crate) fn measure(&self, first_byte: Duration, tokens_per_second: Option<f64>) {
        let now = self.created_at.elapsed();
        self.latency.record(first_byte.as_secs_f64(), now);
        if let Some(rate) = tokens_per_second {
            self.throughput.record(rate, now);
        }
    }

    /// Moving average of seconds to the first byte.
    pub(crate) fn latency(&self) -> Option<f64> {
        self.latency.value(self.created_at.elapsed())
    }

    /// Moving average of tokens per second.
    pub(crate) fn throughput(&self) -> Option<f64> {
        self.throughput.value(self.created_at.elapsed())
    }
}

impl Breaker {
    fn record(&mut self, now: Instant, good: bool) {
        self.recent
            .retain(|(at, _)| now.saturating_duration_since(*at) < WINDOW_SPAN);
        if self.recent.len() >= WINDOW {
            self.recent.remove(0);
        }
        self.recent.push((now, good));
    }

    fn notice(&mut self, now: Instant) -> Notice {
        let reported_at = self
            .reported_at
            .is_some_and(|reported_at| now.saturating_duration_since(reported_at) < LOG_INTERVAL);
        if reported_at {
            return Notice::Nothing;
        }
        self.reported_at = Some(now);
        Notice::Failed
    }
}

impl BreakerPermit<'_> {
    fn succeeded(mut self, now: Instant) {
        self.settled = true;
        self.health.succeeded(now);
    }

    /// The response has begun, which is enough for a probe. Otherwise its end decides: see [`Health::succeeded`] and
    /// [`Health::response_failed`].
    pub(crate) fn response_began(self, now: Instant) {
        if self.probe {
            self.succeeded(now);
        }
    }

    pub(crate) fn failed(mut self, now: Instant) -> Notice {
        self.settled = true;
        self.health.failed(now, self.probe)
    }
}

impl Drop for BreakerPermit<'_> {
    fn drop(&mut self) {
        // The client left before the outcome of the probe: the next call may probe.
        if self.probe
            && !self.settled
            && let Some(open) = &mut self.health.breaker().open
        {
            open.probing = false;
        }
    }
}

/// Exponential moving average in two atomics. Concurrent writers may lose a sample, which an average tolerates.
struct Average {
    value: AtomicU64,
    /// Time of the last sample in milliseconds; 0: none.
    at: AtomicU64,
}

impl Average {
    const WEIGHT: f64 = 0.2;

    fn new() -> Self {
        Self {
            value: AtomicU64::new(0),
            at: AtomicU64::new(0),
        }
    }

    fn record(&self, sample: f64, now: Duration) {
        let next = self
            .value(now)
            .map_or(sample, |old| old + Self::WEIGHT * (sample - old));
        self.value.store(next.to_bits(), Ordering::Relaxed);
        let millis = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
        self.at.store(millis.max(1), Ordering::Relaxed);
    }

    fn value(&self, now: Duration) -> Option<f64> {
        let at = self.at.load(Ordering::Relaxed);
        let fresh = now.saturating_sub(Duration::from_millis(at)) < MAX_SAMPLE_AGE;
        (at != 0 && fresh).then(|| f64::from_bits(self.value.load(Ordering::Relaxed)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fail(health: &Health, at: Instant) {
        health.acquire(at, true).unwrap().failed(at);
    }

    #[test]
    fn it_opens_after_five_failures_in_a_row_and_probes_one_at_a_time() {
        let (health, now) = (Health::new(), Instant::now());
        for _ in 0..4 {
            fail(&health, now);
            assert_eq!(health.state(now), State::Closed);
        }
        fail(&health, now);
        assert_eq!(health.state(now), State::Open(now));
        assert!(health.acquire(now, false).is_none());
        let due = now + MIN_PROBE_DELAY;
        assert_eq!(health.state(due), State::Due);
        let probe = health.acquire(due, false).unwrap();
        assert!(health.acquire(due, false).is_none(), "a second probe");
        drop(probe);
        assert_eq!(health.state(due), State::Due, "the prober left");
        health.acquire(due, false).unwrap().failed(due);
        assert!(matches!(
            health.state(due + MIN_PROBE_DELAY),
            State::Open(_)
        ));
        let due = due + 2 * MIN_PROBE_DELAY;
        assert_eq!(health.state(due), State::Due, "the pause has doubled");
        health.acquire(due, false).unwrap().succeeded(due);
        assert_eq!(health.state(due), State::Closed);
    }

    #[test]
    fn the_operator_hears_of_failures_but_not_of_each() {
        let (health, now) = (Health::new(), Instant::now());
        let fail = |at| health.acquire(at, true).unwrap().failed(at);
        assert_eq!(fail(now), Notice::Failed);
        for _ in 0..3 {
            assert_eq!(fail(now), Notice::Nothing);
        }
        assert_eq!(fail(now), Notice::Opened);
        assert_eq!(fail(now), Notice::Nothing);
        assert_eq!(health.response_failed(now + LOG_INTERVAL), Notice::Failed);
    }

    #[test]
    fn the_pause_doubles_up_to_a_minute() {
        let (health, mut now) = (Health::new(), Instant::now());
        (0..5).for_each(|_| fail(&health, now));
        for _ in 0..10 {
            now += MAX_PROBE_DELAY;
            assert_eq!(health.state(now), State::Due);
            health.acquire(now, false).unwrap().failed(now);
        }
    }

    #[test]
    fn it_opens_when_more_than_half_of_twenty_fail() {
        let (health, now) = (Health::new(), Instant::now());
        for round in 0..20 {
            assert_eq!(health.state(now), State::Closed, "{round}");
            if round % 3 == 2 {
                health.acquire(now, false).unwrap().succeeded(now);
            } else {
                fail(&health, now);
            }
        }
        assert_eq!(health.state(now), State::Open(now));
        let slow = Health::new();
        for round in 0..100 {
            let at = now + Duration::from_secs(2 * round);
            if round % 3 == 2 {
                slow.acquire(at, false).unwrap().succeeded(at);
            } else {
                fail(&slow, at);
            }
            assert_eq!(
                slow.state(at),
                State::Closed,
                "fewer than twenty in thirty seconds"
            );
        }
    }

    #[test]
    fn averages_follow_what_is_measured() {
        let health = Health::new();
        assert_eq!(health.latency(), None);
        health.measure(Duration::from_millis(100), None);
        assert_eq!((health.latency(), health.throughput()), (Some(0.1), None));
        (0..50).for_each(|_| health.measure(Duration::from_millis(200), Some(50.0)));
        assert!((health.latency().unwrap() - 0.2).abs() < 0.001);
        assert_eq!(health.throughput(), Some(50.0));
    }
}
