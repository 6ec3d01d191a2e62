//! Protection against SSRF by image names. The engine pulls images in the network of its machine, so the name of a
//! registry could be that of an internal service.
//!
//! A name is looked up here and once more by the engine. An attacker who controls the name can change its records in
//! between (DNS rebinding), and a registry can redirect the engine. So this does not keep the engine from connecting to
//! an internal address, and no response of a registry may be shown to the user who named it.

use estrade_model::Invalid;
use estrade_model::image_ref::ImageRef;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;
use std::time::Duration;
use tokio::net::lookup_host;
use tokio::time::timeout;

/// How long the lookup of a name may take.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(10);
/// The port of a registry that names none.
const HTTPS_PORT: u16 = 443;

/// A registry that the operator allows: `registry.example`, with any port, or `10.0.0.5:5000`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegistryName(String);

impl FromStr for RegistryName {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        let known = text == "localhost" || text.contains(['.', ':']);
        let image: Result<ImageRef, _> = format!("{text}/image").parse();
        if known && !text.contains('/') && image.is_ok() {
            return Ok(Self(text.to_ascii_lowercase()));
        }
        Err(Invalid(format!(
            "`{text}` is not a registry; write a host with or without a port, such as registry.example or 10.0.0.5:5000"
        )))
    }
}

impl fmt::Display for RegistryName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The registries that images may come from.
#[derive(Debug, Clone, Default)]
pub struct Registries {
    allowed: Vec<RegistryName>,
}

/// Images must not come from there. The error does not reveal what the name resolves to inside.
#[derive(Debug, thiserror::Error)]
#[error(
    "the registry `{0}` has no public address here, and images of it may not be used; whoever runs this installation can allow it with `docker.registries`"
)]
pub struct RegistryRefused(String);

impl Registries {
    /// Those with a public address, and these.
    pub fn new(allowed: Vec<RegistryName>) -> Self {
        Self { allowed }
    }

    /// Refuses images of registries that are not public, unless they are allowed.
    pub async fn check(&self, image: &ImageRef) -> Result<(), RegistryRefused> {
        let Some(registry) = image.registry() else {
            return Ok(());
        };
        if self.allows(registry) || is_public(registry).await {
            return Ok(());
        }
        Err(RegistryRefused(registry.to_owned()))
    }

    fn allows(&self, registry: &str) -> bool {
        let registry = registry.to_ascii_lowercase();
        let host = registry.split(':').next().unwrap_or_default();
        let mut allowed = self.allowed.iter();
        allowed.any(|it| it.0 == registry || it.0 == host)
    }
}

/// Whether a registry has addresses, all of which are public.
async fn is_public(registry: &str) -> bool {
    let (host, port) = registry.split_once(':').unwrap_or((registry, ""));
    let host = host.to_ascii_lowercase();
    if host == "localhost" || host.ends_with(".localhost") {
        return false;
    }
    // Some take `127.1`, `0x7f000001`, `0177.0.0.1` and `2130706433` for addresses, and others look them up as names.
    let last = host.rsplit('.').next().unwrap_or_default();
    if last.bytes().all(|b| b.is_ascii_digit()) || last.starts_with("0x") {
        let address = host.parse::<Ipv4Addr>();
        return address.is_ok_and(is_public_v4);
    }
    let port = port.parse().unwrap_or(HTTPS_PORT);
    match timeout(LOOKUP_TIMEOUT, lookup_host((host.as_str(), port))).await {
        Ok(Ok(found)) => {
            let found: Vec<_> = found.map(|address| address.ip()).collect();
            !found.is_empty() && found.into_iter().all(is_public_address)
        }
        Ok(Err(_)) | Err(_) => false,
    }
}

