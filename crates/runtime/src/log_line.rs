//! What instances write.

/// What to read of a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogsFrom {
    /// Only lines after this moment, in nanoseconds since the epoch; 0: from the beginning.
    pub after: i64,
    /// At most so many of the last lines; none: all.
    pub last: Option<u32>,
    /// Whether to go on with what is written from now on, until the instance ends.
    pub follow: bool,
}

/// One line of a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogLine {
    /// When the engine has read it, in nanoseconds since the epoch. Lines of an instance do not always differ
    /// in it.
    pub at: i64,
    /// Whether it was written to stderr.
    pub stderr: bool,
    /// The line, without its end.
    pub text: String,
    /// Whether it goes on in the next one: lines are cut at 16 KiB.
    pub cut: bool,
}
