//! Addresses and networks of them.

use crate::Invalid;
use crate::serde_rules::deserialize_text;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::str::FromStr;

/// One address (`10.0.0.7`) or a network (`10.0.0.0/8`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IpRange {
    address: IpAddr,
    prefix: u8,
}

impl IpRange {
    /// Whether the address lies in this range. `::ffff:10.0.0.7` counts as `10.0.0.7`,
    /// because that is how a dual-stack listener sees an IPv4 peer.
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.address, address.to_canonical()) {
            (IpAddr::V4(network), IpAddr::V4(address)) => {
                let differing = network.to_bits() ^ address.to_bits();
                self.prefix == 0 || differing >> (32 - self.prefix) == 0
            }
            (IpAddr::V6(network), IpAddr::V6(address)) => {
                let differing = network.to_bits() ^ address.to_bits();
                self.prefix == 0 || differing >> (128 - self.prefix) == 0
            }
            _ => false,
        }
    }

    /// The IPv4 network that has this address and so many leading bits, at most 32.
    pub fn ipv4(address: Ipv4Addr, prefix: u8) -> Self {
        Self {
            address: address.into(),
            prefix: prefix.min(32),
        }
    }

    fn width(address: IpAddr) -> u8 {
        if address.is_ipv4() { 32 } else { 128 }
    }
}

impl FromStr for IpRange {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        let parse = || {
            let (address, prefix) = match text.split_once('/') {
                Some((address, prefix)) => (address, Some(prefix.parse().ok()?)),
                None => (text, None),
            };
            let address: IpAddr = address.parse().ok()?;
            let width = Self::width(address);
            let prefix = prefix.unwrap_or(width);
            (prefix <= width).then_some(Self { address, prefix })
        };
        parse().ok_or_else(|| {
            Invalid(format!(
                "`{text}` is not an IP address or network, such as 10.0.0.7 or 10.0.0.0/8"
            ))
        })
    }
}

impl fmt::Display for IpRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.address)?;
        if self.prefix < Self::width(self.address) {
            write!(f, "/{}", self.prefix)?;
        }
        Ok(())
    }
}

impl<'de> Deserialize<'de> for IpRange {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        deserialize_text(source, str::parse)
    }
}
impl Serialize for IpRange {
    fn serialize<S: Serializer>(&self, sink: S) -> Result<S::Ok, S::Error> {
        sink.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inside(range: &str, address: &str) -> bool {
        range
            .parse::<IpRange>()
            .unwrap()
            .contains(address.parse().unwrap())
    }

    #[test]
    fn a_range_contains_its_network() {
        assert!(inside("10.0.0.0/8", "10.255.0.1"));
        assert!(!inside("10.0.0.0/8", "11.0.0.1"));
        assert!(inside("10.0.0.7", "10.0.0.7"));
        assert!(!inside("10.0.0.7", "10.0.0.8"));
        assert!(inside("0.0.0.0/0", "1.2.3.4"));
        assert!(!inside("0.0.0.0/0", "::1"));
        assert!(inside("::/0", "fe80::1"));
        assert!(inside("fd00::/8", "fd12::1"));
        assert!(!inside("fd00::/8", "fe80::1"));
        assert!(inside("10.0.0.0/8", "::ffff:10.1.2.3"));
    }

    #[test]
    fn ranges_print_as_they_were_written() {
        for text in ["10.0.0.0/8", "10.0.0.7", "::1", "fd00::/8", "0.0.0.0/0"] {
            assert_eq!(text.parse::<IpRange>().unwrap().to_string(), text);
        }
        for bad in [
            "",
            "proxy",
            "10.0.0.0/33",
            "::/129",
            "10.0.0.0/",
            "10.0.0/8",
        ] {
            assert!(bad.parse::<IpRange>().is_err(), "{bad}");
        }
    }
}
