//! Keeps builds and the removal of images apart: an engine fails a build when a layer goes that it was about to use as
//! cache.
//!
//! Builds never wait for removals that have not begun. A removal that meets a build is put off and tried again by its
//! caller; one that was put off for long is done all the same, because a disk that fills up stops everybody. A build that
//! it hurts is repeated without cache ([`BuildError::lost_cache`](crate::BuildError::lost_cache)).

use crate::error::Error;
use estrade_model::sync::MutexExt;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::{OwnedRwLockReadGuard, OwnedRwLockWriteGuard, RwLock};
use tokio::time::Instant;

/// How long removals are put off in a row.
const MAX_PUT_OFF: Duration = Duration::from_mins(5);
/// How long they are done all the same after that, before they are put off again: one pass of the clean-up.
const FORCED_PERIOD: Duration = Duration::from_secs(30);
/// Attempts that are further apart are not in a row.
const MAX_PAUSE: Duration = Duration::from_mins(2);

/// Held by every build, and by every removal of an image.
#[derive(Debug, Default)]
pub(crate) struct CacheGuard {
    lock: Arc<RwLock<()>>,
    put_off: Mutex<Option<PutOff>>,
}

/// Removals that were put off in a row: since when, and the last time.
#[derive(Debug, Clone, Copy)]
struct PutOff {
    since: Instant,
    last: Instant,
}

/// While it is held, no image is removed.
pub(crate) type Building = OwnedRwLockReadGuard<()>;

/// While it is held, no build begins.
#[must_use]
#[derive(Debug)]
pub(crate) struct Removing {
    _lock: Option<OwnedRwLockWriteGuard<()>>,
}

impl CacheGuard {
    /// Waits for a removal that goes on, which takes a moment.
    pub(crate) async fn build(&self) -> Building {
        Arc::clone(&self.lock).read_owned().await
    }

    /// A conflict while there are builds.
    pub(crate) fn remove(&self, what: &'static str) -> Result<Removing, Error> {
        let lock = Arc::clone(&self.lock).try_write_owned().ok();
        let mut put_off = self.put_off.lock_ignoring_poison();
        if lock.is_some() {
            *put_off = None;
            return Ok(Removing { _lock: lock });
        }
        let now = Instant::now();
        let in_a_row = put_off.filter(|earlier| now - earlier.last < MAX_PAUSE);
        let since = in_a_row.map_or(now, |earlier| earlier.since);
        let is_over = now - since >= MAX_PUT_OFF + FORCED_PERIOD;
        let since = if is_over { now } else { since };
        *put_off = Some(PutOff { since, last: now });
        if now - since >= MAX_PUT_OFF {
            return Ok(Removing { _lock: None });
        }
        let message = "builds are under way that may use it".to_owned();
        Err(Error::Conflict { what, message })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_removal_waits_for_builds_but_not_for_ever() {
        let guard = CacheGuard::default();
        drop(guard.remove("x").unwrap());
        let build = guard.build().await;
        assert!(guard.remove("x").unwrap_err().is_conflict());
        // A removal that was put off does not keep builds from beginning.
        let second = guard.build().await;
        drop(build);
        assert!(guard.remove("x").is_err());
        drop(second);
        let removing = guard.remove("x").unwrap();
        let waits = tokio::time::timeout(Duration::from_secs(1), guard.build()).await;
        assert!(waits.is_err(), "no build begins meanwhile");
        drop(removing);

        let _build = guard.build().await;
        for _ in 0..5 {
            assert!(guard.remove("x").is_err());
            tokio::time::advance(Duration::from_mins(1)).await;
        }
        drop(guard.remove("x").unwrap());
        // After that builds are safe again.
        for _ in 0..5 {
            tokio::time::advance(Duration::from_mins(1)).await;
            assert!(guard.remove("x").is_err());
        }
        // One after a long pause is the first again.
        tokio::time::advance(Duration::from_mins(10)).await;
        assert!(guard.remove("x").is_err());
    }
}
