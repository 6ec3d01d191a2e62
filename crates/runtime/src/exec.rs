//! Commands and shells inside of an instance.

/// How a command ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandEnd {
    /// Its exit code.
    pub code: i64,
    /// The beginning of what it wrote, to stdout and stderr.
    pub output: String,
}

/// How to open a shell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShellSpec {
    /// The command, such as `["bash"]`.
    pub command: Vec<String>,
    /// Columns of the terminal.
    pub columns: u16,
    /// Rows of the terminal.
    pub rows: u16,
}
