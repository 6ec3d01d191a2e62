//! The rules: who may do what, in which order. No HTTP, no SQL.
//!
//! [`core::Core`] holds what every service needs; [`bootstrap`] builds it. Features that keep state are built
//! by [`Services`], in one place. One module per noun has
//! the operations on it, in the folder of what offers it: [`identity`], [`platform`], [`ai`].
//! [`identity::access`] is the one place that decides who sees what.

pub mod ai;
pub mod blob_migration;
pub mod bootstrap;
pub mod change_subscription;
pub mod core;
pub mod error;
mod first_start;
pub mod gc;
pub mod idempotency;
pub mod identity;
mod installation_paths;
pub mod integrity;
pub mod jobs;
mod keyring;
pub mod nodes;
mod on_demand_probe;
mod open_error;
mod open_storage;
pub mod platform;
mod publisher;
mod random;
pub mod recent_errors;
mod seal;
mod services;
pub mod settings;
mod state_cache;
pub mod status;
pub mod storage_probe;
pub mod write_probe;

pub use core::Core;
pub use error::{Error, Result};
pub use estrade_store::clock::Clock;
pub use identity::access::{Caller, Credential, Origin, Scope};
pub use identity::audit;
pub use publisher::{Publisher, PublisherSlot, RESPONSE_TIMES, Traffic};
pub use services::{CREDENTIAL_CHANGES, Services};
pub use settings::{Quotas, Settings, UnknownWorkspace};