fn is_public_address(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    // 0.0.0.0/8, 100.64.0.0/10, 192.0.0.0/24, 198.18.0.0/15 and 240.0.0.0/4 are special-purpose ranges.
    let special = matches!(
        address.octets(),
        [0 | 240..=255, ..] | [100, 64..=127, ..] | [192, 0, 0, _] | [198, 18 | 19, ..]
    );
    !(special
        || address.is_private()
        || address.is_loopback()
        || address.is_link_local()
        || address.is_multicast())
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    let inner = |high: u16, low: u16| {
        is_public_v4(Ipv4Addr::from_bits(
            (u32::from(high) << 16) | u32::from(low),
        ))
    };
    match address.segments() {
        // These lead to the address of version 4 in them.
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] | [0, 0, 0, 0, 0, 0xffff, high, low] => {
            inner(high, low)
        }
        [0x2002, high, low, ..] => inner(high, low),
        // Of the others only 2000::/3 is allocated as global unicast.
        [first, ..] => first & 0xe000 == 0x2000,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn is_refused(registries: &Registries, image: &str) -> bool {
        let image: ImageRef = image.parse().unwrap();
        registries.check(&image).await.is_err()
    }

    #[tokio::test]
    async fn registries_that_are_not_public_are_refused() {
        let registries = Registries::default();
        for image in [
            "localhost/x:1",
            "localhost:5000/x:1",
            "LocalHost:5000/x:1",
            "a.localhost/x:1",
            "127.0.0.1:5000/x:1",
            "127.1:5000/x:1",
            "2130706433:80/x:1",
            "0x7f000001:80/x",
            "0x7f.1/x",
            "0177.0.0.1/x",
            "0.0.0.0:80/x",
            "10.1.2.3/x:1",
            "172.16.0.1/x:1",
            "192.168.1.1:5000/a/b/c@sha256:0000000000000000000000000000000000000000000000000000000000000000",
            "169.254.169.254/latest/meta:1",
            "100.64.0.1/x",
            "224.0.0.1/x",
            "255.255.255.255/x",
            // Nothing is known of it.
            "no-such-host.invalid/x:1",
        ] {
            assert!(is_refused(&registries, image).await, "{image}");
        }
        for image in [
            "nginx",
            "library/nginx:1",
            "localhost",
            "docker.io/library/nginx:1",
            "index.docker.io/a/b",
            "1.1.1.1/x:1",
            "192.0.2.1:5000/x",
        ] {
            assert!(!is_refused(&registries, image).await, "{image}");
        }
    }

    #[tokio::test]
    async fn the_operator_allows_some_of_them() {
        let allowed = ["Localhost:5000", "10.0.0.5"].map(|name| name.parse().unwrap());
        let registries = Registries::new(allowed.to_vec());
        for image in ["localhost:5000/x:1", "10.0.0.5/x", "10.0.0.5:81/x"] {
            assert!(!is_refused(&registries, image).await, "{image}");
        }
        for image in [
            "localhost:5001/x",
            "localhost/x",
            "10.0.0.6/x",
            "110.0.0.5.localhost/x",
        ] {
            assert!(is_refused(&registries, image).await, "{image}");
        }
        for bad in [
            "",
            "registry",
            "http://a.example",
            "a.example/b",
            "a.example:x",
            "[::1]",
        ] {
            assert!(bad.parse::<RegistryName>().is_err(), "{bad}");
        }
    }

    #[test]
    fn addresses_of_version_6_lead_nowhere_private_either() {
        for (address, public) in [
            ("::1", false),
            ("::", false),
            ("fd00::1", false),
            ("fe80::1", false),
            ("fec0::1", false),
            ("ff02::1", false),
            ("::ffff:127.0.0.1", false),
            ("::127.0.0.1", false),
            ("64:ff9b::10.0.0.1", false),
            ("2002:7f00:1::", false),
            ("64:ff9b::1.1.1.1", true),
            ("::ffff:1.1.1.1", true),
            ("2606:4700::1111", true),
        ] {
            let parsed = address.parse().unwrap();
            assert_eq!(is_public_address(parsed), public, "{address}");
        }
    }
}
