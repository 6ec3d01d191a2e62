//! What happens to instances.

use crate::instance::{InstanceId, InstanceKey};
use estrade_model::Timestamp;

/// Something happened to an instance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// To which container.
    pub id: InstanceId,
    /// Which instance that is.
    pub key: InstanceKey,
    pub kind: EventKind,
    pub at: Timestamp,
}

/// What happened to an instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventKind {
    /// It was started.
    Started,
    /// It has ended, with this code.
    Ended(i64),
    /// The kernel has killed a process of it for want of memory. It may still run.
    OutOfMemory,
    /// It was removed.
    Removed,
}
