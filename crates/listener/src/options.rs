//! How a listener treats its connections.

use crate::admission::Admission;
use crate::descriptors::DescriptorShare;
use crate::hosts::AllowedHosts;
use crate::peer::TrustedProxies;
use crate::tls::TlsSource;
use estrade_model::ip_range::IpRange;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// How a listener treats its connections.
#[derive(Debug, Clone)]
pub struct ListenerOptions {
    /// Where its certificates come from; plain HTTP without.
    pub tls: Option<TlsSource>,
    /// Whose forwarded headers are believed.
    pub trusted_proxies: TrustedProxies,
    /// Clients that are not served: their connections are closed before anything is read.
    pub refuse_peers: Vec<IpRange>,
    /// The hosts that requests may name; any without.
    pub allowed_hosts: Option<AllowedHosts>,
    /// Connections at once; when they are taken, the longest idle ones make room, and without any new
    /// ones wait in the backlog.
    pub max_connections: usize,
    /// Connections of one address, or of one IPv6 network of 64 bits; half of all without a number.
    /// Trusted proxies have no such limit.
    pub max_connections_per_address: Option<usize>,
    /// The file descriptors that it shares with other listeners; without, it has as many as it needs.
    pub descriptors: Option<DescriptorShare>,
    /// How long a new connection may take until its first request is complete.
    pub header_timeout: Duration,
    /// How long a connection may wait for its next request.
    pub idle_timeout: Duration,
    /// How long requests in flight may take when the listener stops.
    pub drain_timeout: Duration,
}

impl Default for ListenerOptions {
    fn default() -> Self {
        Self {
            tls: None,
            trusted_proxies: TrustedProxies::default(),
            refuse_peers: Vec::new(),
            allowed_hosts: None,
            max_connections: 10_000,
            max_connections_per_address: None,
            descriptors: None,
            header_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(75),
            drain_timeout: Duration::from_secs(30),
        }
    }
}

impl ListenerOptions {
    /// Whether a request may name this host.
    pub fn allows_host(&self, authority: &str) -> bool {
        let allowed = self.allowed_hosts.as_ref();
        allowed.is_none_or(|hosts| hosts.allows(authority))
    }

    /// The connections of a listener with these options, all of which end with `stop`.
    pub(crate) fn admission(&self, stop: &CancellationToken) -> Arc<Admission> {
        let half = self.max_connections.div_ceil(2);
        let per_address = self.max_connections_per_address.unwrap_or(half);
        Admission::new(
            self.max_connections,
            per_address,
            self.descriptors.clone(),
            self.trusted_proxies.clone(),
            stop.clone(),
        )
    }
}
