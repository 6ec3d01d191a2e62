//! Runs workloads: networks, images, builds, instances, volumes, logs, shells.
//!
//! [`Runtime`] and [`ImageBuilder`] are the interfaces to the services; `docker` is their first implementation,
//! [`Engine`]. It sees only objects with the label of its installation, so nothing of others can be listed, stopped or
//! removed through it. Every call has a timeout and may be repeated; the engine may vanish and return between any two
//! ([`Error::is_engine_away`]).
//!
//! The crate knows no database and decides nothing: its caller decides what to run, when to restart it and what to
//! clean up.

mod build;
mod docker;
mod error;
mod event;
mod exec;
mod image;
mod image_builder;
mod installation;
mod instance;
mod instance_spec;
mod lines;
mod log_line;
mod mask;
mod network_policy;
mod output_frames;
mod package_cache;
mod probe;
mod pull;
mod registries;
mod runtime;
mod stats;
mod volume;

pub use build::{BuildError, BuildSpec};
pub use docker::{
    Created, DockerBuild, DockerPull, Engine, EngineHost, EngineInfo, Firewall, FirewallError,
    Network, SubnetPool,
};
pub use error::Error;
pub use estrade_model::image_ref::ImageRef;
pub use event::{Event, EventKind};
pub use exec::{CommandEnd, Shell, ShellControl, ShellProcess, ShellSpec, Terminal, TerminalSize};
pub use image::{Image, OwnImage, OwnImageEntry};
pub use image_builder::{Build, BuildContext, ImageBuilder, Pull};
pub use installation::Installation;
pub use instance::{Exit, Instance, InstanceId, InstanceKey, InstanceState};
pub use instance_spec::{InstanceSpec, Limits, Mount, Tmpfs};
pub use log_line::{LogLine, LogsFrom};
pub use network_policy::{Egress, NetworkPolicy, NetworkPolicyError};
pub use output_frames::{OutputFrames, OutputStream};
pub use package_cache::{BuiltCache, CacheKey, SavedCache};
pub use probe::{Probe, Unhealthy};
pub use pull::{PullProgress, RegistryLogin};
pub use registries::{Registries, RegistryName, RegistryRefused};
pub use runtime::{Call, Runtime};
pub use stats::Stats;
pub use volume::{StrayDisk, VolumeKey, VolumeName};

#[cfg(test)]
mod tests {
    #[test]
    fn requests_with_secrets_in_them_are_never_logged() {
        assert!(log::STATIC_MAX_LEVEL <= log::LevelFilter::Info);
    }
}
