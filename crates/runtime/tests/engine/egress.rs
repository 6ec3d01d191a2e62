//! Where containers may connect to, tried between network namespaces of the test's own: nothing leaves the
//! machine, and the machine's firewall is not touched.
//!
//! ```text
//! container ── es….- (a bridge of ours) ── router, with the rules ── world
//! ```
//!
//! The test runs itself again in each of the three.

use estrade_runtime::{Egress, Engine, EngineHost, Firewall, SubnetPool};
use std::io::Write;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const ROLE: &str = "ESTRADE_TEST_ROLE";
const VISITS: &str = "ESTRADE_TEST_VISITS";
const TEST: &str = "egress::containers_reach_what_egress_allows";
const INSTALLATION: &str = "egress";
const CONTAINER: &str = "10.213.5.2";
/// A name server with a private address.
const RESOLVER: &str = "10.99.0.1";
/// Addresses for documentation stand for the internet.
const INTERNET: [&str; 3] = ["198.51.100.2", "203.0.113.1", "2001:db8:2::2"];
const PRIVATE: [&str; 5] = [
    RESOLVER,
    "172.16.9.1",
    "192.168.9.1",
    "100.64.9.1",
    "fd99::1",
];
const METADATA: &str = "169.254.9.1";

#[test]
fn containers_reach_what_egress_allows() {
    match std::env::var(ROLE).as_deref() {
        Err(_) => outside(),
        Ok("router") => route(),
        Ok("serve") => serve(),
        Ok("visit") => visit(),
        Ok(role) => panic!("{role}"),
    }
}

fn engine() -> Engine {
    let host = EngineHost::default();
    Engine::new(host, INSTALLATION.parse().unwrap(), SubnetPool::default()).unwrap()
}

/// This test again, in another role, in a namespace.
fn again(role: &str, before: &[&str]) -> Command {
    let test = std::env::current_exe().unwrap();
    let mut command = Command::new(before[0]);
    command
        .args(&before[1..])
        .arg(test)
        .args(["--exact", TEST, "--nocapture", "--test-threads=1"])
        .env(ROLE, role);
    command
}

fn outside() {
    // Names of namespaces are files in /run.
    let script = "mount -t tmpfs tmpfs /run && exec \"$@\"";
    let before = ["unshare", "--net", "--mount", "sh", "-c", script, "sh"];
    let ended = again("router", &before).output().unwrap();
    assert!(
        ended.status.success(),
        "{}{}",
        String::from_utf8_lossy(&ended.stdout),
        String::from_utf8_lossy(&ended.stderr)
    );
}

fn sh(script: &str) -> String {
    let output = Command::new("sh").args(["-ec", script]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{script}: {said}");
    String::from_utf8(output.stdout).unwrap()
}

/// Three namespaces in a row; this one is in the middle.
fn lay_cables() {
    let hash = blake3::hash(INSTALLATION.as_bytes()).to_hex();
    let bridge = format!("es{}-test", &hash[..4]);
    sh(&format!(
        "export PATH=$PATH:/usr/sbin:/sbin
         ip link set lo up
         echo 1 >/proc/sys/net/ipv4/ip_forward
         echo 1 >/proc/sys/net/ipv6/conf/all/forwarding
         ip netns add container; ip netns add world
         ip link add {bridge} type veth peer name eth0 netns container
         ip link add out type veth peer name eth0 netns world
         ip addr add 10.213.5.1/24 dev {bridge}
         ip addr add 2001:db8:1::1/64 dev {bridge} nodad
         ip addr add 198.51.100.1/24 dev out
         ip addr add 2001:db8:2::1/64 dev out nodad
         ip link set {bridge} up; ip link set out up
         c='ip -n container'; w='ip -n world'
         $c addr add {CONTAINER}/24 dev eth0
         $c addr add 2001:db8:1::2/64 dev eth0 nodad
         $w addr add 198.51.100.2/24 dev eth0
         $w addr add 2001:db8:2::2/64 dev eth0 nodad
         $c link set lo up; $c link set eth0 up; $w link set lo up; $w link set eth0 up
         $c route add default via 10.213.5.1; $c route add default via 2001:db8:1::1
         $w route add default via 198.51.100.1; $w route add default via 2001:db8:2::1
         for a in 203.0.113.1 {RESOLVER} 172.16.9.1 192.168.9.1 100.64.9.1 {METADATA}; do
             $w addr add $a/32 dev lo; ip route add $a/32 via 198.51.100.2
         done
         $w addr add fd99::1/128 dev lo nodad; ip route add fd99::1/128 via 2001:db8:2::2"
    ));
}

/// Ends with the test.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn server_in(namespace: &str) -> Server {
    let mut command = again("serve", &["ip", "netns", "exec", namespace]);
    Server(command.stdout(Stdio::null()).spawn().unwrap())
}

