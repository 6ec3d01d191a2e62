//! One module per command; each returns the exit status.

#[cfg(feature = "server")]
pub mod account;
#[cfg(feature = "server")]
pub mod blobs;
pub mod config;
#[cfg(feature = "server")]
pub mod images;
#[cfg(feature = "server")]
pub mod openapi;
#[cfg(feature = "server")]
pub mod serve;
#[cfg(feature = "server")]
pub mod token;
