//! The rules: who may do what, in which order. No HTTP, no SQL.
//!
//! [`core::Core`] holds what every service needs; [`bootstrap`] builds it. One module per noun has
//! the operations on it, in the folder of what offers it: [`identity`], [`platform`], [`ai`].
//! [`identity::access`] is the one place that decides who sees what.

pub mod ai;
pub mod audit;
pub mod bootstrap;
pub mod core;
pub mod error;
mod first_start;
pub mod gc;
pub mod idempotency;
pub mod identity;
pub mod integrity;
pub mod platform;
mod priority_gate;
mod random;
mod seal;
mod state_cache;
pub mod watch;
pub mod write_probe;

pub use core::{Clock, Core, Publisher, Quotas, Settings, Traffic, UnknownWorkspace};
pub use error::{Error, Result};
pub use identity::access::{Caller, Origin, Scope};