fn serve() {
    let listen = |port| TcpListener::bind((Ipv6Addr::UNSPECIFIED, port)).unwrap();
    let (web, names) = (listen(8080), listen(53));
    std::thread::spawn(move || names.incoming().for_each(drop));
    web.incoming().for_each(drop);
}

/// Which of these can be reached from a namespace.
fn reached(namespace: &str, visits: &[String]) -> Vec<String> {
    let mut command = again("visit", &["ip", "netns", "exec", namespace]);
    let said = command.env(VISITS, visits.join(" ")).output().unwrap();
    let said = String::from_utf8(said.stdout).unwrap();
    let reached = said
        .lines()
        .filter_map(|line| line.strip_prefix("reached "));
    let mut reached: Vec<_> = reached.map(str::to_owned).collect();
    reached.sort();
    reached
}

fn visit() {
    let visits = std::env::var(VISITS).unwrap();
    std::thread::scope(|scope| {
        for address in visits.split(' ') {
            scope.spawn(move || {
                let to: SocketAddr = address.parse().unwrap();
                if TcpStream::connect_timeout(&to, Duration::from_secs(2)).is_ok() {
                    let line = format!("\nreached {address}\n");
                    std::io::stdout().write_all(line.as_bytes()).unwrap();
                }
            });
        }
    });
}

fn at(addresses: &[&str], port: u16) -> Vec<String> {
    let address = |text: &&str| SocketAddr::new(text.parse().unwrap(), port).to_string();
    let mut all: Vec<_> = addresses.iter().map(address).collect();
    all.sort();
    all
}

fn rules() -> Vec<String> {
    let all = sh("export PATH=$PATH:/usr/sbin; iptables -t mangle -S; ip6tables -t mangle -S");
    let ours = all.lines().filter(|line| line.contains("ESTRADE"));
    ours.map(str::to_owned).collect()
}

fn route() {
    lay_cables();
    let _servers = [server_in("container"), server_in("world")];
    let (internet, private) = (at(&INTERNET, 8080), at(&PRIVATE, 8080));
    let metadata = at(&[METADATA], 8080);
    let resolver = at(&[RESOLVER], 53);
    let everything = [&internet[..], &private, &metadata, &resolver].concat();
    let mut sorted = everything.clone();
    sorted.sort();
    let began = Instant::now();
    while reached("container", &everything) != sorted {
        let waited = began.elapsed();
        assert!(
            waited < Duration::from_secs(20),
            "without rules all is open"
        );
    }
    let firewall = engine().firewall(&[]);
    let firewall = firewall.resolvers(vec![RESOLVER.parse::<IpAddr>().unwrap()]);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let apply = |firewall: &Firewall| runtime.block_on(firewall.apply()).unwrap();
    let merge = |lists: &[&Vec<String>]| {
        let mut all: Vec<_> = lists.iter().copied().flatten().cloned().collect();
        all.sort();
        all
    };

    for (egress, open) in [
        (Egress::Internet, merge(&[&internet, &resolver])),
        (Egress::All, merge(&[&internet, &private, &resolver])),
        (Egress::None, Vec::new()),
    ] {
        // What another one has set, who was killed, is replaced.
        let set = firewall.clone().egress(egress);
        apply(&set);
        let once = rules();
        apply(&set);
        assert_eq!(rules(), once, "{egress}: set twice");
        let jumps = once.iter().filter(|rule| rule.contains("-j ESTRADE"));
        assert_eq!(jumps.count(), 4, "{once:#?}");
        assert_eq!(reached("container", &everything), open, "{egress}");
        // Who visits a container gets its answers.
        let visit = [format!("{CONTAINER}:8080")];
        assert_eq!(reached("world", &visit), visit, "{egress}");
    }
    runtime.block_on(firewall.remove()).unwrap();
    assert_eq!(rules(), Vec::<String>::new());
    assert_eq!(reached("container", &everything), sorted);
}
