//! Who is in a hurry: work that somebody waits for goes before work that nobody waits for.
//!
//! A low priority alone is not enough: a core that is busy beside another slows that one down.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// How often who gives way looks whether it may go on.
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// Giving way ends: on a server that is always busy, the other work is still done one day.
const LONGEST_WAIT: Duration = Duration::from_secs(5);

/// Counts what is in a hurry. Clones share the count.
#[derive(Debug, Clone, Default)]
pub(crate) struct Rush(Arc<AtomicUsize>);

/// Something is in a hurry until this is dropped.
#[derive(Debug)]
pub(crate) struct Hurry(Rush);

impl Rush {
    /// Begins something that somebody waits for.
    pub(crate) fn begin(&self) -> Hurry {
        self.0.fetch_add(1, Ordering::Relaxed);
        Hurry(self.clone())
    }

    /// Blocks while something is in a hurry, for a few seconds at most.
    pub(crate) fn give_way(&self) {
        let began = Instant::now();
        while self.0.load(Ordering::Relaxed) > 0 && began.elapsed() < LONGEST_WAIT {
            thread::sleep(LOOK_EVERY);
        }
    }
}

impl Drop for Hurry {
    fn drop(&mut self) {
        let Self(Rush(count)) = self;
        count.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_not_in_a_hurry_waits_for_who_is() {
        let rush = Rush::default();
        let hurry = rush.begin();
        let waiting = thread::spawn({
            let rush = rush.clone();
            move || rush.give_way()
        });
        thread::sleep(LOOK_EVERY * 4);
        assert!(!waiting.is_finished());
        drop(hurry);
        waiting.join().unwrap();
        assert_eq!(rush.0.load(Ordering::Relaxed), 0);
    }
}
