//! State shared by the reader, followers, collector and compaction of logs on this node.

use super::notifier::LogNotifier;
use tokio::sync::RwLock;

/// The logs of this node's instances.
#[derive(Default)]
pub struct ContainerLogs {
    /// Notifies followers of stored lines.
    pub(super) notifier: LogNotifier,
    /// Read lock: reading several blocks. Write lock: replacing blocks by merged ones.
    pub(super) blocks: RwLock<()>,
}
