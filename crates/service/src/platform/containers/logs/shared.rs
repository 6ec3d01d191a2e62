//! What those who read, follow, store and merge logs on this node share.

use super::notifier::LogNotifier;
use tokio::sync::RwLock;

/// The logs of this node's instances.
#[derive(Default)]
pub struct ContainerLogs {
    /// Says whose instances have written something.
    pub(super) notifier: LogNotifier,
    /// Held by who reads several blocks, and alone by who puts others in their place.
    pub(super) blocks: RwLock<()>,
}
