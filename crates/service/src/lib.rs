//! The rules: who may do what, in which order. No HTTP, no SQL.
//!
//! [`core::Core`] holds what every service needs; [`bootstrap`] builds it. One module per noun has
//! the operations on it; [`access`] is the one place that decides who sees what.

pub mod access;
pub mod accounts;
pub mod audit;
pub mod bootstrap;
pub mod certificates;
pub mod cleanup;
pub mod containers;
pub mod core;
pub mod credentials;
pub mod disks;
pub mod domains;
pub mod envs;
pub mod error;
pub mod events;
mod first_start;
pub mod housekeeping;
pub mod idempotency;
pub mod integrity;
pub mod invitations;
mod jwt;
pub mod key_check;
pub mod keys;
pub mod leftovers;
pub mod login;
pub mod members;
pub mod networks;
mod passwords;
pub mod projects;
pub mod providers;
mod random;
pub mod releases;
mod rush;
mod seal;
mod state_cache;
pub mod teams;
pub mod tokens;
pub mod usage;
pub mod watch;
mod workspace_lists;
pub mod workspaces;
pub mod write_probe;

pub use access::{Caller, Origin, Scope};
pub use core::{Clock, Core, Publisher, Quotas, Settings, Traffic, UnknownWorkspace};
pub use error::{Error, Result};
