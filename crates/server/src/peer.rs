//! Who is at the other end of a connection.
//!
//! Forwarded headers are believed only when the socket belongs to a trusted proxy, and only as far
//! back as the chain of trusted proxies reaches: anything further left is the client's own claim.

use axum::http::HeaderMap;
use estrade_model::Invalid;
use std::net::IpAddr;
use std::str::FromStr;
use std::sync::Arc;

/// The address of the client, in the extensions of every request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PeerAddr(pub IpAddr);

/// An address, or a block of them such as `10.0.0.0/8`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AddressBlock {
    base: IpAddr,
    prefix: u8,
}

impl AddressBlock {
    /// Whether the address lies in this block.
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.base, address.to_canonical()) {
            (IpAddr::V4(base), IpAddr::V4(address)) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(self.prefix)).unwrap_or(0);
                base.to_bits() & mask == address.to_bits() & mask
            }
            (IpAddr::V6(base), IpAddr::V6(address)) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(self.prefix)).unwrap_or(0);
                base.to_bits() & mask == address.to_bits() & mask
            }
            _ => false,
        }
    }
}

impl FromStr for AddressBlock {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        let refused = || Invalid::from("must be an address such as 10.0.0.1 or a block such as 10.0.0.0/8");
        let (base, prefix) = match text.split_once('/') {
            Some((base, prefix)) => (base, Some(prefix)),
            None => (text, None),
        };
        let base: IpAddr = base.parse().map_err(|_| refused())?;
        let longest = if base.is_ipv4() { 32 } else { 128 };
        let prefix = prefix.map_or(Ok(longest), str::parse).map_err(|_| refused())?;
        if prefix > longest {
            return Err(refused());
        }
        Ok(Self { base, prefix })
    }
}

/// The proxies whose forwarded headers are believed.
#[derive(Debug, Clone, Default)]
pub struct TrustedProxies(Arc<[AddressBlock]>);

impl FromIterator<AddressBlock> for TrustedProxies {
    fn from_iter<I: IntoIterator<Item = AddressBlock>>(blocks: I) -> Self {
        Self(blocks.into_iter().collect())
    }
}

impl TrustedProxies {
    /// Whether this address is a trusted proxy.
    pub fn contains(&self, address: IpAddr) -> bool {
        self.0.iter().any(|block| block.contains(address))
    }

    /// The client behind a socket: the right-most address of `X-Forwarded-For` that is no trusted
    /// proxy, or the socket's own when it is none itself.
    pub fn client(&self, socket: IpAddr, headers: &HeaderMap) -> PeerAddr {
        let socket = socket.to_canonical();
        if self.0.is_empty() || !self.contains(socket) {
            return PeerAddr(socket);
        }
        let mut nearest = socket;
        for value in headers.get_all("x-forwarded-for").iter().rev() {
            let Ok(value) = value.to_str() else { break };
            for hop in value.rsplit(',') {
                // An unreadable hop ends the chain: what lies behind it is hearsay.
                let Some(hop) = parse_hop(hop.trim()) else {
                    return PeerAddr(nearest);
                };
                if !self.contains(hop) {
                    return PeerAddr(hop);
                }
                nearest = hop;
            }
        }
        PeerAddr(nearest)
    }
}

/// An address as proxies write it: bare, with a port, or in brackets.
fn parse_hop(text: &str) -> Option<IpAddr> {
    let address = text
        .parse::<IpAddr>()
        .ok()
        .or_else(|| text.parse::<std::net::SocketAddr>().ok().map(|socket| socket.ip()))
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
        trusted.client(socket.parse().unwrap(), &headers).0.to_string()
    }

    #[test]
    fn forwarded_headers_of_strangers_are_ignored() {
        assert_eq!(client(&[], "10.0.0.1", &["1.1.1.1"]), "10.0.0.1");
        assert_eq!(client(&["10.0.0.0/8"], "11.0.0.1", &["1.1.1.1"]), "11.0.0.1");
    }

    #[test]
    fn the_right_most_untrusted_address_is_the_client() {
        let trusted = ["10.0.0.0/8", "::1"];
        assert_eq!(client(&trusted, "10.0.0.1", &["6.6.6.6, 1.1.1.1, 10.2.3.4"]), "1.1.1.1");
        assert_eq!(
            client(&trusted, "::ffff:10.0.0.1", &["6.6.6.6", "[2001:db8::1]:443"]),
            "2001:db8::1"
        );
        assert_eq!(client(&trusted, "::1", &["1.1.1.1, unknown, 10.0.0.9"]), "10.0.0.9");
        assert_eq!(client(&trusted, "10.0.0.1", &[]), "10.0.0.1");
    }

    #[test]
    fn blocks_are_parsed_strictly() {
        for bad in ["", "10.0.0.0/33", "10.0.0/8", "::/129", "10.0.0.0/", "host"] {
            assert!(bad.parse::<AddressBlock>().is_err(), "{bad:?}");
        }
        let everyone: AddressBlock = "0.0.0.0/0".parse().unwrap();
        assert!(everyone.contains("255.1.2.3".parse().unwrap()));
    }
}
