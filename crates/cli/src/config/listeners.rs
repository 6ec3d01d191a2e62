//! `[platform]`, `[edge]`, and what every listener has.

use super::acme::Acme;
use super::network::DomainName;
use super::text::{deserialize_listen, deserialize_optional_listen};
use super::url::HttpUrl;
use serde::{Deserialize, Serialize};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

/// The platform API and the panel.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Platform {
    /// Where it listens.
    #[serde(deserialize_with = "deserialize_listen")]
    pub listen: SocketAddr,
    /// How the outside world reaches it: for links, OpenAPI and cookies.
    pub public_url: Option<HttpUrl>,
    /// Who may read `/metrics`.
    pub metrics: Metrics,
    /// Absent: plain HTTP.
    pub tls: Option<Tls>,
}

impl Default for Platform {
    fn default() -> Self {
        Self {
            listen: loopback(3000),
            public_url: None,
            metrics: Metrics::default(),
            tls: None,
        }
    }
}

/// The edge, which serves what was deployed.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Edge {
    /// Where it listens.
    #[serde(deserialize_with = "deserialize_listen")]
    pub listen: SocketAddr,
    /// A project is reached at `{project}.{domain}`, for each of these.
    pub domains: Vec<DomainName>,
    /// How long assets of the previous release stay reachable for pages still open.
    pub skew_seconds: u64,
    /// Whether a custom domain must prove by DNS that it belongs to its owner.
    pub verify_domains: bool,
    /// Whether every request is noted in `logs/access.log` of the data directory.
    pub access_log: bool,
    /// The DNS server for the proof of custom domains. Absent: those of the system.
    #[serde(deserialize_with = "deserialize_optional_listen")]
    pub dns_server: Option<SocketAddr>,
    /// Where it also listens, with TLS. Absent: nowhere; then `tls` is for `listen`.
    #[serde(deserialize_with = "deserialize_optional_listen")]
    pub tls_listen: Option<SocketAddr>,
    /// Whether requests to `listen` are redirected to `tls_listen` where their host has a certificate.
    pub redirect_https: bool,
    /// The certificate for hosts that have none of their own. Absent: plain HTTP.
    pub tls: Option<Tls>,
    /// Certificates that are ordered by ourselves.
    pub acme: Acme,
}

impl Edge {
    /// The address in the URLs of projects, and whether it has TLS.
    pub fn entrance(&self) -> (SocketAddr, bool) {
        match self.tls_listen {
            Some(address) => (address, true),
            None => (self.listen, self.tls.is_some()),
        }
    }
}

impl Default for Edge {
    fn default() -> Self {
        Self {
            listen: loopback(8080),
            domains: "localhost".parse().into_iter().collect(),
            skew_seconds: 3600,
            verify_domains: true,
            access_log: true,
            dns_server: None,
            tls_listen: None,
            redirect_https: true,
            tls: None,
            acme: Acme::default(),
        }
    }
}

/// A certificate and its key, as PEM files.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tls {
    /// The certificate chain.
    pub cert: PathBuf,
    /// Its private key.
    pub key: PathBuf,
}

/// Who may read `/metrics`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Metrics {
    /// Programs on this machine, unless a proxy forwards for them, and administrators.
    #[default]
    Local,
    /// Everyone who reaches the listener.
    Public,
    /// Administrators only.
    Admin,
    /// Nobody: the route does not exist.
    Off,
}

/// Listening for this machine only is the safe default.
pub(super) fn loopback(port: u16) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, port))
}
