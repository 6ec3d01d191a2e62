//! A priority gate: background work (Brotli) pauses while foreground work (receiving and building a
//! release) runs or has just run.
//!
//! A low thread priority alone is not enough: a core that is busy beside another slows that one down.

use estrade_model::sync::MutexExt;
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

/// How often paused work checks whether it may go on.
const POLL_INTERVAL: Duration = Duration::from_millis(5);
/// How long the foreground must have been idle. Foreground work often comes in bursts, and a background job
/// that has started is not interrupted.
const RESUME_DELAY: Duration = Duration::from_secs(1);
/// Bound on a pause, so that background work still progresses on a server that is always busy.
const MAX_WAIT: Duration = Duration::from_secs(20);

/// Counts foreground work. Clones share the count.
#[derive(Debug, Clone, Default)]
pub(crate) struct PriorityGate(Arc<Mutex<Foreground>>);

#[derive(Debug, Default)]
struct Foreground {
    count: usize,
    last_ended: Option<Instant>,
}

/// Foreground work is under way until this is dropped.
#[derive(Debug)]
pub(crate) struct ForegroundGuard(PriorityGate);

impl PriorityGate {
    /// Begins work that a client waits for.
    pub(crate) fn enter_foreground(&self) -> ForegroundGuard {
        self.foreground().count += 1;
        ForegroundGuard(self.clone())
    }

    /// Blocks while there is foreground work or was within [`RESUME_DELAY`], for [`MAX_WAIT`] at most.
    pub(crate) fn yield_to_foreground(&self) {
        let began = Instant::now();
        while !self.is_idle() && began.elapsed() < MAX_WAIT {
            thread::sleep(POLL_INTERVAL);
        }
    }

    fn is_idle(&self) -> bool {
        let foreground = self.foreground();
        foreground.count == 0
            && foreground
                .last_ended
                .is_none_or(|last| last.elapsed() >= RESUME_DELAY)
    }

    fn foreground(&self) -> MutexGuard<'_, Foreground> {
        self.0.lock_ignoring_poison()
    }
}

impl Drop for ForegroundGuard {
    fn drop(&mut self) {
        let mut foreground = self.0.foreground();
        foreground.count -= 1;
        foreground.last_ended = Some(Instant::now());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn background_work_waits_for_foreground_work() {
        let gate = PriorityGate::default();
        let guard = gate.enter_foreground();
        let waiting = thread::spawn({
            let gate = gate.clone();
            move || gate.yield_to_foreground()
        });
        thread::sleep(POLL_INTERVAL * 4);
        assert!(!waiting.is_finished());
        let ended = Instant::now();
        drop(guard);
        waiting.join().unwrap();
        assert!(ended.elapsed() >= RESUME_DELAY && gate.is_idle());
    }
}
