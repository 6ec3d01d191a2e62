//! `[edge.acme]`: certificates that are ordered by ourselves.

use super::url::HttpUrl;
use serde::{Deserialize, Serialize};
use std::num::NonZeroU32;
use std::path::PathBuf;

/// Certificates from an ACME server, for the hosts that the edge serves.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Acme {
    /// Whether certificates are ordered.
    pub enabled: bool,
    /// The server's directory.
    pub directory: HttpUrl,
    /// Whom the server may write to.
    pub email: Option<String>,
    /// The root certificate of a private server; absent: those of the system.
    pub ca_file: Option<PathBuf>,
    /// How hosts are proved, in the order in which it is tried.
    pub challenges: Vec<Challenge>,
    /// Most orders within an hour.
    pub orders_per_hour: NonZeroU32,
}

impl Default for Acme {
    fn default() -> Self {
        #[expect(clippy::expect_used, reason = "a constant, which a test parses")]
        let directory = "https://acme-v02.api.letsencrypt.org/directory"
            .parse()
            .expect("a URL");
        Self {
            enabled: false,
            directory,
            email: None,
            ca_file: None,
            challenges: vec![Challenge::Http01, Challenge::TlsAlpn01],
            orders_per_hour: NonZeroU32::MIN.saturating_add(49),
        }
    }
}

/// How a host is proved to an ACME server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Challenge {
    /// By a page on port 80.
    #[serde(rename = "http-01")]
    Http01,
    /// By a certificate on port 443.
    #[serde(rename = "tls-alpn-01")]
    TlsAlpn01,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fifty_orders_an_hour_from_a_public_server_once_it_is_enabled() {
        let acme = Acme::default();
        assert!(!acme.enabled && acme.directory.is_https());
        assert_eq!(acme.orders_per_hour.get(), 50);
    }
}
