//! Request counters of one project: updated on every request, read by `/metrics`.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Upper bounds of the buckets for the time to respond.
pub use estrade_service::RESPONSE_TIMES as BUCKETS;

/// The numbers of one project. No lock: each is a counter of its own.
///
/// In this order, those that an ordinary response raises are next to each other: with thousands of projects they
/// have to be fetched for each request, and one line of the processor's cache is less than two.
#[derive(Debug, Default)]
#[repr(C)]
pub struct ProjectCounters {
    bytes: AtomicU64,
    micros: AtomicU64,
    /// Responses in the shortest time, and of the class of success: instead of the elements below.
    quick: AtomicU64,
    successes: AtomicU64,
    classes: [AtomicU64; 5],
    buckets: [AtomicU64; BUCKETS.len() + 1],
}

/// The numbers at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// Responses by class of status: 1xx to 5xx.
    pub classes: [u64; 5],
    /// Bytes of bodies.
    pub bytes: u64,
    /// Time that responses took together.
    pub duration: Duration,
    /// Responses by time, per bucket and beyond the last.
    pub buckets: [u64; BUCKETS.len() + 1],
}

impl ProjectCounters {
    /// Counts a response.
    pub fn record(&self, status: u16, bytes: u64, duration: Duration) {
        let add = |counter: &AtomicU64, value| counter.fetch_add(value, Ordering::Relaxed);
        let class = usize::from(status / 100).clamp(1, 5) - 1;
        add(self.class(class), 1);
        add(&self.bytes, bytes);
        add(
            &self.micros,
            u64::try_from(duration.as_micros()).unwrap_or(u64::MAX),
        );
        let bucket = BUCKETS.iter().position(|bound| duration <= *bound);
        add(self.bucket(bucket.unwrap_or(BUCKETS.len())), 1);
    }

    fn class(&self, class: usize) -> &AtomicU64 {
        match class {
            1 => &self.successes,
            class => &self.classes[class],
        }
    }

    fn bucket(&self, bucket: usize) -> &AtomicU64 {
        match bucket {
            0 => &self.quick,
            bucket => &self.buckets[bucket],
        }
    }

    /// The numbers so far; none without a request.
    pub fn snapshot(&self) -> Option<Snapshot> {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let snapshot = Snapshot {
            classes: std::array::from_fn(|class| read(self.class(class))),
            bytes: read(&self.bytes),
            duration: Duration::from_micros(read(&self.micros)),
            buckets: std::array::from_fn(|bucket| read(self.bucket(bucket))),
        };
        (snapshot.classes.iter().sum::<u64>() > 0).then_some(snapshot)
    }
}
