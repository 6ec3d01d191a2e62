//! Networks: one for each owner, a bridge of its own.
//!
//! # Reachability
//!
//! - **Other owners.** The engine forwards nothing between two bridges (its `DOCKER-ISOLATION` chains;
//!   it must not run with `--iptables=false`), and [`Engine::firewall`] closes the gaps that it leaves while
//!   it makes a network. Instances of one owner reach each other.
//! - **The engine.** Its socket is never mounted, and no port of an instance is published.
//! - **Estrade.** A container that connects to any address of its host arrives with its own address:
//!   traffic to the host itself is not masqueraded, and without `NET_RAW` it cannot be forged. So
//!   a listener that drops peers from [`SubnetPool::range`] is closed to every container, without a
//!   race against networks that are being made. The platform listener drops all of them. The AI listener
//!   lets them have inference and nothing else; instances find it at their network's
//!   [`gateway`](Network::gateway), if it listens on that address or on all of them. The edge is open to
//!   the world and so to them, unless [`Engine::firewall`] closes it.
//! - **The rest of the host.** What listens on all of the host's addresses can be reached through the
//!   gateway, as from any neighbour in a local network. The engine has no option against that which
//!   would leave the way from the edge to the instances open; [`Engine::firewall`] has, where it can be set.
//!
//! # Subnets
//!
//! The engine's own pools are good for about 30 networks. Ours come from a pool that the operator
//! knows, 256 networks of 253 instances unless configured otherwise. What the engine does not look at is
//! looked at here: a subnet that the host has a route to already, for a VPN or for another engine, is passed
//! over.

use crate::docker::engine::{Engine, QUICK_TIMEOUT, WORK_TIMEOUT};
use crate::docker::labels::{self, OWNER};
use crate::error::Error;
use bollard::models;
use bollard::query_parameters::ListNetworksOptions;
use estrade_model::ip_range::IpRange;
use estrade_model::{Invalid, OwnerId};
use ipnet::Ipv4Net;
use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};
use std::str::FromStr;

/// How many subnets are tried before giving up, when others take them at the same time.
const MAX_ATTEMPTS: usize = 16;

/// Where the subnets of networks come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SubnetPool(Ipv4Net);

/// The size of one owner's subnet: 253 instances.
const SUBNET_PREFIX: u8 = 24;

impl Default for SubnetPool {
    fn default() -> Self {
        const DEFAULT: Ipv4Net = Ipv4Net::new_assert(Ipv4Addr::new(10, 213, 0, 0), 16);
        Self(DEFAULT)
    }
}

impl FromStr for SubnetPool {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        let network = text.parse::<Ipv4Net>().ok();
        let usable = network.filter(|it| {
            (8..=SUBNET_PREFIX).contains(&it.prefix_len()) && it.addr() == it.network()
        });
        usable.map(Self).ok_or_else(|| {
            Invalid(format!(
                "`{text}` is not a pool of subnets: a private IPv4 network from /8 to /24, such as 10.213.0.0/16"
            ))
        })
    }
}

impl SubnetPool {
    /// Every address that an instance can have. A listener that drops peers from here is closed to
    /// all of them.
    pub fn range(&self) -> IpRange {
        self.0.into()
    }

    /// Those to a part of the pool. A route to all of it or more, such as to a whole private network, takes no
    /// part of it: the route to a subnet goes before it.
    fn within(self, routes: &[Ipv4Net]) -> impl Iterator<Item = Ipv4Net> {
        let routes = routes.iter().copied();
        routes.filter(move |route| self.0.contains(route) && *route != self.0)
    }

    /// All subnets, beginning at an offset that depends on the owner, so that concurrent searches seldom
    /// collide.
    fn candidates(self, owner: OwnerId) -> impl Iterator<Item = Ipv4Net> {
        let count = 1_usize << (SUBNET_PREFIX - self.0.prefix_len());
        let hash = blake3::hash(owner.as_bytes());
        let [a, b, c, d, ..] = *hash.as_bytes();
        let start = u32::from_be_bytes([a, b, c, d]) as usize % count;
        let subnets = self.0.subnets(SUBNET_PREFIX).into_iter().flatten();
        subnets.cycle().skip(start).take(count)
    }
}

/// One owner's network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Network {
    id: String,
    /// Its name, unique on this engine.
    pub name: String,
    pub owner: OwnerId,
    /// The addresses of its instances.
    pub subnet: IpRange,
    /// The host's address in it.
    pub gateway: IpAddr,
}

