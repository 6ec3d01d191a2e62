//! Addresses and networks of them.

use crate::Invalid;
use crate::serde_rules::deserialize_text;
use ipnet::{IpNet, Ipv4Net};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// One address (`10.0.0.7`) or a network (`10.0.0.0/8`): an [`IpNet`] that may be written without a prefix and
/// that takes IPv4-mapped addresses for IPv4.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IpRange(IpNet);

impl IpRange {
    /// Whether the address lies in this range. `::ffff:10.0.0.7` counts as `10.0.0.7`,
    /// because that is how a dual-stack listener sees an IPv4 peer.
    pub fn contains(&self, address: IpAddr) -> bool {
        self.0.contains(&address.to_canonical())
    }
}

impl From<Ipv4Net> for IpRange {
    fn from(network: Ipv4Net) -> Self {
        Self(network.into())
    }
}

impl FromStr for IpRange {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        let network = text.parse::<IpAddr>().map(IpNet::from);
        let network = network.or_else(|_| text.parse::<IpNet>());
        network.map(Self).map_err(|_| {
            Invalid(format!(
                "`{text}` is not an IP address or network, such as 10.0.0.7 or 10.0.0.0/8"
            ))
        })
    }
}

impl fmt::Display for IpRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.prefix_len() == self.0.max_prefix_len() {
            self.0.addr().fmt(f)
        } else {
            self.0.fmt(f)
        }
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
