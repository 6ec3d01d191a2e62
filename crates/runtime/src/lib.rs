//! Runs workloads on a Docker Engine: networks, images, builds, instances, logs.
//!
//! [`Engine`] is the one way in. It sees only what carries the label of its installation, so nothing of
//! a stranger's can be listed, stopped or removed through it. Every call has a time limit and may be
//! repeated; the engine may vanish and return between any two ([`Error::is_engine_away`]).
//!
//! The crate knows no database and decides nothing: what shall run, when to restart it and what to
//! clean up is said by its caller.

mod bases;
mod build_log;
mod builds;
mod cache_guard;
mod capabilities;
mod commands;
mod disks;
mod engine;
mod error;
mod events;
mod firewall;
mod folders;
mod half_started;
mod host;
mod image_ref;
mod images;
mod instance_spec;
mod instance_state;
mod instances;
mod labels;
mod lines;
mod logs;
mod mask;
mod networks;
mod probe;
mod pulls;
mod registries;
mod resolvers;
mod shell;
mod stats;
mod transport;
mod volumes;

pub use builds::{Build, BuildError, BuildSpec};
pub use commands::CommandEnd;
pub use disks::StrayDisk;
pub use engine::{Engine, EngineInfo};
pub use error::Error;
pub use events::{Event, EventKind};
pub use firewall::{Egress, Firewall, FirewallError};
pub use host::EngineHost;
pub use image_ref::ImageRef;
pub use images::{Image, OwnImage, OwnImageEntry};
pub use instance_spec::{InstanceSpec, Limits, Mount, Tmpfs};
pub use instance_state::{Exit, Instance, InstanceState};
pub use instances::{Created, InstanceId};
pub use labels::{Installation, InstanceKey};
pub use logs::{LogLine, LogsFrom};
pub use networks::{Network, SubnetPool};
pub use probe::{Probe, Unhealthy};
pub use pulls::{Pull, PullProgress, RegistryLogin};
pub use registries::{Registries, RegistryName, RegistryRefused};
pub use resolvers::engine_resolvers;
pub use shell::{Shell, ShellControl, ShellSpec};
pub use stats::Stats;
pub use volumes::{VolumeKey, VolumeName};

#[cfg(test)]
mod tests {
    #[test]
    fn requests_with_secrets_in_them_are_never_logged() {
        assert!(log::STATIC_MAX_LEVEL <= log::LevelFilter::Info);
    }
}
