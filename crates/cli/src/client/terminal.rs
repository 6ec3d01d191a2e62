//! The terminal that a shell is used at: its size, and raw mode while the shell lasts.

use std::io::{self, IsTerminal};
use terminal_size::{Height, Width, terminal_size_of};

/// Whether a person sits at both ends; elsewhere bytes go through unchanged.
pub fn is_interactive() -> bool {
    cfg!(unix) && io::stdin().is_terminal() && io::stdout().is_terminal()
}

/// Columns and rows, as far as the terminal knows them.
pub fn size() -> (u16, u16) {
    match terminal_size_of(io::stdout()) {
        Some((Width(columns), Height(rows))) if columns > 0 && rows > 0 => (columns, rows),
        _ => (80, 24),
    }
}

/// A terminal that hands over each key as it is pressed. Dropped, also while a panic unwinds, it is as it was before.
#[derive(Debug)]
pub struct RawMode {
    #[cfg(unix)]
    before: rustix::termios::Termios,
}

#[cfg(unix)]
impl RawMode {
    pub fn enter() -> io::Result<Self> {
        use rustix::termios::{OptionalActions, tcgetattr, tcsetattr};
        let before = tcgetattr(io::stdin())?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(io::stdin(), OptionalActions::Now, &raw)?;
        Ok(Self { before })
    }
}

#[cfg(unix)]
impl Drop for RawMode {
    fn drop(&mut self) {
        use rustix::termios::{OptionalActions, tcsetattr};
        // A terminal that is gone needs no mode.
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, &self.before);
    }
}

#[cfg(not(unix))]
impl RawMode {
    pub fn enter() -> io::Result<Self> {
        Ok(Self {})
    }
}

/// What the system tells this process while a shell lasts.
pub struct Signals {
    #[cfg(unix)]
    resized: tokio::signal::unix::Signal,
    /// Those that end it, with the exit code that a shell would give.
    #[cfg(unix)]
    ending: [(tokio::signal::unix::Signal, u8); 4],
}

/// A signal that matters here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    Resized,
    /// The process shall end, with this exit code.
    End(u8),
}

#[cfg(unix)]
impl Signals {
    pub fn listen() -> io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        let ending = |kind: SignalKind| -> io::Result<_> {
            let number = u8::try_from(kind.as_raw_value()).unwrap_or_default();
            Ok((signal(kind)?, 128 + number))
        };
        Ok(Self {
            resized: signal(SignalKind::window_change())?,
            ending: [
                ending(SignalKind::interrupt())?,
                ending(SignalKind::terminate())?,
                ending(SignalKind::hangup())?,
                ending(SignalKind::quit())?,
            ],
        })
    }

    pub async fn next(&mut self) -> Signal {
        let [interrupt, terminate, hangup, quit] = &mut self.ending;
        tokio::select! {
            _ = self.resized.recv() => Signal::Resized,
            _ = interrupt.0.recv() => Signal::End(interrupt.1),
            _ = terminate.0.recv() => Signal::End(terminate.1),
            _ = hangup.0.recv() => Signal::End(hangup.1),
            _ = quit.0.recv() => Signal::End(quit.1),
        }
    }
}

#[cfg(not(unix))]
impl Signals {
    pub fn listen() -> io::Result<Self> {
        Ok(Self {})
    }

    pub async fn next(&mut self) -> Signal {
        match tokio::signal::ctrl_c().await {
            Ok(()) => Signal::End(super::failure::INTERRUPTED),
            Err(_) => std::future::pending().await,
        }
    }
}