impl Engine {
    /// The pool that networks get their subnets from.
    pub fn pool(&self) -> SubnetPool {
        self.pool
    }

    /// The owner's network, made if it is not there yet.
    pub async fn ensure_network(&self, owner: OwnerId) -> Result<Network, Error> {
        if let Some(network) = self.network_of(owner).await? {
            return Ok(network);
        }
        let mut taken = self.taken_subnets().await?;
        taken.extend(self.pool.within(&host_routes().await));
        let free = |subnet: &Ipv4Net| {
            let overlaps = |it: &Ipv4Net| it.contains(subnet) || subnet.contains(it);
            !taken.iter().any(overlaps)
        };
        let mut refused = Error::NoSubnetLeft(self.pool.range().to_string());
        for subnet in self.pool.candidates(owner).filter(free).take(MAX_ATTEMPTS) {
            match self.create_network(owner, subnet).await {
                Ok(()) => {}
                Err(error) if error.is_engine_away() => return Err(error),
                Err(error) => refused = error,
            }
            // Another process may have been faster: with this owner's network, or with this subnet.
            if let Some(network) = self.network_of(owner).await? {
                return Ok(network);
            }
        }
        Err(refused)
    }

    /// Every network of this installation.
    pub async fn networks(&self) -> Result<Vec<Network>, Error> {
        let labels = [OWNER.to_owned()];
        Ok(self
            .list_networks(&labels)
            .await?
            .into_iter()
            .filter_map(read)
            .collect())
    }

    /// The subnets of this installation's networks; all of them lie in [`Engine::pool`].
    pub async fn subnets(&self) -> Result<Vec<IpRange>, Error> {
        let networks = self.networks().await?;
        Ok(networks.into_iter().map(|network| network.subnet).collect())
    }

    /// Removes a network. One that is gone already is no error; one with instances is a conflict.
    pub async fn remove_network(&self, network: &Network) -> Result<(), Error> {
        let what = "removing a network";
        match self
            .call(what, WORK_TIMEOUT, self.docker.remove_network(&network.id))
            .await
        {
            Err(Error::NotFound { .. }) => Ok(()),
            Err(Error::Refused {
                status: 403,
                message,
                ..
            }) => Err(Error::Conflict { what, message }),
            other => other,
        }
    }

    /// The name of an owner's network; instances are made in it.
    pub(crate) fn network_name(&self, owner: OwnerId) -> String {
        format!("estrade-{}-{owner}", self.installation)
    }

    /// How the names of this installation's bridges begin.
    pub(crate) fn bridge_prefix(&self) -> String {
        let hash = blake3::hash(self.installation.to_string().as_bytes()).to_hex();
        format!("es{}-", &hash[..4])
    }

    /// The network of an owner; none: it has none.
    pub(crate) async fn network_of(&self, owner: OwnerId) -> Result<Option<Network>, Error> {
        let labels = [format!("{OWNER}={owner}")];
        Ok(self
            .list_networks(&labels)
            .await?
            .into_iter()
            .find_map(read))
    }

    async fn list_networks(&self, labels: &[String]) -> Result<Vec<models::Network>, Error> {
        let options = ListNetworksOptions {
            filters: Some(self.installation.filter(labels)),
        };
        self.call(
            "listing networks",
            QUICK_TIMEOUT,
            self.docker.list_networks(Some(options)),
        )
        .await
    }

    /// The IPv4 subnets of all networks of this engine.
    async fn taken_subnets(&self) -> Result<Vec<Ipv4Net>, Error> {
        let all = self.docker.list_networks(None::<ListNetworksOptions>);
        let networks = self.call("listing networks", QUICK_TIMEOUT, all).await?;
        let configs = networks
            .into_iter()
            .filter_map(|network| network.ipam?.config)
            .flatten();
        Ok(configs
            .filter_map(|config| read_subnet(&config.subnet?))
            .collect())
    }

    async fn create_network(&self, owner: OwnerId, subnet: Ipv4Net) -> Result<(), Error> {
        let name = self.network_name(owner);
        // The name of the interface. It also keeps the engine from making two of the same name.
        let hash = blake3::hash(name.as_bytes()).to_hex();
        let bridge = format!("{}{}", self.bridge_prefix(), &hash[..8]);
        let option =
            |key: &str, value: &str| (format!("com.docker.network.bridge.{key}"), value.to_owned());
        let config = models::IpamConfig {
            subnet: Some(subnet.to_string()),
            gateway: subnet.hosts().next().map(|first| first.to_string()),
            ..Default::default()
        };
        let request = models::NetworkCreateRequest {
            name,
            driver: Some("bridge".to_owned()),
            enable_ipv6: Some(false),
            ipam: Some(models::Ipam {
                config: Some(vec![config]),
                ..Default::default()
            }),
            options: Some(HashMap::from([
                option("name", &bridge),
                option("enable_icc", "true"),
                option("enable_ip_masquerade", "true"),
            ])),
            labels: Some(self.installation.labels([(OWNER, owner.to_string())])),
            ..Default::default()
        };
        let created = self.docker.create_network(request);
        self.call("making a network", WORK_TIMEOUT, created)
            .await
            .map(drop)
    }
}

