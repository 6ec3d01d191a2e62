//! Who waits for lines hears at once when some were stored.

use estrade_model::ProjectId;
use std::time::Duration;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::broadcast::{self, Receiver, Sender};

/// News that one who sleeps may miss before they are told that they missed some.
const WAITING: usize = 64;
/// How long one who hears nothing waits before they look again: another node may have stored something.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// Says whose instances have written something.
pub(crate) struct LogNews(Sender<ProjectId>);

impl Default for LogNews {
    fn default() -> Self {
        Self(broadcast::channel(WAITING).0)
    }
}

impl LogNews {
    pub(super) fn announce(&self, project: ProjectId) {
        // Nobody listens: nobody needs to hear.
        let _ = self.0.send(project);
    }

    pub(super) fn listen(&self) -> LogListener {
        LogListener(self.0.subscribe())
    }
}

/// Hears of lines from the moment it is made.
pub(super) struct LogListener(Receiver<ProjectId>);

impl LogListener {
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
        let _ = tokio::time::timeout(LOOK_AGAIN, heard).await;
    }
}
