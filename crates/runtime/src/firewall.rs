//! What containers must not reach, as rules of the kernel's firewall.
//!
//! The engine keeps bridges apart, but takes its rules out and puts them back whenever a network is made or
//! removed (20.10 does); packets of that moment pass. And it never keeps a container from its host. So there
//! are rules of our own, in a table that the engine does not use:
//!
//! - from one bridge of ours to another: nothing
//! - to the host itself: only ports that are named, such as the AI listener's
//! - to the metadata of a cloud (169.254.0.0/16): nothing
//!
//! They need `iptables` and the right to use it. Without them the engine's own rules hold, and the
//! listeners' look at their peers ([`SubnetPool::range`](crate::SubnetPool::range)).
//!
//! A name server on the host's own address is closed with the rest; one on a loopback address or on
//! another machine, which is usual, is not.

use crate::engine::Engine;
use std::process::Stdio;
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::process::Command;
use tokio::time::timeout;

/// How long the kernel's lock may be held by others.
const LIMIT: Duration = Duration::from_secs(20);

/// The rules of one installation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Firewall {
    /// How the names of our bridges begin, and a `+` for the rest.
    bridges: String,
    to_host: String,
    onward: String,
    open: Vec<u16>,
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
        }
    }
}

impl Firewall {
    /// Sets the rules; to do so again changes nothing, except for other ports.
    pub async fn apply(&self) -> Result<(), FirewallError> {
        iptables("iptables-restore", &["--wait", "--noflush"], &self.chains()).await?;
        for (chain, own) in self.jumps() {
            let jump = |how| {
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
            };
            if iptables("iptables", &jump("-C"), "").await.is_err() {
                iptables("iptables", &jump("-I"), "").await?;
            }
        }
        Ok(())
    }

    /// Takes them away.
    pub async fn remove(&self) -> Result<(), FirewallError> {
        for (chain, own) in self.jumps() {
            let jump = [
                "--wait",
                "-t",
                "mangle",
                "-D",
                chain,
                "-i",
                &self.bridges,
                "-j",
                own,
            ];
            while iptables("iptables", &jump, "").await.is_ok() {}
        }
        let gone = format!(
            "*mangle\n:{to_host} -\n:{onward} -\n-X {to_host}\n-X {onward}\nCOMMIT\n",
            to_host = self.to_host,
            onward = self.onward
        );
        iptables("iptables-restore", &["--wait", "--noflush"], &gone).await
    }

    fn jumps(&self) -> [(&'static str, &str); 2] {
        [("INPUT", &self.to_host), ("FORWARD", &self.onward)]
    }

    /// Our chains, for `iptables-restore`, which replaces what is in them in one go.
    fn chains(&self) -> String {
        let Self {
            bridges,
            to_host,
            onward,
            open,
        } = self;
        let open = open
            .iter()
            .map(|port| format!("-A {to_host} -p tcp -m tcp --dport {port} -j RETURN\n"));
        let open: String = open.collect();
        // Bridged is what stays within one bridge; where the kernel shows it to these rules at all.
        format!(
            "*mangle
:{to_host} -
:{onward} -
{open}-A {to_host} -m conntrack --ctstate NEW -j DROP
-A {onward} -o {bridges} -m physdev ! --physdev-is-bridged -j DROP
-A {onward} -d 169.254.0.0/16 -j DROP
COMMIT
"
        )
    }
}

/// Runs a program of iptables with something to read.
async fn iptables(program: &str, arguments: &[&str], input: &str) -> Result<(), FirewallError> {
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
            // One that ends without reading says why.
            let _ = stdin.write_all(input.as_bytes()).await;
        }
        child.wait_with_output().await
    };
    let output = timeout(LIMIT, running).await;
    let output = output.map_err(|_| FirewallError(format!("{program} did not end in time")))?;
    let output = output.map_err(failed)?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(FirewallError(format!("{program}: {}", said.trim())))
}

#[cfg(test)]
mod tests {
    use crate::{Engine, EngineHost, SubnetPool};

    #[test]
    fn rules_of_an_installation() {
        let host = EngineHost::default();
        let engine = Engine::new(host, "a".parse().unwrap(), SubnetPool::default()).unwrap();
        let prefix = engine.bridge_prefix();
        let firewall = engine.firewall(&[3100, 8080]);
        let chains = firewall.chains();
        assert!(chains.contains("--dport 3100 -j RETURN\n"), "{chains}");
        assert!(chains.contains("--dport 8080 -j RETURN\n"), "{chains}");
        assert!(chains.contains(&format!("-o {prefix}+ ")), "{chains}");
        assert!(!engine.firewall(&[]).chains().contains("RETURN"));
        // The kernel's limits.
        assert!(firewall.onward.len() <= 28 && firewall.to_host.len() <= 28);
        assert!(prefix.len() + 8 <= 15);
    }
}
