//! Shared buckets that cannot be reached or reply too late: what adds up, and who waits.

use super::cluster_fixture::{Cluster, auth, bucket_of, load, request, tokens};
use super::rate_limiter::RateLimiter;
use super::sharing::Sharing;
use estrade_model::rate::RateUnit;
use futures_util::FutureExt;
use futures_util::future::join_all;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

#[tokio::test(start_paused = true)]
async fn reports_without_a_reply_in_time_do_not_add_up() {
    let cluster = Cluster::new(2);
    let auth = auth((600, 0), (0, 0));
    cluster.shared.is_late.store(true, Ordering::Relaxed);
    load(&cluster, &auth, &[10_000; 2], Duration::from_mins(3)).await;
    let (used, _) = cluster.shared.row(bucket_of(&auth, RateUnit::Requests));
    assert!(used <= 700, "{used}");
}

#[tokio::test(start_paused = true)]
async fn what_has_leaked_during_an_outage_is_not_reported() {
    let cluster = Cluster::new(2);
    let auth = auth((600, 0), (0, 0));
    cluster.shared.is_down.store(true, Ordering::Relaxed);
    load(&cluster, &auth, &[10_000; 2], Duration::from_mins(10)).await;
    cluster.shared.is_down.store(false, Ordering::Relaxed);
    sleep(Duration::from_secs(2)).await;
    let (used, _) = cluster.shared.row(bucket_of(&auth, RateUnit::Requests));
    // Of both nodes, each of which has used its share.
    assert!((500..=610).contains(&used), "{used}");
}

#[tokio::test(start_paused = true)]
async fn a_node_that_has_used_a_limit_gets_its_share_in_an_outage() {
    let cluster = Cluster::new(2);
    let auth = auth((600, 0), (0, 0));
    for _ in 0..600 {
        request(&cluster.nodes[0], &auth).await.unwrap();
    }
    cluster.shared.is_down.store(true, Ordering::Relaxed);
    // Until it has noticed.
    sleep(Duration::from_millis(300)).await;
    let _ = request(&cluster.nodes[0], &auth).await;
    let admitted = load(&cluster, &auth, &[10_000], Duration::from_secs(10)).await;
    assert!((40..=60).contains(&admitted.len()), "{}", admitted.len());
}

/// As many as need several exchanges.
const MANY: usize = 600;

#[tokio::test(start_paused = true)]
async fn all_who_wait_decide_by_themselves_after_one_failed_exchange() {
    let cluster = Cluster::new(2);
    cluster.shared.is_late.store(true, Ordering::Relaxed);
    let auths: Vec<_> = (0..MANY).map(|_| auth((5, 0), (0, 0))).collect();
    let begin = Instant::now();
    let requests = auths.iter().map(|auth| request(&cluster.nodes[0], auth));
    let outcomes = join_all(requests).await;
    assert!(begin.elapsed() < Duration::from_millis(1_100));
    assert!(outcomes.iter().all(Result::is_ok));
}

#[tokio::test(start_paused = true)]
async fn whoever_waits_for_an_exchange_that_is_broken_off_is_released() {
    let cluster = Cluster::new(2);
    let limiter = Arc::new(RateLimiter::new(Sharing::new(Some(
        Arc::clone(&cluster.shared) as _,
    ))));
    let auth = auth((5, 0), (0, 0));
    let mut waiting = Box::pin(request(&limiter, &auth));
    assert!((&mut waiting).now_or_never().is_none());
    let mut sharing = JoinSet::new();
    let node = Arc::clone(&limiter);
    sharing.spawn(async move { node.share().await });
    sleep(Duration::from_micros(100)).await;
    sharing.shutdown().await;
    limiter.stop_sharing().await;
    let outcome = timeout(Duration::from_secs(1), waiting).await;
    assert!(outcome.expect("it is released").is_ok());
}

#[tokio::test(start_paused = true)]
async fn counts_are_bounded_before_they_are_added_up() {
    let cluster = Cluster::new(2);
    let auth = auth((0, 1_000), (0, 0));
    let charge = tokens(&cluster.nodes[0], &auth, u64::MAX).await.unwrap();
    cluster.nodes[0].settle(&charge, u64::MAX, Instant::now());
    sleep(Duration::from_millis(50)).await;
    let (used, _) = cluster.shared.row(bucket_of(&auth, RateUnit::Tokens));
    assert!(used <= u128::from(u32::MAX), "{used}");
    let charge = tokens(&cluster.nodes[0], &auth, 1).await;
    let most = Duration::from_mins(1) * u32::MAX / 1_000;
    assert!(charge.unwrap_err().status.reset <= most);
}
