//! Generation counter of a route, packed with its `Last-Modified` second into one atomic word.
//!
//! Invariant: generation and second are read and written together, so a cached response never gets the date
//! of another release. `mark_stale` raises the generation; whatever was read under an older one is invalid.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

/// The generation is the high half of the word, the second the low half.
const GENERATION_STEP: u64 = 1 << 32;

/// The generation, and the second in which the present release went live, once that was read.
#[derive(Default)]
pub(crate) struct RouteGeneration(AtomicU64);

impl RouteGeneration {
    /// Starts a new generation: something about the project has changed.
    pub(crate) fn mark_stale(&self) {
        self.0.fetch_add(GENERATION_STEP, Ordering::Release);
    }

    pub(crate) fn current(&self) -> u32 {
        self.read().0
    }

    /// Sets the second of a generation, if it is still the present one.
    pub(crate) fn set_live_since(&self, generation: u32, second: u32) {
        let set = |packed| {
            let same = split(packed).0 == generation;
            same.then(|| u64::from(generation) << 32 | u64::from(second))
        };
        // Fails when the generation has changed: its reader sets the second.
        let _ = self
            .0
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, set);
    }

    /// When the release of this generation went live; none when the generation is over.
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