fn read(network: models::Network) -> Option<Network> {
    let config = network.ipam?.config?.into_iter().next()?;
    Some(Network {
        id: network.id?,
        name: network.name?,
        owner: labels::read(&network.labels?, OWNER)?,
        subnet: config.subnet?.parse().ok()?,
        gateway: config.gateway?.parse().ok()?,
    })
}

/// Where the routes of this host go, which is the engine's as a rule; nowhere where that cannot be read.
async fn host_routes() -> Vec<Ipv4Net> {
    let table = tokio::fs::read_to_string("/proc/net/route").await;
    read_routes(&table.unwrap_or_default())
}

/// Reads the kernel's table: `Iface Destination Gateway Flags RefCnt Use Metric Mask …`, in hexadecimal.
fn read_routes(table: &str) -> Vec<Ipv4Net> {
    let address = |text: &str| {
        let bits = u32::from_str_radix(text, 16).ok()?;
        Some(Ipv4Addr::from_bits(u32::from_be(bits)))
    };
    let read = |line: &str| {
        let mut words = line.split_whitespace().skip(1);
        let base = address(words.next()?)?;
        let mask = address(words.nth(5)?)?;
        let network = Ipv4Net::with_netmask(base, mask).ok()?;
        Some(network.trunc())
    };
    table.lines().filter_map(read).collect()
}

/// An IPv4 network without the bits of a host; none for IPv6.
fn read_subnet(text: &str) -> Option<Ipv4Net> {
    text.parse().ok().map(|network: Ipv4Net| network.trunc())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn a_pool_is_cut_into_subnets_that_do_not_overlap_and_lie_in_it() {
        let pool: SubnetPool = "10.8.0.0/20".parse().unwrap();
        let candidates: HashSet<Ipv4Net> = pool.candidates(OwnerId::generate(1, 2)).collect();
        assert_eq!(candidates.len(), 16);
        for subnet in candidates {
            assert_eq!(subnet.prefix_len(), 24);
            assert_eq!(subnet.addr(), subnet.network());
            assert!(pool.range().contains(subnet.broadcast().into()));
        }
        let one: SubnetPool = "192.168.7.0/24".parse().unwrap();
        assert_eq!(one.candidates(OwnerId::generate(1, 2)).count(), 1);
    }

    #[test]
    fn subnets_that_the_host_has_routes_to_are_taken() {
        let table =
            "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT
eth0\t00000000\t010200C0\t0003\t0\t0\t0\t00000000\t0\t0\t0
tun0\t0000000A\t00000000\t0001\t0\t0\t0\t000000FF\t0\t0\t0
es1\t0007D50A\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0
br0\t0007D60A\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0
tun1\t0000D50A\t00000000\t0001\t0\t0\t0\t0000FFFF\t0\t0\t0
";
        let routes = read_routes(table);
        assert_eq!(routes.len(), 5);
        let taken: Vec<_> = SubnetPool::default().within(&routes).collect();
        assert_eq!(taken, [read_subnet("10.213.7.0/24").unwrap()]);
    }

    #[test]
    fn subnets_are_read_without_the_bits_of_a_host() {
        let text = |subnet| read_subnet(subnet).unwrap().to_string();
        assert_eq!(text("10.213.4.1/24"), "10.213.4.0/24");
        assert_eq!(text("172.16.0.0/12"), "172.16.0.0/12");
        assert_eq!(text("0.0.0.0/0"), "0.0.0.0/0");
        assert_eq!(text("10.0.0.7/32"), "10.0.0.7/32");
        assert_eq!(read_subnet("fd00::/64"), None);
    }

    #[test]
    fn pools_that_make_no_sense_are_refused() {
        for bad in [
            "10.0.0.0",
            "10.0.0.0/7",
            "10.0.0.0/25",
            "10.0.1.0/16",
            "fd00::/16",
            "x/16",
        ] {
            assert!(bad.parse::<SubnetPool>().is_err(), "{bad}");
        }
    }
}
