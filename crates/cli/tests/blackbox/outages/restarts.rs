//! PostgreSQL that ends and comes back, in place or as another server that followed it.

use super::SLACK;
use super::database::{Server, Shutdown};
use super::installation::{Durability, Installation};
use super::load::Load;
use std::time::{Duration, Instant};

/// How long PostgreSQL is away at least.
const AWAY: Duration = Duration::from_secs(2);
/// Calls with a key that a node knows need no database.
const MAX_GAP: Duration = Duration::from_secs(5);

fn check_known_keys(load: &Load, since: Instant) {
    for node in 0..3 {
        let gap = load.observed.longest_gap(node, since);
        eprintln!("node {node} answered calls with at most {gap:?} between two");
        assert!(gap < MAX_GAP, "node {node}: {gap:?}");
        let failures = load.observed.failures(node, since);
        let free = failures
            .iter()
            .filter(|what| what.starts_with("estrade/echo"));
        assert_eq!(free.collect::<Vec<_>>(), [""; 0]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_survive_a_database_that_is_restarted() {
    let mut database = Server::create();
    let installation = Installation::start(&database.url(), Durability::Relaxed).await;
    let load = installation.put_under_load().await;
    for how in [Shutdown::Fast, Shutdown::Immediate] {
        let stopped = Instant::now();
        database.stop(how);
        tokio::time::sleep(AWAY).await;
        database.start();
        let away = stopped.elapsed();
        let took = load.await_successes(&[0, 1, 2]).await;
        eprintln!(
            "{how:?}: away for {away:?}; all nodes took deploys and calls again {took:?} after it was back"
        );
        assert!(took < SLACK, "{took:?}");
        check_known_keys(&load, stopped);
    }
    let observed = load.stop().await;
    installation.check(&observed, &database).await;
    installation.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_find_the_server_that_takes_over() {
    let mut primary = Server::create();
    let standby = Server::create_standby(&primary).await;
    // The standby first: it must not be taken while it follows.
    let url = format!(
        "postgres://postgres@127.0.0.1:{},127.0.0.1:{}/postgres?target_session_attrs=read-write",
        standby.port, primary.port
    );
    let installation = Installation::start(&url, Durability::Relaxed).await;
    let load = installation.put_under_load().await;
    tokio::time::sleep(Duration::from_secs(1)).await;

    let lost = Instant::now();
    primary.stop(Shutdown::Immediate);
    tokio::time::sleep(AWAY).await;
    standby.promote().await;
    let away = lost.elapsed();
    let took = load.await_successes(&[0, 1, 2]).await;
    eprintln!("promoted after {away:?}; all nodes took deploys and calls again {took:?} later");
    assert!(took < SLACK, "{took:?}");
    check_known_keys(&load, lost);
    let observed = load.stop().await;
    installation.check(&observed, &standby).await;
    installation.stop();
}
