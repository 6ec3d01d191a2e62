//! One module per command; each returns the exit status.

pub mod account;
pub mod config;
pub mod openapi;
pub mod serve;
pub mod token;
