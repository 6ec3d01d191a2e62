//! The name servers that an engine on this machine gives to containers.
//!
//! Containers query the engine (127.0.0.11), which forwards to these, from inside of their network. One on a
//! loopback address is queried from the host's network, so no rule of the firewall applies to it.

use std::net::IpAddr;
use std::path::Path;

/// The engine's configuration file, at its usual path.
const ENGINE: &str = "/etc/docker/daemon.json";
/// What the host uses.
const HOST: &str = "/etc/resolv.conf";
/// The upstream servers of systemd-resolved; engines use it where the host's file only names that resolver.
const SYSTEMD: &str = "/run/systemd/resolve/resolv.conf";

/// Their addresses, without those on loopback.
pub(crate) async fn engine_resolvers() -> Vec<IpAddr> {
    let configured = from_engine(&read(ENGINE).await);
    if !configured.is_empty() {
        return outside(configured);
    }
    let host = from_resolv_conf(&read(HOST).await);
    if host.iter().all(IpAddr::is_loopback) && Path::new(SYSTEMD).exists() {
        return outside(from_resolv_conf(&read(SYSTEMD).await));
    }
    outside(host)
}

async fn read(path: &str) -> String {
    tokio::fs::read_to_string(path).await.unwrap_or_default()
}

fn outside(mut all: Vec<IpAddr>) -> Vec<IpAddr> {
    all.retain(|address| !address.is_loopback());
    all
}

fn from_engine(json: &str) -> Vec<IpAddr> {
    let config: serde_json::Value = serde_json::from_str(json).unwrap_or_default();
    let servers = config["dns"].as_array().into_iter().flatten();
    servers
        .filter_map(|server| server.as_str()?.parse().ok())
        .collect()
}

fn from_resolv_conf(text: &str) -> Vec<IpAddr> {
    let server = |line: &str| {
        let mut words = line.split_whitespace();
        let address = words.next().filter(|word| *word == "nameserver");
        // Without the interface of a link-local one.
        let address = address.and(words.next())?.split('%').next()?;
        address.parse().ok()
    };
    text.lines().filter_map(server).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_servers_are_read() {
        let text = "# nameserver 10.0.0.1\nsearch x\nnameserver 10.0.0.2\nnameserver  fe80::1%eth0\n\
                    nameserver 127.0.0.53\nnameserver\n";
        let shown: Vec<_> = from_resolv_conf(text)
            .iter()
            .map(IpAddr::to_string)
            .collect();
        assert_eq!(shown, ["10.0.0.2", "fe80::1", "127.0.0.53"]);
        assert_eq!(outside(from_resolv_conf(text)).len(), 2);
        let json = r#"{"dns": ["192.168.1.1", "x"], "debug": true}"#;
        assert_eq!(from_engine(json).len(), 1);
        assert!(from_engine("").is_empty() && from_engine("{}").is_empty());
    }
}
