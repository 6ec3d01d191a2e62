//! What containers must not reach, as rules of the kernel's firewall.
//!
//! The engine keeps bridges apart, but takes its rules out and puts them back whenever a network is made or
//! removed (20.10 does); packets of that moment pass. And it never keeps a container from its host. So there
//! are rules of our own, in a table that the engine does not use:
//!
//! - from one bridge of ours to another: nothing
//! - to the host itself: only ports that are named, such as the AI listener's
//! - onward: what [`Egress`] allows; never the metadata of a cloud (169.254.0.0/16)
//! - replies on established connections: everything
//!
//! The name server that the engine queries for containers stays open on port 53, wherever it is, unless nothing
//! may go out: the engine queries it from inside of the container's network, so these rules apply to it.
//!
//! Steps of builds run in the same networks, so the rules hold for them as well. What the engine itself
//! downloads, such as images, does not come from a container and is not held by them.
//!
//! They need `iptables` and the right to use it. Without them the engine's own rules hold, and the
//! listeners' look at their peers ([`SubnetPool::range`](crate::SubnetPool::range)). The same rules are set for
//! IPv6 where the host has it, although our networks are made without.

use crate::docker::engine::Engine;
use crate::network_policy::Egress;
use std::fmt::{self, Write};
use std::net::IpAddr;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::process::Command;
use tokio::time::timeout;

/// How long the kernel's lock may be held by others.
const TIMEOUT: Duration = Duration::from_secs(20);

/// The networks that are not the internet, for IPv4: loopback, RFC 1918, RFC 6598, link-local.
const PRIVATE_V4: [&str; 6] = [
    "127.0.0.0/8",
    "10.0.0.0/8",
    "172.16.0.0/12",
    "192.168.0.0/16",
    "100.64.0.0/10",
    LINK_LOCAL_V4,
];
/// The same for IPv6: loopback, unique local, link-local.
const PRIVATE_V6: [&str; 3] = ["::1/128", "fc00::/7", LINK_LOCAL_V6];
const LINK_LOCAL_V4: &str = "169.254.0.0/16";
const LINK_LOCAL_V6: &str = "fe80::/10";

/// The rules of one installation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Firewall {
    /// How the names of our bridges begin, and a `+` for the rest.
    bridges: String,
    to_host: String,
    onward: String,
    open: Vec<u16>,
    egress: Egress,
    resolvers: Vec<IpAddr>,
}

/// A family of addresses has programs and tables of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Family {
    V4,
    V6,
}

impl Family {
    /// Those that this host has.
    fn all() -> impl Iterator<Item = Self> {
        let v6 = Path::new("/proc/net/if_inet6").exists();
        [Self::V4, Self::V6]
            .into_iter()
            .filter(move |family| v6 || *family == Self::V4)
    }

    fn program(self) -> &'static str {
        match self {
            Self::V4 => "iptables",
            Self::V6 => "ip6tables",
        }
    }

    fn restore(self) -> &'static str {
        match self {
            Self::V4 => "iptables-restore",
            Self::V6 => "ip6tables-restore",
        }
    }

    fn has(self, address: IpAddr) -> bool {
        address.is_ipv4() == (self == Self::V4)
    }

    /// Where containers may not connect to.
    fn closed(self, egress: Egress) -> &'static [&'static str] {
        match (egress, self) {
            (Egress::Internet, Self::V4) => &PRIVATE_V4,
            (Egress::Internet, Self::V6) => &PRIVATE_V6,
            (Egress::All, Self::V4) => &[LINK_LOCAL_V4],
            (Egress::All, Self::V6) => &[LINK_LOCAL_V6],
            (Egress::None, Self::V4) => &["0.0.0.0/0"],
            (Egress::None, Self::V6) => &["::/0"],
        }
    }
}

/// The rules could not be set.
#[derive(Debug, thiserror::Error)]
#[error("the firewall rules for containers could not be set: {0}")]
pub struct FirewallError(String);

