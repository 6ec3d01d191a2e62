//! State of one instance's log; at most one reader at a time.

use super::reader::{ReadError, Reader};
use estrade_model::error::error_chain;
use estrade_model::sync::MutexExt;
use estrade_runtime::InstanceKey;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

/// Delay before a failed read is retried, while a caller waits for it.
const RETRY_DELAY: Duration = Duration::from_millis(200);

pub(super) struct InstanceLogState {
    pub(super) key: InstanceKey,
    /// Held by the reader.
    turn: Semaphore,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Stops the follower.
    follower: Option<CancellationToken>,
    /// The instance was restarted while it was followed: the follower reads again at the end.
    again: bool,
    /// It has ended, and everything it wrote is stored.
    done: bool,
}

impl InstanceLogState {
    pub(super) fn new(key: InstanceKey) -> Self {
        Self {
            key,
            turn: Semaphore::new(1),
            state: Mutex::default(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock_ignoring_poison()
    }

    /// Registers a follower, which the returned token stops; none when there is one or everything is stored.
    /// `started`: the instance was restarted, whatever was known of it.
    pub(super) fn open(
        &self,
        started: bool,
        stop: impl FnOnce() -> CancellationToken,
    ) -> Option<CancellationToken> {
        let mut state = self.state();
        if started {
            state.done = false;
            state.again = state.follower.is_some();
        }
        if state.follower.is_some() || state.done {
            return None;
        }
        let stop = stop();
        state.follower = Some(stop.clone());
        Some(stop)
    }

    /// The instance runs. Without a follower, it no longer counts as completely stored.
    pub(super) fn runs(&self) {
        let mut state = self.state();
        if state.follower.is_none() {
            state.done = false;
        }
    }

    pub(super) fn is_idle(&self) -> bool {
        self.state().follower.is_none()
    }

    /// Follows it to its end.
    pub(super) async fn follow(&self, reader: Reader) {
        loop {
            let followed = match self.turn.acquire().await {
                Ok(_turn) => reader.follow().await,
                Err(_) => Err(ReadError::Stopped),
            };
            if let Err(ReadError::Failed(error)) = &followed {
                tracing::debug!(
                    error = error_chain(error),
                    "cannot read what an instance wrote"
                );
            }
            let mut state = self.state();
            if std::mem::take(&mut state.again) && !reader.stop.is_cancelled() {
                continue;
            }
            state.follower = None;
            state.done = matches!(followed, Ok(()) | Err(ReadError::Gone));
            return;
        }
    }

    /// Stops the follower.
    pub(super) fn interrupt(&self) {
        if let Some(stop) = &self.state().follower {
            stop.cancel();
        }
    }

    /// Stores everything that it wrote, however often that fails.
    pub(super) async fn drain(&self, reader: Reader) {
        let Ok(_turn) = self.turn.acquire().await else {
            return;
        };
        loop {
            match reader.drain().await {
                Ok(()) | Err(ReadError::Gone) => break,
                Err(ReadError::Stopped) => return,
                Err(ReadError::Failed(error)) => {
                    tracing::warn!(
                        error = error_chain(&error),
                        "cannot store what an instance wrote"
                    );
                    let pause = tokio::time::sleep(RETRY_DELAY);
                    if reader.stop.run_until_cancelled(pause).await.is_none() {
                        return;
                    }
                }
            }
        }
        self.state().done = true;
    }
}
