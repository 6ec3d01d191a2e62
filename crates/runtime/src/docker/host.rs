//! Where the engine is.

use estrade_model::Invalid;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// Docker Engine's default socket.
const DEFAULT: &str = "/var/run/docker.sock";

/// Where the engine listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EngineHost {
    /// A socket in the file system.
    Unix(PathBuf),
    /// `host:port`, without TLS: for an engine on a private network, from which the addresses of its
    /// containers can be reached.
    Tcp(String),
}

impl EngineHost {
    /// The configured host, else `DOCKER_HOST`, else the default socket.
    pub fn find(configured: Option<&str>, docker_host: Option<&str>) -> Result<Self, Invalid> {
        let given = configured.or(docker_host.filter(|text| !text.is_empty()));
        given.map_or_else(|| Ok(Self::default()), str::parse)
    }
}

impl Default for EngineHost {
    fn default() -> Self {
        Self::Unix(PathBuf::from(DEFAULT))
    }
}

impl FromStr for EngineHost {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        let refused = || {
            Invalid(format!(
                "`{text}` is not an engine's address: use unix:///path/to/docker.sock or tcp://host:port"
            ))
        };
        match text.split_once("://") {
            Some(("unix", path)) if path.starts_with('/') => Ok(Self::Unix(path.into())),
            Some(("tcp" | "http", authority)) => {
                let authority = authority.trim_end_matches('/');
                let (host, port) = authority.rsplit_once(':').ok_or_else(refused)?;
                let sane = !host.is_empty() && !host.contains(['/', '@', '?', '#']);
                match port.parse::<u16>() {
                    Ok(1..) if sane => Ok(Self::Tcp(authority.to_owned())),
                    _ => Err(refused()),
                }
            }
            None if text.starts_with('/') => Ok(Self::Unix(text.into())),
            _ => Err(refused()),
        }
    }
}

impl fmt::Display for EngineHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix://{}", path.display()),
            Self::Tcp(authority) => write!(f, "tcp://{authority}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_configuration_wins_over_the_environment_and_that_over_the_default() {
        let find = |configured, docker_host| EngineHost::find(configured, docker_host).unwrap();
        let (ours, theirs) = ("unix:///run/a.sock", "tcp://10.0.0.1:2375");
        assert_eq!(find(Some(ours), Some(theirs)).to_string(), ours);
        assert_eq!(find(None, Some(theirs)).to_string(), theirs);
        assert_eq!(find(None, Some("")), EngineHost::default());
        assert_eq!(find(None, None).to_string(), "unix:///var/run/docker.sock");
        assert_eq!(find(Some("/run/a.sock"), None).to_string(), ours);
        assert_eq!(
            find(Some("tcp://[::1]:2375/"), None).to_string(),
            "tcp://[::1]:2375"
        );
    }

    #[test]
    fn what_is_no_address_is_refused() {
        for bad in [
            "docker",
            "ssh://host",
            "unix://relative.sock",
            "tcp://host",
            "tcp://host:0",
            "tcp://host:port",
            "tcp://a/b:1",
            "https://host:2376",
        ] {
            assert!(bad.parse::<EngineHost>().is_err(), "{bad}");
        }
    }
}
