//! How often buckets are reported.

use super::cluster_fixture::{Cluster, auth, request};
use futures_util::FutureExt;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::time::{Instant, sleep};

#[tokio::test(start_paused = true)]
async fn there_is_a_pause_between_exchanges_under_load() {
    let cluster = Cluster::new(2);
    let auths: Vec<_> = (0..10).map(|_| auth((600_000, 0), (0, 0))).collect();
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_secs(1) {
        for auth in &auths {
            let taken = request(&cluster.nodes[0], auth).now_or_never();
            taken.expect("no call waits").unwrap();
        }
        sleep(Duration::from_millis(1)).await;
    }
    let exchanges = cluster.shared.exchanges.load(Ordering::Relaxed);
    // An exchange and a pause take 12 ms.
    assert!((60..=90).contains(&exchanges), "{exchanges}");
}
