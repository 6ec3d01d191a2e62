//! Who is in a hurry: work that somebody waits for goes before work that nobody waits for.
//!
//! A low priority alone is not enough: a core that is busy beside another slows that one down.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// How often who gives way looks whether it may go on.
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// Who hurried will often do so again, and a job that has begun is not put aside: so it is quiet only
/// after this time.
const QUIET_AFTER: Duration = Duration::from_secs(1);
/// Giving way ends: on a server that is always busy, the other work is still done one day.
const LONGEST_WAIT: Duration = Duration::from_secs(20);

/// Knows what is in a hurry. Clones share it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Rush(Arc<Mutex<Hurries>>);

#[derive(Debug, Default)]
struct Hurries {
    count: usize,
    /// When the last one was over.
    last: Option<Instant>,
}

/// Something is in a hurry until this is dropped.
#[derive(Debug)]
pub(crate) struct Hurry(Rush);

impl Rush {
    /// Begins something that somebody waits for.
    pub(crate) fn begin(&self) -> Hurry {
        self.hurries().count += 1;
        Hurry(self.clone())
    }

    /// Blocks while something is in a hurry or was a moment ago, for a while at most.
    pub(crate) fn give_way(&self) {
        let began = Instant::now();
        while !self.is_quiet() && began.elapsed() < LONGEST_WAIT {
            thread::sleep(LOOK_EVERY);
        }
    }

    fn is_quiet(&self) -> bool {
        let hurries = self.hurries();
        hurries.count == 0
            && hurries
                .last
                .is_none_or(|last| last.elapsed() >= QUIET_AFTER)
    }

    fn hurries(&self) -> MutexGuard<'_, Hurries> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Hurry {
    fn drop(&mut self) {
        let mut hurries = self.0.hurries();
        hurries.count -= 1;
        hurries.last = Some(Instant::now());
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
        let over = Instant::now();
        drop(hurry);
        waiting.join().unwrap();
        assert!(over.elapsed() >= QUIET_AFTER && rush.is_quiet());
    }
}
