//! Several limiters on one set of shared buckets, in simulated time.

use super::cluster_fixture::{
    Cluster, ROUND_TRIP, assert_within, auth, load, number, request, tokens,
};
use super::rate_limiter::RateLimiter;
use super::sharing::Sharing;
use futures_util::FutureExt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::time::{Instant, sleep};

#[tokio::test(start_paused = true)]
async fn three_nodes_admit_what_one_would() {
    for (limit, pauses) in [
        (60, [100_000, 90_000, 110_000]),
        (60, [10_000, 500_000, 3_000_000]),
        (6_000, [1_000, 1_300, 1_700]),
        (7, [300_000, 400_000, 500_000]),
    ] {
        let cluster = Cluster::new(3);
        let auth = auth((limit, 0), (0, 0));
        let admitted = load(&cluster, &auth, &pauses, Duration::from_secs(100)).await;
        assert_within(&admitted, limit);
        let due = f64::from(limit) * (1.0 + 100.0 / 60.0);
        let count = number(admitted.len());
        assert!(count >= 0.97 * due - 1.0, "{limit}: {count} of {due}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_limit_of_a_workspace_is_shared_like_that_of_a_key() {
    let cluster = Cluster::new(3);
    let auth = auth((600, 0), (60, 0));
    let admitted = load(&cluster, &auth, &[20_000; 3], Duration::from_mins(1)).await;
    assert_within(&admitted, 60);
    assert!(admitted.len() >= 116, "{}", admitted.len());
}

#[tokio::test(start_paused = true)]
async fn calls_below_the_limit_never_wait() {
    let cluster = Cluster::new(3);
    let auth = auth((6_000, 0), (0, 0));
    for _ in 0..500 {
        for node in &cluster.nodes {
            assert!(request(node, &auth).now_or_never().unwrap().is_ok());
        }
        sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_that_is_refused_asks_a_few_times_a_second() {
    let cluster = Cluster::new(2);
    let auth = auth((60, 0), (0, 0));
    load(&cluster, &auth, &[1_000, 1_000], Duration::from_secs(1)).await;
    let before = cluster.shared.exchanges.load(Ordering::Relaxed);
    load(&cluster, &auth, &[200, 200], Duration::from_secs(10)).await;
    let exchanges = cluster.shared.exchanges.load(Ordering::Relaxed) - before;
    assert!(exchanges < 2 * 10 * (4 + 2) * 2, "{exchanges}");
}

#[tokio::test(start_paused = true)]
async fn what_tokens_turn_out_to_be_counts_on_every_node() {
    let cluster = Cluster::new(2);
    let auth = auth((0, 1_000), (0, 0));
    let [one, other] = &cluster.nodes[..] else {
        panic!()
    };
    let charge = tokens(one, &auth, 900).await.unwrap();
    assert!(tokens(other, &auth, 200).await.is_err());
    one.settle(&charge, 100, Instant::now());
    sleep(Duration::from_millis(300)).await;
    let charge = tokens(other, &auth, 800).await.unwrap();
    // It was longer than estimated: that is owed, on both nodes.
    other.settle(&charge, 1_800, Instant::now());
    sleep(Duration::from_millis(300)).await;
    for node in [one, other] {
        // More than a node may use before it has heard of what others did.
        let refused = tokens(node, &auth, 100).await.unwrap_err();
        assert!(refused.retry > Duration::from_secs(50), "{refused:?}");
    }
    // More than the whole bucket is given when it is empty.
    sleep(Duration::from_mins(3)).await;
    assert!(tokens(one, &auth, 5_000).await.is_ok());
    assert!(tokens(other, &auth, 100).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn callers_who_leave_take_nothing_with_them() {
    let cluster = Cluster::new(3);
    let auth = auth((0, 1_000), (0, 0));
    for moment in 0..6 {
        let mut leaving = Box::pin(tokens(&cluster.nodes[0], &auth, 900));
        assert!((&mut leaving).now_or_never().is_none(), "it has to wait");
        // Before the report, on its way, and when the reply is there.
        sleep(ROUND_TRIP * moment / 4).await;
        drop(leaving);
        sleep(Duration::from_millis(300)).await;
        let charge = tokens(&cluster.nodes[1], &auth, 900).await;
        let charge = charge.unwrap_or_else(|refused| panic!("{moment}: {refused:?}"));
        cluster.nodes[1].settle(&charge, 0, Instant::now());
        sleep(Duration::from_millis(300)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn while_the_shared_buckets_are_away_each_node_admits_its_share() {
    let cluster = Cluster::new(3);
    let auth = auth((600, 0), (0, 0));
    cluster.shared.is_down.store(true, Ordering::Relaxed);
    // The first call that has to wait finds out.
    let admitted = load(&cluster, &auth, &[10_000; 3], Duration::from_mins(1)).await;
    assert!(
        (1_100..=1_260).contains(&admitted.len()),
        "{}",
        admitted.len()
    );
    // What was used meanwhile is known to all afterwards.
    cluster.shared.is_down.store(false, Ordering::Relaxed);
    sleep(Duration::from_secs(2)).await;
    let after = load(&cluster, &auth, &[10_000; 3], Duration::from_secs(6)).await;
    assert!(after.len() <= 100, "{}", after.len());
}

#[tokio::test(start_paused = true)]
async fn a_node_that_was_alone_has_used_what_it_has_used() {
    let cluster = Cluster::new(2);
    let auth = auth((60, 0), (0, 0));
    cluster.shared.nodes.store(1, Ordering::Relaxed);
    for _ in 0..60 {
        assert!(
            request(&cluster.nodes[0], &auth)
                .now_or_never()
                .unwrap()
                .is_ok()
        );
    }
    assert!(
        request(&cluster.nodes[0], &auth)
            .now_or_never()
            .unwrap()
            .is_err()
    );
    cluster.shared.nodes.store(2, Ordering::Relaxed);
    assert!(request(&cluster.nodes[0], &auth).await.is_err());
    sleep(Duration::from_millis(50)).await;
    let admitted = load(&cluster, &auth, &[1_000, 1_000], Duration::from_secs(1)).await;
    assert!(admitted.len() <= 60 / 20 + 2, "{}", admitted.len());
}

#[tokio::test(start_paused = true)]
async fn nobody_waits_for_ever_when_sharing_ends() {
    let cluster = Cluster::new(2);
    let auth = auth((5, 0), (0, 0));
    let limiter = RateLimiter::new(Sharing::new(Some(Arc::clone(&cluster.shared) as _)));
    let waiting = request(&limiter, &auth);
    let (admitted, ()) = tokio::join!(waiting, limiter.stop_sharing());
    assert!(admitted.is_ok());
    assert!(request(&limiter, &auth).now_or_never().is_some());
}
