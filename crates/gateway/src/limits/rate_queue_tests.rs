//! In which order buckets are reported, and how often.

use super::cluster_fixture::{Cluster, ROUND_TRIP, auth, request, tokens};
use super::report_queue::{MAX_REPORTS, ReportQueue};
use estrade_model::rate::RateUnit;
use futures_util::FutureExt;
use futures_util::future::join_all;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::time::{Instant, sleep};

#[test]
fn awaited_buckets_come_first_but_do_not_hold_up_the_others_for_ever() {
    let id = |number: u16| {
        let mut id = [0; 12];
        id[..2].copy_from_slice(&number.to_be_bytes());
        (id, RateUnit::Requests)
    };
    let mut queue = ReportQueue::default();
    let places: Vec<_> = (0..100)
        .map(|number| queue.push(id(number), false))
        .collect();
    for number in 1_000..2_000 {
        queue.push(id(number), true);
    }
    let first = queue.pop();
    let awaited: Vec<_> = (1_000..1_192).map(id).collect();
    let others: Vec<_> = (0..64).map(id).collect();
    assert_eq!(first, [awaited, others].concat());
    assert_eq!(first.len(), MAX_REPORTS);
    // One of them that was popped gets no second place.
    assert!(queue.move_ahead(places[0]).is_none());
    assert!(queue.move_ahead(places[99]).is_some());
    let second = queue.pop();
    let left: Vec<_> = (64..99).map(id).collect();
    assert!(second.ends_with(&left), "{second:?}");
    let mut third: Vec<_> = std::iter::from_fn(|| Some(queue.pop()).filter(|ids| !ids.is_empty()))
        .flatten()
        .collect();
    assert_eq!(third.pop(), Some(id(99)), "after those that waited before");
    assert_eq!(third.len(), 1_100 - 256 - 256 - 1);
    assert!(queue.is_empty());
}

#[tokio::test(start_paused = true)]
async fn whoever_waits_is_not_behind_the_buckets_of_others() {
    let cluster = Cluster::new(2);
    let node = &cluster.nodes[0];
    let waits = auth((0, 1_000), (0, 0));
    for _ in 0..20_000 {
        let other = auth((6_000, 0), (0, 0));
        request(node, &other).now_or_never().unwrap().unwrap();
    }
    // It was used before a call waits for it: it has a place behind all the others.
    tokens(node, &waits, 1).now_or_never().unwrap().unwrap();
    sleep(ROUND_TRIP * 3).await;
    let begin = Instant::now();
    tokens(node, &waits, 900).await.unwrap();
    let waited = begin.elapsed();
    assert!(
        waited <= 2 * ROUND_TRIP + Duration::from_millis(2),
        "{waited:?}"
    );
    sleep(Duration::from_secs(2)).await;
    assert!(node.sharing.is_empty());
}

#[tokio::test(start_paused = true)]
async fn there_is_no_pause_while_calls_wait() {
    let cluster = Cluster::new(2);
    let auths: Vec<_> = (0..600).map(|_| auth((5, 0), (0, 0))).collect();
    let begin = Instant::now();
    let requests = auths.iter().map(|auth| request(&cluster.nodes[0], auth));
    let outcomes = join_all(requests).await;
    assert!(outcomes.iter().all(Result::is_ok));
    let waited = begin.elapsed();
    assert!(waited <= 4 * ROUND_TRIP, "{waited:?}");
}

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
