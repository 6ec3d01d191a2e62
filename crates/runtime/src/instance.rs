//! Instances, as a runtime sees them.

use estrade_model::{OwnerId, ProjectId, ReleaseId, Timestamp};
use std::fmt;
use std::net::SocketAddr;

/// A container of this installation. Only this crate creates them, from the engine's data about containers
/// with the installation's label: so containers of others cannot be stopped or removed.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct InstanceId(pub(crate) String);

impl InstanceId {
    /// The engine's id of it, for storage.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for InstanceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.get(..12).unwrap_or(&self.0))
    }
}

/// Identifies an instance: owner, project, release and number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct InstanceKey {
    pub owner: OwnerId,
    pub project: ProjectId,
    /// The release that it runs.
    pub release: ReleaseId,
    /// Which of the release's instances, from 1.
    pub number: u32,
}

/// An instance, as the engine sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Instance {
    pub id: InstanceId,
    /// Which one it is.
    pub key: InstanceKey,
    /// What it was made from, in short: [`InstanceSpec::digest`](crate::InstanceSpec::digest).
    pub digest: String,
    pub state: InstanceState,
    /// Where it listens; none: it does not run.
    pub address: Option<SocketAddr>,
    /// Whether the engine enforces the limit of its disk; if not, its usage has to be polled.
    pub disk_limited: bool,
    /// When it was started last. Not known of one that runs and was found in a list.
    pub started_at: Option<Timestamp>,
}

/// How an instance is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InstanceState {
    /// Made, and never started or not startable.
    Created,
    /// Running.
    Running,
    /// It ran and has ended.
    Exited(Exit),
    /// Being removed, paused or dead: not for use.
    Other,
    /// It does not run, and the engine did not report its exit state in time.
    Unclear,
}

/// How an instance ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exit {
    /// The exit code; 128 and the signal's number when a signal ended it.
    pub code: i64,
    /// Whether the kernel has killed a process of it for want of memory.
    pub oom_killed: bool,
    pub at: Option<Timestamp>,
    /// What the engine adds, such as why it could not be started.
    pub error: Option<String>,
}
