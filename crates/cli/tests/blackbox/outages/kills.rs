//! A node that ends in the middle of its work.

use super::installation::{Durability, Installation};
use super::{RELEASE_LEASE, SLACK};
use crate::support::Postgres;
use std::time::{Duration, Instant};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_killed_node_had_begun_is_finished_by_the_others() {
    let database = Postgres::create().await;
    let mut installation = Installation::start(&database.url, Durability::Strict).await;
    let load = installation.put_under_load().await;
    tokio::time::sleep(Duration::from_secs(1)).await;

    let release = installation
        .stop_within_release(0, &[1, 2], &database)
        .await;
    let nodes = "SELECT id FROM ledger_nodes";
    let leased = database.column(nodes).await;
    installation.nodes[0].kill();
    let killed = Instant::now();
    installation.signal(&[1, 2], "CONT");
    let alone = Instant::now();
    installation.await_ready(1, &release).await;
    eprintln!(
        "what it worked on was ready {:?} after the kill",
        killed.elapsed()
    );
    assert!(
        killed.elapsed() < RELEASE_LEASE + SLACK,
        "{:?}",
        killed.elapsed()
    );
    // On a slow machine the others were stopped for so long that they go on as new ones; then there is nothing to compare.
    if leased.len() == 3 {
        await_settlement(&database, nodes, &leased, killed).await;
    }
    for node in [1, 2] {
        let gap = load.observed.longest_gap(node, alone);
        eprintln!("node {node} answered calls with at most {gap:?} between two");
        assert!(gap < Duration::from_secs(5), "{gap:?}");
        assert_eq!(load.observed.failures(node, alone), [""; 0]);
    }
    let observed = load.stop().await;
    installation.check(&observed, &database).await;

    // It goes on where it was.
    let token = installation.nodes[1].token();
    installation.nodes[0].start(Some(&token));
    installation.await_ready(0, &release).await;
    installation.stop();
    database.drop().await;
}

/// Waits until one of these nodes is gone from the ledger: the others renew what they have.
async fn await_settlement(database: &Postgres, nodes: &str, leased: &[String], killed: Instant) {
    let is_left = |id: &&String| leased.contains(id);
    while database.column(nodes).await.iter().filter(is_left).count() == leased.len() {
        let limit = super::LEDGER_LEASE + SLACK;
        assert!(killed.elapsed() < limit, "it is not settled");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let took = killed.elapsed();
    eprintln!("what it had leased of budgets was back {took:?} after the kill");
}
