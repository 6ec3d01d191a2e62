//! A network namespace for a node, and a router between it and its database that can stop to forward.
//!
//! ```text
//!   test ── .1 ─────────────── .2 ── node         what clients use, and the bucket
//!        └─ .5 ── .6 router .9 ── .10 ─┘          what the database is reached by
//! ```
//!
//! A router that does not forward drops every packet without a word: no reset, no ICMP message. Both ends see what they
//! see when a cable is pulled somewhere between them.

use crate::support::random;
use std::process::Command;

pub(super) struct Namespaces {
    node: String,
    router: String,
    network: String,
}

impl Namespaces {
    /// Makes them; why not, where this machine does not allow it.
    pub(super) fn create() -> Result<Self, String> {
        let id = format!("{:06x}", random() & 0xff_ffff);
        // 198.18.0.0/15 is for tests of networks: nothing else has such addresses.
        let made = Self {
            node: format!("estrade-{id}-node"),
            router: format!("estrade-{id}-router"),
            network: format!("198.18.{}", random() % 250 + 1),
        };
        made.connect(&id)?;
        Ok(made)
    }

    fn connect(&self, id: &str) -> Result<(), String> {
        let Self {
            node,
            router,
            network,
        } = self;
        let (clients, database) = (format!("es{id}c"), format!("es{id}d"));
        run(&format!(
            "set -e
             ip netns add {node}
             ip netns add {router}
             ip link add {clients} type veth peer name clients netns {node}
             ip link add {database} type veth peer name near netns {router}
             ip -n {router} link add far type veth peer name database netns {node}
             ip address add {network}.1/30 dev {clients}
             ip -n {node} address add {network}.2/30 dev clients
             ip address add {network}.5/30 dev {database}
             ip -n {router} address add {network}.6/30 dev near
             ip -n {router} address add {network}.9/30 dev far
             ip -n {node} address add {network}.10/30 dev database
             ip link set {clients} up
             ip link set {database} up
             ip -n {node} link set lo up
             ip -n {node} link set clients up
             ip -n {node} link set database up
             ip -n {router} link set near up
             ip -n {router} link set far up
             ip -n {node} route add {network}.4/30 via {network}.9
             ip route add {network}.8/30 via {network}.6"
        ))?;
        self.forward(true)
    }

    pub(super) fn node(&self) -> &str {
        &self.node
    }

    /// Where the node listens.
    pub(super) fn node_address(&self) -> String {
        format!("{}.2", self.network)
    }

    /// Where the test listens for what is never cut off.
    pub(super) fn near_address(&self) -> String {
        format!("{}.1", self.network)
    }

    /// Where the test listens behind the router.
    pub(super) fn far_address(&self) -> String {
        format!("{}.5", self.network)
    }

    fn forward(&self, forward: bool) -> Result<(), String> {
        let (router, value) = (&self.router, u8::from(forward));
        run(&format!(
            "ip netns exec {router} sh -c 'echo {value} >/proc/sys/net/ipv4/ip_forward'"
        ))
    }

    /// Drops every packet between the node and what is behind the router.
    pub(super) fn cut(&self) {
        self.forward(false).unwrap();
    }

    pub(super) fn mend(&self) {
        self.forward(true).unwrap();
    }
}

impl Drop for Namespaces {
    fn drop(&mut self) {
        // The pairs of interfaces and the routes go with them.
        let Self { node, router, .. } = self;
        let _ = run(&format!("ip netns delete {node}; ip netns delete {router}"));
    }
}

fn run(script: &str) -> Result<(), String> {
    let output = Command::new("sh").args(["-c", script]).output();
    let output = output.map_err(|error| error.to_string())?;
    if output.status.success() {
        return Ok(());
    }
    Err(String::from_utf8_lossy(&output.stderr).trim().to_owned())
}
