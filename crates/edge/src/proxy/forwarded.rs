//! Where a request came from, as instances are told: `X-Forwarded-*`, `X-Real-IP` and `Forwarded`
//! (RFC 7239).
//!
//! All of them tell the same: the way of the request as far as it can be believed. What a visitor
//! says about itself is never passed on, and what a trusted proxy says only as far as it knows.

use estrade_listener::peer::TrustedProxies;
use std::fmt::Write;
use std::net::IpAddr;

/// The way of a request, in the words of the headers.
#[derive(Debug, Clone)]
pub(crate) struct Origin {
    /// Whether the socket belongs to a trusted proxy, which may also say what it was asked for.
    pub(crate) trusted: bool,
    /// The client.
    pub(crate) client: String,
    /// The client and the proxies, as `X-Forwarded-For` has them.
    pub(crate) chain: String,
    /// The same for `Forwarded`: the client, and what comes after what is said of its request.
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
