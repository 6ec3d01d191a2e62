//! Who reaches whom.

use crate::support::{EngineFixture, now};
use estrade_model::{OwnerId, ReleaseId};
use estrade_runtime::Probe;
use estrade_runtime::Runtime as _;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::net::TcpListener;

const SERVER: &str = "import http.server as h; h.test(h.SimpleHTTPRequestHandler, port=8000)";

/// A program that says whether each of these can be reached.
fn visitor(addresses: &[SocketAddr]) -> String {
    let list: Vec<_> = addresses
        .iter()
        .map(|address| format!("('{}', {})", address.ip(), address.port()))
        .collect();
    format!(
        "import socket
for address in [{}]:
    try: socket.create_connection(address, 3).close(); print('reached')
    except OSError: print('not')",
        list.join(", ")
    )
}

#[tokio::test]
async fn owners_do_not_reach_each_other() {
    let fixture = EngineFixture::new();
    let mine = fixture.run(&fixture.python(SERVER)).await;
    let mut theirs = fixture.python(SERVER);
    theirs.key.owner = OwnerId::generate(now().millis(), 7);
    theirs.key.release = ReleaseId::generate(now().millis(), 7);
    let theirs = fixture.run(&theirs).await;
    for instance in [&mine, &theirs] {
        let ready = fixture
            .engine
            .wait_until_ready(instance, &Probe::Tcp, Duration::from_secs(20));
        ready.await.unwrap();
    }
    assert_ne!(mine.id, theirs.id);
    let firewall = fixture.engine.firewall(&[]);
    firewall.apply().await.unwrap();
    // Also while the engine changes its own rules, again and again.
    let addresses = [&[mine.address.unwrap()], &[theirs.address.unwrap(); 4][..]].concat();
    let program = fixture.python(&visitor(&addresses));
    let others = async {
        for number in 20..28 {
            let network = fixture
                .engine
                .ensure_network(OwnerId::generate(now().millis(), number))
                .await;
            fixture
                .engine
                .remove_network(&network.unwrap())
                .await
                .unwrap();
        }
    };
    let ((_, said), ()) = tokio::join!(fixture.run_to_end(&program), others);
    assert_eq!(said, "reached\nnot\nnot\nnot\nnot");
    firewall.remove().await.unwrap();
    fixture.clean().await;
}

#[tokio::test]
async fn a_listener_of_the_host_sees_where_a_container_comes_from() {
    let fixture = EngineFixture::new();
    let network = fixture.engine.ensure_network(fixture.owner).await.unwrap();
    let listener = TcpListener::bind("0.0.0.0:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    // Through its gateway and through another address of the host.
    let other = fixture
        .engine
        .ensure_network(OwnerId::generate(now().millis(), 8))
        .await
        .unwrap();
    let addresses = [network.gateway, other.gateway].map(|ip| SocketAddr::new(ip, port));
    let accepting = async {
        let mut peers = Vec::new();
        for _ in addresses {
            peers.push(listener.accept().await.unwrap().1.ip());
        }
        peers
    };
    let program = fixture.python(&visitor(&addresses));
    let ((_, said), peers) = tokio::join!(fixture.run_to_end(&program), accepting);
    assert_eq!(said, "reached\nreached");
    for peer in peers {
        assert!(network.subnet.contains(peer), "{peer}");
        assert!(fixture.engine.pool().range().contains(peer), "{peer}");
    }

    // What listens for this machine only is not there for containers.
    let local = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = SocketAddr::new(network.gateway, local.local_addr().unwrap().port());
    let (_, said) = fixture
        .run_to_end(&fixture.python(&visitor(&[address])))
        .await;
    assert_eq!(said, "not");
    fixture.clean().await;
}

#[tokio::test]
async fn of_the_host_only_one_port_is_open() {
    let fixture = EngineFixture::new();
    let network = fixture.engine.ensure_network(fixture.owner).await.unwrap();
    let (ai, other) = (
        TcpListener::bind("0.0.0.0:0").await.unwrap(),
        TcpListener::bind("0.0.0.0:0").await.unwrap(),
    );
    let address = |listener: &TcpListener| {
        SocketAddr::new(network.gateway, listener.local_addr().unwrap().port())
    };
    let firewall = fixture.engine.firewall(&[address(&ai).port()]);
    for _ in 0..2 {
        firewall.apply().await.unwrap();
    }
    let program = fixture.python(&visitor(&[address(&ai), address(&other)]));
    let (_, said) = fixture.run_to_end(&program).await;
    assert_eq!(said, "reached\nnot");

    // The way from the host to an instance is open.
    let mut server = fixture.python(SERVER);
    server.key.number = 2;
    let instance = fixture.run(&server).await;
    let ready = fixture
        .engine
        .wait_until_ready(&instance, &Probe::Tcp, Duration::from_secs(20));
    ready.await.unwrap();

    firewall.remove().await.unwrap();
    let mut again = program.clone();
    again.revision = 1;
    let (_, said) = fixture.run_to_end(&again).await;
    assert_eq!(said, "reached\nreached");
    firewall.remove().await.unwrap();
    fixture.clean().await;
}

#[tokio::test]
async fn there_is_room_for_more_owners_than_the_engine_has_pools() {
    let fixture = EngineFixture::new();
    let owners: Vec<OwnerId> = (0..36)
        .map(|n| OwnerId::generate(now().millis(), 9 + n))
        .collect();
    for owner in &owners {
        fixture.engine.ensure_network(*owner).await.unwrap();
    }
    let networks = fixture.engine.networks().await.unwrap();
    assert_eq!(networks.len(), owners.len());
    for (at, network) in networks.iter().enumerate() {
        assert!(network.subnet.contains(network.gateway));
        let others = networks
            .iter()
            .enumerate()
            .filter(|(other, _)| *other != at);
        assert!(
            others
                .into_iter()
                .all(|(_, other)| !other.subnet.contains(network.gateway))
        );
    }
    fixture.clean().await;
}
