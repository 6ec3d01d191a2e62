//! The commands, one module each: a `run` that does the work and returns an exit code.

pub mod config;
