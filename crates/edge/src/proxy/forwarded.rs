//! Origin of a request for `X-Forwarded-*`, `X-Real-IP` and `Forwarded` (RFC 7239).
//!
//! All of them carry the same chain: from the first address that a trusted proxy vouches for to the socket. Headers of
//! untrusted peers are never forwarded.

use estrade_listener::peer::TrustedProxies;
use std::fmt::Write;
use std::net::IpAddr;

/// The chain of addresses, formatted for the headers.
#[derive(Debug, Clone)]
pub(crate) struct Origin {
    /// Whether the socket belongs to a trusted proxy, whose host and protocol headers count, too.
    pub(crate) trusted: bool,
    pub(crate) client: String,
    /// Client and proxies in the format of `X-Forwarded-For`.
    pub(crate) chain: String,
    /// In the format of `Forwarded`: the client, and the proxies behind its `host` and `proto`.
    pub(crate) first: String,
    pub(crate) rest: String,
}

impl Origin {
    /// `forwarded` are the values of `X-Forwarded-For`, the last one first.
    pub(crate) fn new<'v>(
        proxies: &TrustedProxies,
        socket: IpAddr,
        forwarded: impl Iterator<Item = &'v [u8]>,
    ) -> Self {
        let chain = proxies.chain(socket, forwarded);
        let client = chain.first().copied().unwrap_or(socket);
        let mut origin = Self {
            trusted: proxies.contains(socket.to_canonical()),
            client: client.to_string(),
            chain: client.to_string(),
            first: element(client),
            rest: String::new(),
        };
        for hop in &chain[1..] {
            // Writing into memory does not fail.
            let _ = write!(origin.chain, ", {hop}");
            origin.rest.push_str(", ");
            origin.rest.push_str(&element(*hop));
        }
        origin
    }
}

fn element(address: IpAddr) -> String {
    match address {
        IpAddr::V4(address) => format!("for={address}"),
        IpAddr::V6(address) => format!("for=\"[{address}]\""),
    }
}
