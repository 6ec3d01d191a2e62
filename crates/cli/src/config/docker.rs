//! `[docker]`: which engine runs containers, what they may use, and on which base images.

use super::text::{Invalid, serde_as_text};
use estrade_model::image_mirror::ImageMirror;
use estrade_runtime::{Egress, EngineHost, RegistryName, SubnetPool};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::num::{NonZeroU32, NonZeroU64};
use std::str::FromStr;

/// The container engine.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Docker {
    /// Where the engine listens; absent: `DOCKER_HOST`, then the default socket.
    pub host: Option<DockerHost>,
    /// Where the networks of containers get their addresses from.
    pub subnets: Subnets,
    /// Registries that images may come from although they have no public address.
    pub registries: Vec<Registry>,
    /// Whether the kernel's firewall keeps containers from the host and from each other.
    pub firewall: bool,
    /// Where containers may connect to.
    pub egress: DockerEgress,
    /// Memory of one step of a build in MB.
    pub build_memory_mb: NonZeroU64,
    /// CPU time of a build, in cores.
    pub build_cpus: NonZeroU64,
    /// How long a build may take, in minutes.
    pub build_minutes: NonZeroU32,
    /// How many MB of what package managers download a project keeps for its next builds.
    pub build_cache_mb: u64,
    /// Disk space in GB that is kept free by removing images early.
    pub free_disk_gb: u64,
    /// Where base images come from that are not configured below; absent: from where they are published.
    pub mirror: Option<Mirror>,
    /// Base images that differ from the built-in ones.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub images: BTreeMap<BuiltPlatform, String>,
}

impl Default for Docker {
    fn default() -> Self {
        Self {
            host: None,
            subnets: Subnets::default(),
            registries: Vec::new(),
            firewall: true,
            egress: DockerEgress::default(),
            build_memory_mb: NonZeroU64::MIN.saturating_add(2047),
            build_cpus: NonZeroU64::MIN.saturating_add(1),
            build_minutes: NonZeroU32::MIN.saturating_add(14),
            build_cache_mb: 1024,
            free_disk_gb: 5,
            mirror: None,
            images: BTreeMap::new(),
        }
    }
}

/// A platform whose releases are built on top of a base image, or another image that builds use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BuiltPlatform {
    Node,
    Next,
    React,
    Vue,
    Angular,
    Python,
    Django,
    Flask,
    Php,
    Laravel,
    Go,
    Dotnet,
    GoRun,
    DotnetRun,
    Composer,
}

impl BuiltPlatform {
    /// As it is written in the file.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Node => "node",
            Self::Next => "next",
            Self::React => "react",
            Self::Vue => "vue",
            Self::Angular => "angular",
            Self::Python => "python",
            Self::Django => "django",
            Self::Flask => "flask",
            Self::Php => "php",
            Self::Laravel => "laravel",
            Self::Go => "go",
            Self::Dotnet => "dotnet",
            Self::GoRun => "go-run",
            Self::DotnetRun => "dotnet-run",
            Self::Composer => "composer",
        }
    }
}

/// The address of a container engine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DockerHost(pub EngineHost);

impl FromStr for DockerHost {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        text.parse().map(Self)
    }
}

impl fmt::Display for DockerHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

serde_as_text!(DockerHost);

/// Where the networks of containers get their addresses from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Subnets(pub SubnetPool);

impl FromStr for Subnets {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        text.parse().map(Self)
    }
}

impl fmt::Display for Subnets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.range().fmt(f)
    }
}

serde_as_text!(Subnets);

/// A registry, with or without its port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Registry(pub RegistryName);

impl FromStr for Registry {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        text.parse().map(Self)
    }
}

impl fmt::Display for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

serde_as_text!(Registry);

/// A registry with copies of the base images.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mirror(pub ImageMirror);

impl FromStr for Mirror {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        text.parse().map(Self)
    }
}

impl fmt::Display for Mirror {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

serde_as_text!(Mirror);

/// Where containers may connect to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DockerEgress(pub Egress);

impl FromStr for DockerEgress {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        text.parse().map(Self)
    }
}

impl fmt::Display for DockerEgress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

serde_as_text!(DockerEgress);

#[cfg(test)]
mod tests {
    use super::*;
    use serde::de::IntoDeserializer;
    use serde::de::value::{Error, StrDeserializer};

    #[test]
    fn an_engine_listens_on_a_socket_or_a_port() {
        let shown = |text: &str| text.parse::<DockerHost>().map(|host| host.to_string());
        assert_eq!(shown("unix:///run/d.sock").unwrap(), "unix:///run/d.sock");
        assert_eq!(shown("tcp://10.0.0.2:2375").unwrap(), "tcp://10.0.0.2:2375");
        for bad in [
            "",
            "unix://run/d.sock",
            "ssh://d",
            "https://d:2376",
            "tcp://",
        ] {
            assert!(shown(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_reference_has_the_base_images_that_builds_use() {
        let reference: super::super::Config = toml::from_str(super::super::REFERENCE).unwrap();
        let usual = estrade_buildpacks::BaseImages::default();
        let mut images = usual.clone();
        for (part, image) in reference.docker.images {
            images.set(part.as_str(), &image).unwrap();
        }
        // A default that is set changes nothing.
        let all = [estrade_model::platform::Platform::Auto];
        assert_eq!(images.needed(&all), usual.needed(&all));
    }

    #[test]
    fn every_image_has_the_name_that_builds_know() {
        let mut images = estrade_buildpacks::BaseImages::default();
        for name in ["node", "dotnet", "go-run", "dotnet-run", "composer"] {
            let read: StrDeserializer<'_, Error> = name.into_deserializer();
            let part = BuiltPlatform::deserialize(read).unwrap();
            assert_eq!(part.as_str(), name);
            images.set(part.as_str(), "x:1").unwrap();
        }
    }
}
