//! Waiting for something to change, for long polls and event streams.
//!
//! Subscribe before the first read of the database: then no change can fall in between. The change
//! feed only shortens the wait; waiters poll from time to time anyway.

use estrade_store::{Change, ChangeKind, Db};
use std::time::Duration;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;

/// Fallback poll: a lost message of the change feed delays a watcher by this much.
const POLL_INTERVAL: Duration = Duration::from_secs(2);

/// A subscription to the changes from its creation on.
pub struct ChangeSubscription(Receiver<Change>);

impl ChangeSubscription {
    /// Starts to listen.
    pub fn start(db: &Db) -> Self {
        Self(db.changes().subscribe())
    }

    /// Returns when the thing of this id may have changed.
    pub(crate) async fn changed(&mut self, id: &str) {
        let change = self.recv_matching(|change| change.id == id);
        // Hearing nothing is as good a reason to look as hearing something.
        drop(tokio::time::timeout(POLL_INTERVAL, change).await);
    }

    /// Returns when something of these kinds may have changed.
    pub async fn any_changed(&mut self, kinds: &[ChangeKind]) {
        self.recv_matching(|change| kinds.contains(&change.kind))
            .await;
    }

    async fn recv_matching(&mut self, concerns: impl Fn(&Change) -> bool) {
        loop {
            match self.0.recv().await {
                Ok(change) if concerns(&change) || change.kind == ChangeKind::Everything => return,
                Ok(_) => {}
                Err(RecvError::Lagged(_)) => return,
                // The database is closing; every waiter has a timeout or a cancellation token.
                Err(RecvError::Closed) => std::future::pending().await,
            }
        }
    }
}
