//! The signals that end a command which has something to clean up.

use super::failure::INTERRUPTED;
use std::io;

/// Ctrl-C, and SIGTERM, with which CI cancels a job. One that comes while nobody waits for it is kept.
pub struct Interrupts {
    #[cfg(unix)]
    interrupt: tokio::signal::unix::Signal,
    #[cfg(unix)]
    terminate: tokio::signal::unix::Signal,
}

#[cfg(unix)]
impl Interrupts {
    /// From now on none of them ends the process by itself.
    pub fn listen() -> io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }

    /// Waits for the next one; the exit code that a shell would give.
    pub async fn next(&mut self) -> u8 {
        tokio::select! {
            _ = self.interrupt.recv() => INTERRUPTED,
            _ = self.terminate.recv() => super::failure::TERMINATED,
        }
    }
}

#[cfg(not(unix))]
impl Interrupts {
    pub fn listen() -> io::Result<Self> {
        Ok(Self {})
    }

    pub async fn next(&mut self) -> u8 {
        match tokio::signal::ctrl_c().await {
            Ok(()) => INTERRUPTED,
            Err(_) => std::future::pending().await,
        }
    }
}
