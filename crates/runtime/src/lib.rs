//! Runs workloads on a Docker Engine: networks, images, builds, instances, logs.
//!
//! [`Engine`] is the one way in. It sees only what carries the label of its installation, so nothing of
//! a stranger's can be listed, stopped or removed through it. Every call has a time limit and may be
//! repeated; the engine may vanish and return between any two ([`Error::is_engine_away`]).
//!
//! The crate knows no database and decides nothing: what shall run, when to restart it and what to
//! clean up is said by its caller.

mod docker;
mod error;
mod image_ref;
mod instance_spec;
mod instance_state;
mod lines;
mod mask;
mod probe;
mod registries;

pub use docker::builds::{Build, BuildError, BuildSpec};
pub use docker::commands::CommandEnd;
pub use docker::disks::StrayDisk;
pub use docker::engine::{Engine, EngineInfo};
pub use docker::events::{Event, EventKind};
pub use docker::firewall::{Egress, Firewall, FirewallError};
pub use docker::host::EngineHost;
pub use docker::images::{Image, OwnImage, OwnImageEntry};
pub use docker::instances::{Created, InstanceId};
pub use docker::labels::{Installation, InstanceKey};
pub use docker::logs::{LogLine, LogsFrom};
pub use docker::networks::{Network, SubnetPool};
pub use docker::pulls::{Pull, PullProgress, RegistryLogin};
pub use docker::resolvers::engine_resolvers;
pub use docker::shell::{Shell, ShellControl, ShellSpec};
pub use docker::stats::Stats;
pub use docker::volumes::{VolumeKey, VolumeName};
pub use error::Error;
pub use image_ref::ImageRef;
pub use instance_spec::{InstanceSpec, Limits, Mount, Tmpfs};
pub use instance_state::{Exit, Instance, InstanceState};
pub use probe::{Probe, Unhealthy};
pub use registries::{Registries, RegistryName, RegistryRefused};

#[cfg(test)]
mod tests {
    #[test]
    fn requests_with_secrets_in_them_are_never_logged() {
        assert!(log::STATIC_MAX_LEVEL <= log::LevelFilter::Info);
    }
}
