//! The parts of the `estrade` binary: arguments, configuration, output and commands.
//!
//! `main.rs` puts them together; nothing else depends on this crate.

pub mod args;
pub mod client;
pub mod commands;
pub mod config;
#[cfg(feature = "server")]
pub mod logging;
pub mod printer;
#[cfg(feature = "server")]
pub mod server_process;
#[cfg(feature = "server")]
pub mod wiring;
