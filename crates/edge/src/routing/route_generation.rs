//! How a project is served, in one number that every request looks at.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

/// What a generation counts in the number; below it are the seconds.
const GENERATION_STEP: u64 = 1 << 32;

/// The generation, which rises whenever a project is served differently, and the second since which it is
/// served as it is, once that was read.
#[derive(Default)]
pub(crate) struct RouteGeneration(AtomicU64);

impl RouteGeneration {
    /// From now on it is served differently.
    pub(crate) fn mark_stale(&self) {
        self.0.fetch_add(GENERATION_STEP, Ordering::Release);
    }

    pub(crate) fn current(&self) -> u32 {
        self.read().0
    }

    /// Says since when it is served as it is in this generation, if that is not over.
    pub(crate) fn set_live_since(&self, generation: u32, second: u32) {
        let set = |packed| {
            let same = split(packed).0 == generation;
            same.then(|| u64::from(generation) << 32 | u64::from(second))
        };
        // When it is over, somebody else will say it of the next one.
        let _ = self
            .0
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, set);
    }

    /// Since when it is served as it was in this generation, if it still is.
    pub(crate) fn live_since(&self, generation: u32) -> Option<SystemTime> {
        let (current, second) = self.read();
        (current == generation).then(|| time_of_second(second))
    }

    fn read(&self) -> (u32, u32) {
        split(self.0.load(Ordering::Acquire))
    }
}

/// The generation and the second.
fn split(packed: u64) -> (u32, u32) {
    let [a, b, c, d, generation @ ..] = packed.to_le_bytes();
    (
        u32::from_le_bytes(generation),
        u32::from_le_bytes([a, b, c, d]),
    )
}

/// When a second began.
pub(crate) fn time_of_second(second: u32) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(second.into())
}
