//! Idempotency keys: carried out once, answered as often as asked.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a failed step is a failed test"
)]

#[path = "accounts_support/mod.rs"]
mod support;

use estrade_service::ai::key_check::KeyCheck;
use estrade_service::idempotency::{
    Idempotency, IdempotencyGuard, IdempotencyKey, KeyedRequest, RequestStart, StoredResponse,
};
use estrade_service::identity::credentials::AccountTokens;
use estrade_service::{Error, Settings, gc::rows};
use std::sync::Arc;
use std::time::Duration;
use support::{Installation, on_both_backends};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

on_both_backends! {
    the_same_request_gets_the_stored_response
    a_different_request_is_refused
    what_is_in_flight_is_not_repeated
    fifty_at_once_run_once
    only_final_responses_are_kept
    a_response_is_kept_for_a_day
    a_dropped_ticket_lets_the_repeat_run
    a_dead_process_blocks_until_its_lease_is_out
    a_long_request_keeps_its_lease
    who_lost_the_lease_does_not_overwrite_the_response
    a_large_response_is_not_kept
    chores_release_dropped_tickets_and_end_when_told
}

const REQUEST: KeyedRequest<'static> = KeyedRequest {
    credential: b"token of ada",
    method: "POST",
    path: "/v1/projects",
    query: "",
    team: "",
    body_hash: [7; 32],
};

fn key(request: KeyedRequest<'_>) -> IdempotencyKey {
    IdempotencyKey::new("order-1", &request).unwrap()
}

fn response(status: u16) -> StoredResponse {
    StoredResponse {
        status,
        headers: vec![("content-type".into(), "application/json".into())],
        body: b"{\"projectID\":\"1\"}".to_vec(),
    }
}

async fn fresh(requests: &Idempotency) -> IdempotencyGuard {
    match requests.begin(key(REQUEST)).await {
        Ok(RequestStart::New(guard)) => guard,
        Ok(RequestStart::Replay(response)) => panic!("{response:?}"),
        Err(error) => panic!("{error:?}"),
    }
}

/// The outcome of a request, in one word.
async fn outcome(requests: &Idempotency, request: KeyedRequest<'_>) -> String {
    match requests.begin(key(request)).await {
        Ok(RequestStart::New(_)) => "fresh".into(),
        Ok(RequestStart::Replay(response)) => response.status.to_string(),
        Err(error) => error.code().into(),
    }
}

async fn the_same_request_gets_the_stored_response(at: &Installation) {
    fresh(&at.services.idempotency)
        .await
        .finish(response(201))
        .await
        .unwrap();
    for _ in 0..2 {
        match at.services.idempotency.begin(key(REQUEST)).await {
            Ok(RequestStart::Replay(replayed)) => assert_eq!(replayed, response(201)),
            _ => panic!("not replayed"),
        }
    }
    // Also on another node.
    let other = Idempotency::new(&at.another_core(Settings::default()).await);
    assert_eq!(outcome(&other, REQUEST).await, "201");
}

async fn a_different_request_is_refused(at: &Installation) {
    let guard = fresh(&at.services.idempotency).await;
    let others = [
        KeyedRequest {
            query: "a=b",
            ..REQUEST
        },
        KeyedRequest {
            team: "0123456789abcdef01234567",
            ..REQUEST
        },
        KeyedRequest {
            body_hash: [8; 32],
            ..REQUEST
        },
    ];
    for other in others {
        assert_eq!(
            outcome(&at.services.idempotency, other).await,
            "idempotency_mismatch"
        );
    }
    guard.finish(response(200)).await.unwrap();
    for other in others {
        assert_eq!(
            outcome(&at.services.idempotency, other).await,
            "idempotency_mismatch"
        );
    }
    // The key of another credential, method or path is another key.
    for other in [
        KeyedRequest {
            credential: b"token of bob",
            ..REQUEST
        },
        KeyedRequest {
            method: "GET",
            ..REQUEST
        },
        KeyedRequest {
            path: "/v1/networks",
            ..REQUEST
        },
    ] {
        assert_eq!(outcome(&at.services.idempotency, other).await, "fresh");
    }
}

async fn what_is_in_flight_is_not_repeated(at: &Installation) {
    let guard = fresh(&at.services.idempotency).await;
    let other = Idempotency::new(&at.another_core(Settings::default()).await);
    for node in [&*at.services.idempotency, &other] {
        assert_eq!(outcome(node, REQUEST).await, "idempotency_in_progress");
    }
    guard.finish(response(409)).await.unwrap();
    for node in [&*at.services.idempotency, &other] {
        assert_eq!(outcome(node, REQUEST).await, "409");
    }
}

async fn fifty_at_once_run_once(at: &Installation) {
    let mut requests = JoinSet::new();
    for _ in 0..50 {
        let node = Arc::clone(&at.services.idempotency);
        requests.spawn(async move {
            match node.begin(key(REQUEST)).await {
                Ok(RequestStart::New(guard)) => {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                    guard.finish(response(201)).await.unwrap();
                    "ran"
                }
                Ok(RequestStart::Replay(replayed)) => {
                    assert_eq!(replayed, response(201));
                    "replayed"
                }
                Err(Error::IdempotencyInProgress) => "in progress",
                Err(error) => panic!("{error:?}"),
            }
        });
    }
    let done = requests.join_all().await;
    assert_eq!(
        done.iter().filter(|what| **what == "ran").count(),
        1,
        "{done:?}"
    );
    assert_eq!(outcome(&at.services.idempotency, REQUEST).await, "201");
}

