//! Who waits for lines hears at once when some were stored.

use estrade_model::ProjectId;
use std::time::Duration;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::broadcast::{self, Receiver, Sender};

/// News that one who sleeps may miss before they are told that they missed some.
const MAX_PENDING: usize = 64;
/// How long one who hears nothing waits before they look again: another node may have stored something.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Says whose instances have written something.
pub(super) struct LogNotifier(Sender<ProjectId>);

impl Default for LogNotifier {
    fn default() -> Self {
        Self(broadcast::channel(MAX_PENDING).0)
    }
}

impl LogNotifier {
    pub(super) fn notify(&self, project: ProjectId) {
        // Nobody listens: nobody needs to hear.
        let _ = self.0.send(project);
    }

    pub(super) fn subscribe(&self) -> LogSubscription {
        LogSubscription(self.0.subscribe())
    }
}

/// Hears of lines from the moment it is made.
pub(super) struct LogSubscription(Receiver<ProjectId>);

impl LogSubscription {
    /// Returns when there may be new lines of a project.
    pub(super) async fn heard(&mut self, project: ProjectId) {
        let heard = async {
            loop {
                match self.0.recv().await {
                    Ok(other) if other != project => {}
                    Ok(_) | Err(RecvError::Lagged(_)) => return,
                    Err(RecvError::Closed) => std::future::pending().await,
                }
            }
        };
        // To hear nothing is as good a reason to look as to hear something.
        let _ = tokio::time::timeout(POLL_INTERVAL, heard).await;
    }
}
