//! Commands and shells inside of an instance.

use crate::error::Error;
use crate::runtime::Call;
use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// How a command ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandEnd {
    pub code: i64,
    /// The beginning of what it wrote, to stdout and stderr.
    pub output: String,
}

/// How to open a shell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShellSpec {
    /// The command, such as `["bash"]`.
    pub command: Vec<String>,
    /// The terminal that it gets; none: standard input, output and error apart, as bytes.
    pub terminal: Option<TerminalSize>,
}

/// The size of a terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TerminalSize {
    pub columns: u16,
    pub rows: u16,
}

/// The bytes of a terminal, both ways; without one, what is read is framed ([`crate::OutputFrames`] reads it). To drop it is to hang up on what runs in it.
pub trait Terminal: AsyncRead + AsyncWrite + Send {}

impl<T: AsyncRead + AsyncWrite + Send> Terminal for T {}

/// What runs in a terminal.
pub trait ShellProcess: fmt::Debug + Send + Sync {
    /// The terminal has another size now. No error if the process has just ended.
    fn resize(&self, columns: u16, rows: u16) -> Call<'_, ()>;

    /// The exit code; none: it still runs.
    fn exit_code(&self) -> Call<'_, Option<i64>>;
}

/// A shell in an instance: what is written to it is typed, what is read is shown. To drop it is to hang up. Without a
/// terminal, to shut it down is to end its standard input.
pub struct Shell {
    terminal: Pin<Box<dyn Terminal>>,
    control: ShellControl,
}

/// The other things that can be done with a shell's terminal.
#[derive(Debug, Clone)]
pub struct ShellControl(Arc<dyn ShellProcess>);

impl Shell {
    /// A shell of these.
    pub(crate) fn new(terminal: impl Terminal + 'static, process: Arc<dyn ShellProcess>) -> Self {
        Self {
            terminal: Box::pin(terminal),
            control: ShellControl(process),
        }
    }

    /// The other things that can be done with its terminal, also while it is read and written.
    pub fn control(&self) -> ShellControl {
        self.control.clone()
    }
}

impl ShellControl {
    /// The terminal has another size now. No error if the process has just ended.
    pub async fn resize(&self, columns: u16, rows: u16) -> Result<(), Error> {
        self.0.resize(columns, rows).await
    }

    /// The exit code; none: it still runs.
    pub async fn exit_code(&self) -> Result<Option<i64>, Error> {
        self.0.exit_code().await
    }
}

impl AsyncRead for Shell {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.terminal.as_mut().poll_read(context, buffer)
    }
}

impl AsyncWrite for Shell {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.terminal.as_mut().poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.terminal.as_mut().poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.terminal.as_mut().poll_shutdown(context)
    }
}
