//! Notifies followers when lines were stored.

use estrade_model::ProjectId;
use std::time::Duration;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::broadcast::{self, Receiver, Sender};

/// Notifications that are buffered for a slow receiver before it lags.
const MAX_PENDING: usize = 64;
/// How often a follower polls without a notification: another node may have stored lines.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Broadcasts the projects whose lines were stored.
pub(super) struct LogNotifier(Sender<ProjectId>);

impl Default for LogNotifier {
    fn default() -> Self {
        Self(broadcast::channel(MAX_PENDING).0)
    }
}

impl LogNotifier {
    pub(super) fn notify(&self, project: ProjectId) {
        // Fails only without receivers.
        let _ = self.0.send(project);
    }

    pub(super) fn subscribe(&self) -> LogSubscription {
        LogSubscription(self.0.subscribe())
    }
}

/// A subscription to the notifications from its creation on.
pub(super) struct LogSubscription(Receiver<ProjectId>);

impl LogSubscription {
    /// Returns when there may be new lines of a project.
    pub(super) async fn wait(&mut self, project: ProjectId) {
        let notified = async {
            loop {
                match self.0.recv().await {
                    Ok(other) if other != project => {}
                    Ok(_) | Err(RecvError::Lagged(_)) => return,
                    Err(RecvError::Closed) => std::future::pending().await,
                }
            }
        };
        // The caller reads again after a timeout as well.
        let _ = tokio::time::timeout(POLL_INTERVAL, notified).await;
    }
}
