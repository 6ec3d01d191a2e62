//! What an instance uses.

/// What an instance uses, and has used since it was started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stats {
    /// CPU time since its start, in nanoseconds.
    pub cpu_ns: u64,
    /// Memory in bytes, without files that the kernel can forget at once.
    pub memory: u64,
    /// Processes and threads.
    pub pids: u64,
    /// Bytes received since its start.
    pub received: u64,
    /// Bytes sent since its start.
    pub sent: u64,
}
