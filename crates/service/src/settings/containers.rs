//! Configuration of containers.

use estrade_buildpacks::BaseImages;
use estrade_runtime::{Egress, EngineHost, Registries, SubnetPool};
use std::time::Duration;

/// Lines of logs are kept this long at most.
pub(crate) const LOG_RETENTION: Duration = Duration::from_hours(30 * 24);

#[derive(Debug, Clone)]
pub struct ContainerSettings {
    /// Where the engine listens.
    pub host: EngineHost,
    /// The images that platforms are built on.
    pub images: BaseImages,
    /// Where images may come from.
    pub registries: Registries,
    /// Where the networks of owners get their addresses from.
    pub subnets: SubnetPool,
    /// Whether the kernel's firewall keeps containers from the host and from each other.
    pub firewall: bool,
    /// Where they may connect to, as far as the firewall is set.
    pub egress: Egress,
    /// The port of the AI API, which containers may reach.
    pub inference_port: Option<u16>,
    /// Memory of one step of a build, in bytes.
    pub build_memory: u64,
    /// CPU time of a build, in cores.
    pub build_cpus: u64,
    /// How long a build may take.
    pub build_limit: Duration,
    /// How much of what package managers download one project keeps from build to build, in bytes; 0: nothing.
    pub build_cache: u64,
    /// How long instances may take to become healthy, unless a release has its own deadline.
    pub health_limit: Duration,
    /// Disk space in bytes that is kept free by removing images early.
    pub free_disk: u64,
    /// The delay after the first attempt to rebuild a lost image; it doubles with each one.
    pub rebuild_delay: Duration,
    /// How often the firewall's rules are set again while something runs or is built: other programs may have
    /// flushed them.
    pub firewall_interval: Duration,
}

impl Default for ContainerSettings {
    fn default() -> Self {
        Self {
            host: EngineHost::default(),
            images: BaseImages::default(),
            registries: Registries::default(),
            subnets: SubnetPool::default(),
            firewall: true,
            egress: Egress::default(),
            inference_port: None,
            build_memory: 2 << 30,
            build_cpus: 2,
            build_limit: Duration::from_mins(15),
            build_cache: 1 << 30,
            health_limit: Duration::from_mins(1),
            free_disk: 5 << 30,
            rebuild_delay: Duration::from_mins(1),
            firewall_interval: Duration::from_mins(1),
        }
    }
}
