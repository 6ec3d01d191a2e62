//! A node that stands still and goes on, as a virtual machine that is paused: the others took it for dead meanwhile.

use super::installation::{Durability, Installation};
use super::{LEDGER_LEASE, RELEASE_LEASE, SLACK, duration};
use crate::support::Postgres;
use std::time::{Duration, Instant};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_stood_still_undoes_nothing_that_others_did_meanwhile() {
    let database = Postgres::create().await;
    let installation = Installation::start(&database.url, Durability::Strict).await;
    let load = installation.put_under_load().await;
    tokio::time::sleep(Duration::from_secs(1)).await;

    let release = installation
        .stop_within_release(0, &[1, 2], &database)
        .await;
    let stopped = Instant::now();
    installation.signal(&[1, 2], "CONT");
    let alone = Instant::now();
    installation.await_ready(1, &release).await;
    let took = stopped.elapsed();
    eprintln!("what it worked on was ready {took:?} after it had stopped");
    assert!(took < RELEASE_LEASE + SLACK, "{took:?}");
    let until = duration(LEDGER_LEASE.as_secs() + 4, 30);
    tokio::time::sleep(until.saturating_sub(stopped.elapsed())).await;
    for node in [1, 2] {
        let gap = load.observed.longest_gap(node, alone);
        eprintln!("node {node} answered calls with at most {gap:?} between two");
        assert!(gap < Duration::from_secs(5), "{gap:?}");
        assert_eq!(load.observed.failures(node, alone), [""; 0]);
    }

    let row = format!(
        "SELECT state || ' ' || version || ' ' || finished_at || ' ' || COALESCE(lease_owner, '-')
         FROM releases WHERE id = '{release}'"
    );
    let before = database.column(&row).await;
    installation.signal(&[0], "CONT");
    let took = load.await_successes(&[0]).await;
    eprintln!("it took deploys and calls again {took:?} after it went on");
    assert!(took < SLACK, "{took:?}");
    // Its worker finds out at its next renewal.
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(database.column(&row).await, before);
    let observed = load.stop().await;
    installation.check(&observed, &database).await;
    installation.stop();
    database.drop().await;
}
