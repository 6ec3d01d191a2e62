//! The Docker Engine: the first implementation of a runtime.
//!
//! Firewall rules, subnets, half-started containers and disks in files are details of this engine; nothing outside
//! of this folder depends on bollard.

mod bases;
mod build_log;
mod builds;
mod cache_guard;
mod capabilities;
mod commands;
mod container;
mod disks;
mod engine;
mod error;
mod events;
mod firewall;
mod folders;
mod half_started;
mod host;
mod image_builder;
mod images;
mod instance_state;
mod instances;
mod labels;
mod logs;
mod networks;
mod package_caches;
mod pulls;
mod resolvers;
mod runtime;
mod shell;
mod shell_pid;
mod stats;
mod transport;
mod volumes;

pub use builds::DockerBuild;
pub use engine::{Engine, EngineInfo};
pub use firewall::{Firewall, FirewallError};
pub use host::EngineHost;
pub use instances::Created;
pub use networks::{Network, SubnetPool};
pub use pulls::DockerPull;