impl Engine {
    /// The rules for this installation's networks, also for those to come: of the host, only these TCP ports are open
    /// to containers. The engine must be on this machine.
    pub fn firewall(&self, open: &[u16]) -> Firewall {
        let prefix = self.bridge_prefix();
        Firewall {
            to_host: format!("ESTRADE-HOST-{prefix}"),
            onward: format!("ESTRADE-ONWARD-{prefix}"),
            bridges: format!("{prefix}+"),
            open: open.to_vec(),
            egress: Egress::default(),
            resolvers: Vec::new(),
        }
    }
}

impl Firewall {
    /// The same with another egress.
    #[must_use]
    pub fn egress(self, egress: Egress) -> Self {
        Self { egress, ..self }
    }

    /// The same with name servers that stay open.
    #[must_use]
    pub fn resolvers(self, resolvers: Vec<IpAddr>) -> Self {
        Self { resolvers, ..self }
    }

    /// Sets the rules. Those that are there, also of a server that was killed, are replaced in one go; to do so
    /// again changes nothing.
    pub async fn apply(&self) -> Result<(), FirewallError> {
        for family in Family::all() {
            let arguments = ["--wait", "--noflush"];
            run(family.restore(), &arguments, &self.chains(family)).await?;
            for (chain, own) in self.jumps() {
                if run(family.program(), &self.jump("-C", chain, own), "")
                    .await
                    .is_err()
                {
                    run(family.program(), &self.jump("-I", chain, own), "").await?;
                }
            }
        }
        Ok(())
    }

    /// Takes them away.
    pub async fn remove(&self) -> Result<(), FirewallError> {
        let mut removed = Ok(());
        for family in Family::all() {
            for (chain, own) in self.jumps() {
                let jump = self.jump("-D", chain, own);
                while run(family.program(), &jump, "").await.is_ok() {}
            }
            let gone = format!(
                "*mangle\n:{to_host} -\n:{onward} -\n-X {to_host}\n-X {onward}\nCOMMIT\n",
                to_host = self.to_host,
                onward = self.onward
            );
            let gone = run(family.restore(), &["--wait", "--noflush"], &gone).await;
            removed = removed.and(gone);
        }
        removed
    }

    fn jumps(&self) -> [(&'static str, &str); 2] {
        [("INPUT", &self.to_host), ("FORWARD", &self.onward)]
    }

    fn jump<'j>(&'j self, how: &'j str, chain: &'j str, own: &'j str) -> [&'j str; 9] {
        [
            "--wait",
            "-t",
            "mangle",
            how,
            chain,
            "-i",
            &self.bridges,
            "-j",
            own,
        ]
    }

    /// Our chains, for `iptables-restore`, which replaces what is in them in one go.
    fn chains(&self, family: Family) -> String {
        let Self {
            bridges,
            to_host,
            onward,
            ..
        } = self;
        let mut rules = format!("*mangle\n:{to_host} -\n:{onward} -\n");
        let mut add = |rule: fmt::Arguments<'_>| {
            // Writing to a string cannot fail.
            let _ = writeln!(rules, "-A {rule}");
        };
        for port in &self.open {
            add(format_args!(
                "{to_host} -p tcp -m tcp --dport {port} -j RETURN"
            ));
        }
        // Bridged is what stays within one bridge; where the kernel shows it to these rules at all.
        add(format_args!(
            "{onward} -m physdev --physdev-is-bridged -j RETURN"
        ));
        add(format_args!("{onward} -o {bridges} -j DROP"));
        add(format_args!(
            "{onward} -m conntrack --ctdir REPLY -j RETURN"
        ));
        for resolver in self.open_resolvers(family) {
            for chain in [to_host, onward] {
                for protocol in ["udp", "tcp"] {
                    add(format_args!(
                        "{chain} -d {resolver} -p {protocol} -m {protocol} --dport 53 -j RETURN"
                    ));
                }
            }
        }
        add(format_args!("{to_host} -m conntrack --ctstate NEW -j DROP"));
        for network in family.closed(self.egress) {
            add(format_args!("{onward} -d {network} -j DROP"));
        }
        rules.push_str("COMMIT\n");
        rules
    }

    fn open_resolvers(&self, family: Family) -> impl Iterator<Item = IpAddr> {
        let nothing = self.egress == Egress::None;
        let all = self.resolvers.iter().copied();
        all.filter(move |address| !nothing && family.has(*address))
    }
}

