//! `[docker]`: which engine runs containers, and on which base images.

use super::text::{Invalid, serde_as_text};
use super::url::HttpUrl;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// The container engine.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Docker {
    /// Where the engine listens; absent: `DOCKER_HOST`, then the default socket.
    pub host: Option<DockerHost>,
    /// Base images that differ from the built-in ones.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub images: BTreeMap<BuiltPlatform, String>,
}

/// A platform whose releases are built on top of a base image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[expect(missing_docs, reason = "each variant is the platform's own name")]
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
}

/// The address of a container engine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DockerHost {
    /// `unix:///path/of/the.sock`.
    Unix(PathBuf),
    /// `http://…`, `https://…` or, the same as `http`, `tcp://…`.
    Http(HttpUrl),
}

impl FromStr for DockerHost {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        if let Some(path) = text.strip_prefix("unix://") {
            return if Path::new(path).is_absolute() {
                Ok(Self::Unix(path.into()))
            } else {
                Err("unix:// needs an absolute path, as in unix:///var/run/docker.sock".into())
            };
        }
        let url = match text.strip_prefix("tcp://") {
            Some(address) => format!("http://{address}"),
            None => text.to_owned(),
        };
        url.parse().map(Self::Http).map_err(|_| {
            "write unix:///var/run/docker.sock, tcp://HOST:PORT or https://HOST:PORT".into()
        })
    }
}

impl fmt::Display for DockerHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix://{}", path.display()),
            Self::Http(url) => url.fmt(f),
        }
    }
}

serde_as_text!(DockerHost);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_engine_listens_on_a_socket_or_a_port() {
        let shown = |text: &str| text.parse::<DockerHost>().map(|host| host.to_string());
        assert_eq!(shown("unix:///run/d.sock").unwrap(), "unix:///run/d.sock");
        assert_eq!(
            shown("tcp://10.0.0.2:2375").unwrap(),
            "http://10.0.0.2:2375"
        );
        assert_eq!(shown("https://d:2376").unwrap(), "https://d:2376");
        for bad in [
            "",
            "unix://run/d.sock",
            "ssh://d",
            "/var/run/docker.sock",
            "tcp://",
        ] {
            assert!(shown(bad).is_err(), "{bad}");
        }
    }
}
