//! The client's address, from the socket or from `X-Forwarded-For`.
//!
//! `X-Forwarded-For` is used only when the socket belongs to a trusted proxy, and is read from the right
//! up to the first address that is no trusted proxy: anything further left may be forged by the client.

use estrade_model::ip_range::IpRange;
use http::{HeaderMap, HeaderValue};
use std::net::IpAddr;
use std::sync::Arc;

/// The address of the client, in the extensions of every request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PeerAddr(pub IpAddr);

/// The address of the socket itself, in the extensions of every request: the client's, or a proxy's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SocketPeer(pub IpAddr);

/// The proxies whose `X-Forwarded-For` is trusted.
#[derive(Debug, Clone, Default)]
pub struct TrustedProxies(Arc<[IpRange]>);

impl FromIterator<IpRange> for TrustedProxies {
    fn from_iter<I: IntoIterator<Item = IpRange>>(blocks: I) -> Self {
        Self(blocks.into_iter().collect())
    }
}

impl TrustedProxies {
    /// Whether this address is a trusted proxy.
    pub fn contains(&self, address: IpAddr) -> bool {
        self.0.iter().any(|block| block.contains(address))
    }

    /// The client behind a socket: the right-most address of `X-Forwarded-For` that is no trusted
    /// proxy, or the socket's own address when that is no trusted proxy.
    pub fn client(&self, socket: IpAddr, headers: &HeaderMap) -> PeerAddr {
        let mut client = socket.to_canonical();
        let values = headers.get_all("x-forwarded-for").iter().rev();
        self.for_each_hop(socket, values.map(HeaderValue::as_bytes), |hop| {
            client = hop;
        });
        PeerAddr(client)
    }

    /// The verified hops of a request: the client, the trusted proxies after it, and last the socket.
    /// `forwarded` are the values of `X-Forwarded-For`, the last one first.
    pub fn chain<'v>(
        &self,
        socket: IpAddr,
        forwarded: impl Iterator<Item = &'v [u8]>,
    ) -> Vec<IpAddr> {
        let mut chain = vec![socket.to_canonical()];
        self.for_each_hop(socket, forwarded, |hop| chain.push(hop));
        chain.reverse();
        chain
    }

    /// Calls `show` for every verified hop before the socket, the nearest one first.
    fn for_each_hop<'v>(
        &self,
        socket: IpAddr,
        forwarded: impl Iterator<Item = &'v [u8]>,
        mut show: impl FnMut(IpAddr),
    ) {
        if self.0.is_empty() || !self.contains(socket.to_canonical()) {
            return;
        }
        for value in forwarded {
            let Ok(value) = std::str::from_utf8(value) else {
                return;
            };
            for hop in value.rsplit(',') {
                // An unreadable hop ends the chain: nothing vouches for what is left of it.
                let Some(hop) = parse_hop(hop.trim()) else {
                    return;
                };
                show(hop);
                if !self.contains(hop) {
                    return;
                }
            }
        }
    }
}

/// Parses an address as proxies write it: bare, with a port, or in brackets.
fn parse_hop(text: &str) -> Option<IpAddr> {
    let address = text
        .parse::<IpAddr>()
        .ok()
        .or_else(|| {
            text.parse::<std::net::SocketAddr>()
                .ok()
                .map(|socket| socket.ip())
        })
        .or_else(|| text.strip_prefix('[')?.strip_suffix(']')?.parse().ok())?;
    Some(address.to_canonical())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(trusted: &[&str], socket: &str, forwarded: &[&str]) -> String {
        let trusted: TrustedProxies = trusted.iter().map(|block| block.parse().unwrap()).collect();
        let mut headers = HeaderMap::new();
        for value in forwarded {
            headers.append("x-forwarded-for", value.parse().unwrap());
        }
        trusted
            .client(socket.parse().unwrap(), &headers)
            .0
            .to_string()
    }

    #[test]
    fn forwarded_headers_of_strangers_are_ignored() {
        assert_eq!(client(&[], "10.0.0.1", &["1.1.1.1"]), "10.0.0.1");
        assert_eq!(
            client(&["10.0.0.0/8"], "11.0.0.1", &["1.1.1.1"]),
            "11.0.0.1"
        );
    }

    #[test]
    fn the_right_most_untrusted_address_is_the_client() {
        let trusted = ["10.0.0.0/8", "::1"];
        assert_eq!(
            client(&trusted, "10.0.0.1", &["6.6.6.6, 1.1.1.1, 10.2.3.4"]),
            "1.1.1.1"
        );
        assert_eq!(
            client(
                &trusted,
                "::ffff:10.0.0.1",
                &["6.6.6.6", "[2001:db8::1]:443"]
            ),
            "2001:db8::1"
        );
        assert_eq!(
            client(&trusted, "::1", &["1.1.1.1, unknown, 10.0.0.9"]),
            "10.0.0.9"
        );
        assert_eq!(client(&trusted, "10.0.0.1", &[]), "10.0.0.1");
    }

    #[test]
    fn the_chain_ends_at_the_first_hop_that_is_not_verified() {
        let trusted: TrustedProxies = ["10.0.0.0/8".parse().unwrap()].into_iter().collect();
        let chain = |socket: &str, forwarded: &[&'static str]| {
            let values = forwarded.iter().rev().map(|value| value.as_bytes());
            let chain = trusted.chain(socket.parse().unwrap(), values);
            let texts: Vec<String> = chain.iter().map(ToString::to_string).collect();
            texts.join(" ")
        };
        assert_eq!(chain("11.0.0.1", &["1.1.1.1"]), "11.0.0.1");
        assert_eq!(
            chain("10.0.0.1", &["6.6.6.6, 1.1.1.1", "10.0.0.2"]),
            "1.1.1.1 10.0.0.2 10.0.0.1"
        );
        assert_eq!(chain("10.0.0.1", &["1.1.1.1, x"]), "10.0.0.1");
    }
}