/// Runs a program of iptables with something to read.
async fn run(program: &str, arguments: &[&str], input: &str) -> Result<(), FirewallError> {
    let failed = |error: std::io::Error| FirewallError(format!("{program}: {error}"));
    // They are seldom where an ordinary user looks.
    let path = std::env::var("PATH").unwrap_or_default();
    let mut child = Command::new(program)
        .args(arguments)
        .env("PATH", format!("{path}:/usr/sbin:/sbin"))
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .map_err(failed)?;
    let running = async {
        if let Some(mut stdin) = child.stdin.take() {
            // A program that ends without reading reports the reason on stderr.
            let _ = stdin.write_all(input.as_bytes()).await;
        }
        child.wait_with_output().await
    };
    let output = timeout(TIMEOUT, running).await;
    let output = output.map_err(|_| FirewallError(format!("{program} did not end in time")))?;
    let output = output.map_err(failed)?;
    if output.status.success() {
        return Ok(());
    }
    let message = String::from_utf8_lossy(&output.stderr);
    Err(FirewallError(format!("{program}: {}", message.trim())))
}

#[cfg(test)]
mod tests {
    use super::{Egress, Family, Firewall};
    use crate::{Engine, EngineHost, SubnetPool};

    fn engine() -> Engine {
        let host = EngineHost::default();
        Engine::new(host, "a".parse().unwrap(), SubnetPool::default()).unwrap()
    }

    #[test]
    fn rules_of_an_installation() {
        let engine = engine();
        let prefix = engine.bridge_prefix();
        let firewall = engine.firewall(&[3100, 8080]);
        let chains = firewall.chains(Family::V4);
        assert!(chains.contains("--dport 3100 -j RETURN\n"), "{chains}");
        assert!(chains.contains("--dport 8080 -j RETURN\n"), "{chains}");
        assert!(chains.contains(&format!("-o {prefix}+ ")), "{chains}");
        assert!(!engine.firewall(&[]).chains(Family::V4).contains("--dport"));
        // The kernel's limits.
        assert!(firewall.onward.len() <= 28 && firewall.to_host.len() <= 28);
        assert!(prefix.len() + 8 <= 15);
    }

    /// The networks that a container may not connect to.
    fn closed(firewall: &Firewall, family: Family) -> Vec<String> {
        let chains = firewall.chains(family);
        let network = |line: &str| {
            let (_, rest) = line.split_once(" -d ")?;
            Some(rest.strip_suffix(" -j DROP")?.to_owned())
        };
        chains.lines().filter_map(network).collect()
    }

    #[test]
    fn the_internet_is_everything_but_private_networks() {
        let firewall = engine().firewall(&[]);
        let v4 = "127.0.0.0/8 10.0.0.0/8 172.16.0.0/12 192.168.0.0/16 100.64.0.0/10 169.254.0.0/16";
        assert_eq!(closed(&firewall, Family::V4).join(" "), v4);
        assert_eq!(
            closed(&firewall, Family::V6).join(" "),
            "::1/128 fc00::/7 fe80::/10"
        );
        let all = firewall.clone().egress(Egress::All);
        assert_eq!(closed(&all, Family::V4), ["169.254.0.0/16"]);
        let none = firewall.egress(Egress::None);
        assert_eq!(closed(&none, Family::V4), ["0.0.0.0/0"]);
        assert_eq!(closed(&none, Family::V6), ["::/0"]);
    }

    #[test]
    fn a_resolver_stays_open_in_its_family_unless_nothing_may_go_out() {
        let firewall = engine().firewall(&[]);
        let firewall = firewall.resolvers(vec!["10.0.0.2".parse().unwrap()]);
        let rule = "-d 10.0.0.2 -p udp -m udp --dport 53 -j RETURN\n";
        assert_eq!(firewall.chains(Family::V4).matches(rule).count(), 2);
        assert!(!firewall.chains(Family::V6).contains("10.0.0.2"));
        let none = firewall.egress(Egress::None);
        assert!(!none.chains(Family::V4).contains("10.0.0.2"));
    }

    #[test]
    fn egress_has_three_names() {
        for name in ["internet", "all", "none"] {
            assert_eq!(name.parse::<Egress>().unwrap().to_string(), name);
        }
        assert!("some".parse::<Egress>().is_err());
    }
}