async fn only_final_responses_are_kept(at: &Installation) {
    for status in [400, 401, 403, 404, 412, 422, 429, 500, 503, 304] {
        fresh(&at.services.idempotency)
            .await
            .finish(response(status))
            .await
            .unwrap();
    }
    fresh(&at.services.idempotency)
        .await
        .finish(response(204))
        .await
        .unwrap();
    assert_eq!(outcome(&at.services.idempotency, REQUEST).await, "204");
}

async fn a_response_is_kept_for_a_day(at: &Installation) {
    fresh(&at.services.idempotency)
        .await
        .finish(response(200))
        .await
        .unwrap();
    at.core.clock.advance(Duration::from_mins(23 * 60 + 59));
    rows::sweep(&at.core, &CancellationToken::new()).await;
    assert_eq!(outcome(&at.services.idempotency, REQUEST).await, "200");
    at.core.clock.advance(Duration::from_mins(1));
    // Also when it was not removed yet, and for a different request.
    let other = KeyedRequest {
        query: "a=b",
        ..REQUEST
    };
    assert_eq!(outcome(&at.services.idempotency, other).await, "fresh");
}

async fn a_dropped_ticket_lets_the_repeat_run(at: &Installation) {
    drop(fresh(&at.services.idempotency).await);
    at.services.idempotency.release_dropped().await.unwrap();
    fresh(&at.services.idempotency)
        .await
        .finish(response(200))
        .await
        .unwrap();
    at.services.idempotency.release_dropped().await.unwrap();
    assert_eq!(outcome(&at.services.idempotency, REQUEST).await, "200");
}

async fn a_dead_process_blocks_until_its_lease_is_out(at: &Installation) {
    let dead = Idempotency::new(&at.another_core(Settings::default()).await);
    std::mem::forget(fresh(&dead).await);
    assert_eq!(
        outcome(&at.services.idempotency, REQUEST).await,
        "idempotency_in_progress"
    );
    // The clock also runs by itself: this must not be close.
    at.core.clock.advance(Duration::from_secs(30));
    assert_eq!(
        outcome(&at.services.idempotency, REQUEST).await,
        "idempotency_in_progress"
    );
    at.core.clock.advance(Duration::from_secs(30));
    fresh(&at.services.idempotency)
        .await
        .finish(response(200))
        .await
        .unwrap();
    assert_eq!(outcome(&at.services.idempotency, REQUEST).await, "200");
}

async fn a_long_request_keeps_its_lease(at: &Installation) {
    let guard = fresh(&at.services.idempotency).await;
    for _ in 0..10 {
        at.core.clock.advance(Duration::from_secs(50));
        at.services.idempotency.renew_leases().await.unwrap();
        rows::sweep(&at.core, &CancellationToken::new()).await;
    }
    assert_eq!(
        outcome(&at.services.idempotency, REQUEST).await,
        "idempotency_in_progress"
    );
    guard.finish(response(200)).await.unwrap();
    at.services.idempotency.renew_leases().await.unwrap();
    assert_eq!(outcome(&at.services.idempotency, REQUEST).await, "200");
}

async fn who_lost_the_lease_does_not_overwrite_the_response(at: &Installation) {
    let slow = fresh(&at.services.idempotency).await;
    at.core.clock.advance(Duration::from_mins(1));
    let quick = fresh(&at.services.idempotency).await;
    slow.finish(response(201)).await.unwrap();
    assert_eq!(
        outcome(&at.services.idempotency, REQUEST).await,
        "idempotency_in_progress"
    );
    quick.finish(response(200)).await.unwrap();
    assert_eq!(outcome(&at.services.idempotency, REQUEST).await, "200");
}

async fn a_large_response_is_not_kept(at: &Installation) {
    let large = |length| StoredResponse {
        body: vec![b'x'; length],
        ..response(200)
    };
    fresh(&at.services.idempotency)
        .await
        .finish(large((1 << 20) + 1))
        .await
        .unwrap();
    fresh(&at.services.idempotency)
        .await
        .finish(large(1 << 20))
        .await
        .unwrap();
    assert_eq!(outcome(&at.services.idempotency, REQUEST).await, "200");
}

async fn chores_release_dropped_tickets_and_end_when_told(at: &Installation) {
    let stop = CancellationToken::new();
    let tokens = Arc::new(AccountTokens::new(&at.core));
    let keys = Arc::new(KeyCheck::new(&at.core));
    let mut chores = JoinSet::new();
    let requests = Arc::clone(&at.services.idempotency);
    let core = Arc::clone(&at.core);
    let logins = Arc::clone(&at.services.logins);
    chores.spawn(rows::run(
        core,
        tokens,
        Arc::clone(&at.services.sessions),
        keys,
        logins,
        requests,
        stop.clone(),
    ));
    drop(fresh(&at.services.idempotency).await);
    let released = async {
        while outcome(&at.services.idempotency, REQUEST).await != "fresh" {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let within = Duration::from_secs(5);
    tokio::time::timeout(within, released).await.unwrap();
    stop.cancel();
    tokio::time::timeout(within, chores.join_all())
        .await
        .unwrap();
}

#[test]
fn keys_are_visible_ascii() {
    for good in ["a", "order-1", "!~", &"x".repeat(255)] {
        assert!(IdempotencyKey::new(good, &REQUEST).is_ok(), "{good:?}");
    }
    for bad in ["", "a b", "a\n", "é", "\u{7f}", &"x".repeat(256)] {
        assert!(IdempotencyKey::new(bad, &REQUEST).is_err(), "{bad:?}");
    }
}

#[test]
fn parts_of_a_request_do_not_run_into_each_other() {
    let one = KeyedRequest {
        method: "POST",
        path: "/a",
        ..REQUEST
    };
    let two = KeyedRequest {
        method: "POST/",
        path: "a",
        ..REQUEST
    };
    assert_ne!(key(one), key(two));
}
