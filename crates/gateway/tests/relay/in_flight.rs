//! Calls that are on record nowhere while they go on: what they took so far can be asked for.

use crate::support::{TestGateway, chat, provider_at, until};
use estrade_mock_upstream::{Action, MockUpstream, done, event, json, stream_head};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::sync::Notify;

const STREAM: &str = r#","stream":true"#;

#[tokio::test]
async fn a_call_that_goes_out_again_is_in_flight_again() {
    let (busy, go) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (wait, more) = (Arc::clone(&busy), Arc::clone(&go));
    let provider = MockUpstream::new(move |number| {
        if number == 0 {
            let mut acts = vec![Action::Wait(Arc::clone(&wait))];
            acts.extend(json(503, "{}"));
            return acts;
        }
        let pause = Action::Wait(Arc::clone(&more));
        vec![stream_head(), event("12345678"), pause, done()]
    })
    .await;
    let gateway = TestGateway::new(&[provider_at("acme", provider.address)]).await;
    gateway.ledger.relaxed.store(true, Ordering::Relaxed);
    let in_flight = || gateway.gateway.in_flight().0;
    let (caller, body) = (gateway.caller(), chat(STREAM));
    let (mut coming, ()) = tokio::join!(caller.stream(&body), async {
        until("it is asked", || provider.count() == 1).await;
        until("it is not young any more", || !in_flight().is_empty()).await;
        // It may have been read by now: the prompt is owed.
        let seen = in_flight().remove(0);
        assert_eq!((seen.tokens.completion, seen.attempts), (0, 1));
        assert!(seen.tokens.prompt > 0 && seen.cost.nanos() > 0);
        assert_eq!(gateway.ledger.gone_out.load(Ordering::Relaxed), 1);
        busy.notify_one();
    });
    coming.next().await.unwrap().unwrap();
    let seen = in_flight().remove(0);
    assert_eq!((seen.tokens.completion, seen.attempts), (2, 2));
    assert_eq!(
        (seen.partial, seen.estimated, &*seen.provider),
        (true, true, "acme")
    );
    assert!(seen.ttfb_us > 0 && seen.latency_us >= seen.ttfb_us);
    // The journal writer, which sleeps while nothing is in flight, was woken again.
    assert_eq!(gateway.ledger.gone_out.load(Ordering::Relaxed), 2);
    go.notify_one();
    coming.rest().await;
    let call = gateway.ledger.only().await;
    assert!(!call.partial && in_flight().is_empty());
}

#[tokio::test]
async fn a_call_is_in_flight_no_longer_when_its_caller_has_left() {
    let provider = MockUpstream::new(|number| match number {
        0 => vec![Action::AwaitClose],
        _ => vec![stream_head(), event("a"), Action::AwaitClose],
    })
    .await;
    let gateway = TestGateway::with(&[provider_at("acme", provider.address)], |options| {
        options.detached_timeout = Duration::from_millis(100);
    })
    .await;
    gateway.ledger.relaxed.store(true, Ordering::Relaxed);
    let caller = gateway.caller();
    let stream = caller.raw(&caller.raw_chat(&chat(""))).await;
    until("it is under way", || {
        gateway.gateway.in_flight().0.len() == 1
    })
    .await;
    drop(stream);
    let mut coming = caller.stream(&chat(STREAM)).await;
    coming.next().await.unwrap().unwrap();
    drop(coming);
    let rows = gateway.ledger.wait(2).await;
    assert!(rows.iter().all(|(_, call)| call.partial));
    until("nothing is", || gateway.gateway.in_flight().0.is_empty()).await;
}

#[tokio::test]
async fn what_is_on_record_is_not_asked_for() {
    let provider = MockUpstream::new(|_| vec![stream_head(), event("a"), Action::AwaitClose]).await;
    let gateway = TestGateway::new(&[provider_at("acme", provider.address)]).await;
    let mut coming = gateway.caller().stream(&chat(STREAM)).await;
    coming.next().await.unwrap().unwrap();
    assert!(gateway.gateway.in_flight().0.is_empty());
    assert_eq!(gateway.ledger.gone_out.load(Ordering::Relaxed), 0);
}
