//! What changes while nodes share limits: the number of nodes, the limits, and what a charge turns out to be.

use super::bucket::RateLimitStatus;
use super::cluster_fixture::{
    Cluster, ROUND_TRIP, auth, bucket_of, request, tokens, with_key_limits,
};
use super::rate_limiter::RateLimiter;
use super::taking::Taking;
use crate::auth::AuthContext;
use estrade_model::rate::RateUnit;
use futures_util::FutureExt;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// How the limit stands after a request for which nobody has to be asked.
fn status(limiter: &RateLimiter, auth: &AuthContext) -> RateLimitStatus {
    match limiter.take(auth, RateUnit::Requests, 1, Instant::now()) {
        Taking::Done(outcome) => outcome.unwrap().unwrap().1,
        Taking::Waits(_) => panic!("it waits"),
    }
}

#[tokio::test(start_paused = true)]
async fn what_was_taken_alone_is_not_given_back_to_all() {
    let cluster = Cluster::new(3);
    let auth = auth((0, 1_000), (0, 0));
    cluster.shared.nodes.store(1, Ordering::Relaxed);
    let charge = tokens(&cluster.nodes[0], &auth, 900).await.unwrap();
    cluster.shared.nodes.store(3, Ordering::Relaxed);
    tokens(&cluster.nodes[1], &auth, 900).await.unwrap();
    cluster.nodes[0].settle(&charge, 0, Instant::now());
    sleep(Duration::from_millis(50)).await;
    assert!(tokens(&cluster.nodes[2], &auth, 500).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn what_was_taken_of_all_is_given_back_to_all() {
    let cluster = Cluster::new(2);
    let auth = auth((0, 1_000), (0, 0));
    // One waits for the shared bucket, the other one is admitted without.
    for count in [900, 40] {
        let charge = tokens(&cluster.nodes[0], &auth, count).await.unwrap();
        sleep(Duration::from_millis(50)).await;
        cluster.shared.nodes.store(1, Ordering::Relaxed);
        cluster.nodes[0].settle(&charge, 0, Instant::now());
        sleep(Duration::from_millis(50)).await;
        let (used, _) = cluster.shared.row(bucket_of(&auth, RateUnit::Tokens));
        assert_eq!(used, 0, "{count}");
        cluster.shared.nodes.store(2, Ordering::Relaxed);
    }
}

#[tokio::test(start_paused = true)]
async fn a_lowered_limit_holds_at_once_and_is_reported() {
    let cluster = Cluster::new(2);
    let before = auth((600, 0), (0, 0));
    for _ in 0..30 {
        request(&cluster.nodes[0], &before).await.unwrap();
    }
    sleep(Duration::from_millis(50)).await;
    let after = with_key_limits(&before, (10, 0));
    let refused = request(&cluster.nodes[0], &after).now_or_never().unwrap();
    assert_eq!(refused.unwrap_err().status.limit, 10);
    sleep(Duration::from_millis(50)).await;
    let (_, limit) = cluster.shared.row(bucket_of(&before, RateUnit::Requests));
    assert_eq!(limit, 10);
}

#[tokio::test(start_paused = true)]
async fn a_limit_that_is_lowered_during_an_outage_holds_at_once_and_is_reported() {
    let cluster = Cluster::new(2);
    let before = auth((600, 0), (0, 0));
    for _ in 0..30 {
        request(&cluster.nodes[0], &before).await.unwrap();
    }
    sleep(Duration::from_millis(50)).await;
    cluster.shared.is_down.store(true, Ordering::Relaxed);
    // It notices by another bucket: nothing else is to be reported of this one.
    let other = auth((600, 0), (0, 0));
    request(&cluster.nodes[0], &other).await.unwrap();
    sleep(Duration::from_millis(50)).await;
    let after = with_key_limits(&before, (10, 0));
    for _ in 0..3 {
        let refused = request(&cluster.nodes[0], &after).now_or_never().unwrap();
        assert_eq!(refused.unwrap_err().status.limit, 5, "its share");
    }
    // Attempts to report it fail as well.
    sleep(Duration::from_secs(3)).await;
    cluster.shared.is_down.store(false, Ordering::Relaxed);
    sleep(Duration::from_secs(2)).await;
    let (_, limit) = cluster.shared.row(bucket_of(&before, RateUnit::Requests));
    assert_eq!(limit, 10);
}

#[tokio::test(start_paused = true)]
async fn until_a_limit_is_changed_the_limit_before_leaks() {
    let cluster = Cluster::new(2);
    let before = auth((60, 0), (0, 0));
    for _ in 0..60 {
        request(&cluster.nodes[1], &before).await.unwrap();
    }
    // It is admitted a few before it hears of that.
    while request(&cluster.nodes[0], &before).await.is_ok() {}
    let (used, _) = cluster.shared.row(bucket_of(&before, RateUnit::Requests));
    sleep(Duration::from_secs(10)).await;
    let after = with_key_limits(&before, (6_000, 0));
    let status = status(&cluster.nodes[0], &after);
    // Ten are back, and one was taken.
    let due = 6_000 - (u64::try_from(used).unwrap() - 10) - 1;
    assert!(
        (due - 1..=due + 1).contains(&status.remaining),
        "{}",
        status.remaining
    );
}

#[tokio::test(start_paused = true)]
async fn a_refusal_after_a_wait_gives_back_what_has_not_leaked() {
    let cluster = Cluster::new(2);
    let auth = auth((0, 60_000), (0, 1_200));
    let (node, bucket) = (&cluster.nodes[0], bucket_of(&auth, RateUnit::Tokens));
    let without_key = with_key_limits(&auth, (0, 0));
    tokens(&cluster.nodes[1], &without_key, 1_200)
        .await
        .unwrap();
    let mut without_workspace = auth.clone();
    without_workspace.workspace = super::cluster_fixture::auth((0, 0), (0, 0)).workspace;
    cluster.shared.round_trip.store(800, Ordering::Relaxed);
    let refused = tokens(node, &auth, 1_000);
    let meanwhile = async {
        sleep(Duration::from_millis(790)).await;
        let taken = tokens(node, &without_workspace, 500).now_or_never();
        taken.expect("it does not wait").unwrap();
    };
    let (refused, ()) = tokio::join!(refused, meanwhile);
    assert!(refused.unwrap_err().of_workspace);
    // What was refused had leaked down to 210 before: so much is given back, and nothing of what others took.
    let used = node.own_used(bucket, Instant::now());
    assert!((490..=500).contains(&used), "{used}");
    // Without a wait everything is given back.
    sleep(Duration::from_secs(5) + ROUND_TRIP).await;
    assert_eq!(node.own_used(bucket, Instant::now()), 0);
}
