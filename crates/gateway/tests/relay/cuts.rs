//! Callers that leave and providers that die: everything is closed, and accounted for once.

use crate::support::{
    SECRET, TIMEOUT, TestGateway, chat, chat_response, provider_at, until, with_short_timeouts,
};
use estrade_mock_upstream::{
    Action, MockUpstream, chunk, done, event, event_text, send, stream_head,
};
use estrade_model::call::Price;
use estrade_model::provider::Provider;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::AsyncReadExt;
use tokio::sync::Notify;

const STREAM: &str = r#","stream":true"#;

/// A provider of which nothing has to be known when a client has left.
fn free_at(name: &str, address: SocketAddr) -> Provider {
    let mut provider = provider_at(name, address);
    provider.models[0].price = Price::FREE;
    provider
}

#[tokio::test]
async fn a_caller_that_leaves_closes_a_free_provider_at_once() {
    let provider =
        MockUpstream::new(|_| vec![stream_head(), event("12345678"), Action::AwaitClose]).await;
    let gateway = TestGateway::new(&[free_at("acme", provider.address)]).await;
    let mut took = Vec::new();
    // The machine may stand still meanwhile: it does not do so every time.
    while took
        .last()
        .is_none_or(|took| *took > Duration::from_millis(50))
    {
        let mut coming = gateway.caller().stream(&chat(STREAM)).await;
        coming.next().await.unwrap().unwrap();
        let left = Instant::now();
        drop(coming);
        assert!(provider.wait_for_open(0).await);
        took.push(left.elapsed());
        assert!(took.len() < 20, "{took:?}");
    }
    let call = gateway.ledger.wait(took.len()).await.remove(0).1;
    assert_eq!(
        (call.status, call.partial, call.estimated),
        (200, true, true)
    );
    assert_eq!(call.tokens.completion, 2);
    assert_eq!(call.tokens.prompt, (chat(STREAM).len() as u64).div_ceil(4));
}

#[tokio::test]
async fn a_caller_that_leaves_before_the_first_byte_is_noted_as_such() {
    let provider = MockUpstream::new(|_| vec![Action::AwaitClose]).await;
    let gateway = TestGateway::new(&[free_at("acme", provider.address)]).await;
    let caller = gateway.caller();
    let stream = caller.raw(&caller.raw_chat(&chat(""))).await;
    until("it is asked", || !provider.requests().is_empty()).await;
    drop(stream);
    assert!(provider.wait_for_open(0).await);
    let call = gateway.ledger.only().await;
    assert_eq!((call.status, call.partial, call.attempts), (499, true, 1));
    assert_eq!(call.tokens.completion, 0);
    assert!(call.tokens.prompt > 0, "it was sent");
}

#[tokio::test]
async fn who_does_not_wait_for_the_reasons_of_a_refusal_pays_nothing() {
    let provider = MockUpstream::new(|_| {
        let head = "HTTP/1.1 400 Bad Request\r\ncontent-length: 10\r\n\r\n";
        vec![send(head), Action::AwaitClose]
    })
    .await;
    let gateway = TestGateway::new(&[provider_at("acme", provider.address)]).await;
    let caller = gateway.caller();
    let stream = caller.raw(&caller.raw_chat(&chat(""))).await;
    // What is owed nothing for is not under way any more.
    until("it is asked", || !provider.requests().is_empty()).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    drop(stream);
    assert!(provider.wait_for_open(0).await);
    let call = gateway.ledger.only().await;
    assert_eq!((call.status, call.attempts), (499, 1));
    assert_eq!((call.tokens.prompt, call.cost.nanos()), (0, 0));
}

#[tokio::test]
async fn who_hangs_up_after_the_end_was_announced_has_seen_all() {
    let provider = MockUpstream::new(|_| {
        vec![
            stream_head(),
            event("a"),
            send("e\r\ndata: [DONE]\n\n\r\n"),
            Action::AwaitClose,
        ]
    })
    .await;
    let gateway = TestGateway::new(&[provider_at("acme", provider.address)]).await;
    let mut coming = gateway.caller().stream(&chat(STREAM)).await;
    let mut text = String::new();
    while !text.ends_with("data: [DONE]\n\n") {
        text.push_str(&coming.next().await.unwrap().unwrap());
    }
    drop(coming);
    assert!(provider.wait_for_open(0).await);
    assert!(!gateway.ledger.only().await.partial);
}

#[tokio::test]
async fn a_provider_that_dies_in_a_stream_leaves_a_last_event() {
    for (end, code) in [
        (vec![Action::Close], "upstream_error"),
        (
            vec![send("40\r\ndata: {\"half"), Action::Close],
            "upstream_error",
        ),
        (vec![send("zz\r\n")], "upstream_error"),
        (vec![Action::AwaitClose], "upstream_timeout"),
    ] {
        let script = end.clone();
        let provider = MockUpstream::new(move |_| {
            let mut acts = vec![
                stream_head(),
                event("12345678"),
                Action::Sleep(Duration::from_millis(5)),
            ];
            acts.extend(script.clone());
            acts
        })
        .await;
        let mut acme = provider_at("acme", provider.address);
        if code == "upstream_timeout" {
            acme = with_short_timeouts(acme);
        }
        let gateway = TestGateway::new(&[acme]).await;
        let (text, whole) = gateway.caller().stream(&chat(STREAM)).await.rest().await;
        let last = text.strip_prefix(&event_text("12345678")).unwrap();
        let last = last
            .strip_prefix("data: ")
            .unwrap()
            .strip_suffix("\n\n")
            .unwrap();
        let last: serde_json::Value = serde_json::from_str(last).unwrap();
        assert_eq!(
            (last["error"]["code"].as_str(), whole),
            (Some(code), true),
            "{end:?}"
        );
        let call = gateway.ledger.only().await;
        assert_eq!(
            (call.status, call.partial, call.tokens.completion),
            (200, true, 2),
            "{end:?}"
        );
        assert!(provider.wait_for_open(0).await);
    }
}

#[tokio::test]
async fn a_provider_that_always_breaks_off_is_left_alone() {
    let bad = MockUpstream::new(|_| vec![stream_head(), event("a"), Action::Close]).await;
    let good = MockUpstream::new(|_| vec![stream_head(), event("a"), done()]).await;
    let providers = [
        provider_at("bad", bad.address),
        provider_at("good", good.address),
    ];
    let gateway = TestGateway::new(&providers).await;
    for round in 0..7 {
        let mut coming = gateway.caller().stream(&chat(STREAM)).await;
        let by = if round < 5 { "bad" } else { "good" };
        assert_eq!(
            coming.response.headers()["x-estrade-provider"],
            by,
            "{round}"
        );
        coming.rest().await;
    }
}

#[tokio::test]
async fn where_only_the_connection_tells_the_end_it_has_to_be_announced() {
    let provider = MockUpstream::new(|number| {
        let head = send("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n");
        let end = if number == 0 { "" } else { "data: [DONE]\n\n" };
        vec![head, send(event_text("a")), send(end), Action::Close]
    })
    .await;
    let gateway = TestGateway::new(&[provider_at("acme", provider.address)]).await;
    let (text, _) = gateway.caller().stream(&chat(STREAM)).await.rest().await;
    assert!(text.contains("upstream_error"), "{text}");
    let (text, _) = gateway.caller().stream(&chat(STREAM)).await.rest().await;
    assert!(text.ends_with("data: [DONE]\n\n"), "{text}");
    let partial: Vec<_> = gateway
        .ledger
        .wait(2)
        .await
        .iter()
        .map(|(_, call)| call.partial)
        .collect();
    assert_eq!(partial, [true, false]);
}

#[tokio::test]
async fn a_provider_that_dies_in_a_json_response_cuts_the_connection() {
    let provider = MockUpstream::new(|_| {
        let body = chat_response(1, 1);
        let half = &body[..50];
        vec![
            send(format!(
                "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{half}",
                body.len()
            )),
            Action::Close,
        ]
    })
    .await;
    let gateway = TestGateway::new(&[provider_at("acme", provider.address)]).await;
    let text = until_closed(&gateway, &chat("")).await;
    assert!(!text.contains("usage"), "{text}");
    let call = gateway.ledger.only().await;
    assert!(call.partial && call.estimated);
}

#[tokio::test]
async fn half_a_response_that_ends_with_its_connection_is_not_a_whole_one() {
    let provider = MockUpstream::new(|number| {
        let (body, head) = (chat_response(1, 1), "HTTP/1.0 200 OK\r\n\r\n");
        let sent = if number == 0 { &body[..50] } else { &*body };
        vec![send(format!("{head}{sent}")), Action::Close]
    })
    .await;
    let gateway = TestGateway::new(&[provider_at("acme", provider.address)]).await;
    gateway.add_key("good", |key, _| key.cache = true);
    let cold = chat(r#","temperature":0"#);
    let text = until_closed(&gateway, &cold).await;
    assert!(!text.ends_with("0\r\n\r\n"), "{text}");
    for round in 0..2 {
        let response = gateway.caller().chat(&cold).await;
        assert_eq!(response.header("x-estrade-cache"), "miss", "{round}");
        assert_eq!(response.text(), chat_response(1, 1));
    }
    let partial: Vec<_> = gateway
        .ledger
        .wait(3)
        .await
        .iter()
        .map(|(_, call)| call.partial)
        .collect();
    assert_eq!(partial, [true, false, false]);
}

#[tokio::test]
async fn a_key_that_comes_in_pieces_is_not_repeated() {
    let provider = MockUpstream::new(|number| {
        let (one, two) = SECRET.split_at(9);
        let pause = Action::Sleep(Duration::from_millis(20));
        if number == 0 {
            let (one, two) = (format!("data: {{\"x\":\"{one}"), format!("{two}\"}}\n\n"));
            return vec![
                stream_head(),
                event("a"),
                chunk(&one),
                pause,
                chunk(&two),
                done(),
            ];
        }
        let head = "HTTP/1.1 200 OK\r\ncontent-length: 30\r\n\r\n";
        let rest = format!("{two}\"}}    ");
        vec![send(format!("{head}{{\"x\":\"{one}")), pause, send(rest)]
    })
    .await;
    let gateway = TestGateway::new(&[provider_at("acme", provider.address)]).await;
    let (text, _) = gateway.caller().stream(&chat(STREAM)).await.rest().await;
    assert!(text.starts_with(&event_text("a")), "{text}");
    assert!(
        text.contains("upstream_error") && !text.contains("sk-"),
        "{text}"
    );
    let text = until_closed(&gateway, &chat("")).await;
    assert!(text.trim_end().ends_with("{\"x\":\""), "{text}");
    assert!(
        gateway
            .ledger
            .wait(2)
            .await
            .iter()
            .all(|(_, call)| call.partial)
    );
}

#[tokio::test]
async fn a_stream_may_end_with_its_connection_if_its_head_allows_it() {
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n";
    let ends = [
        "data: [DONE]\n\n",
        "data: [DONE]\n",
        "data: [DONE]",
        "data: [DON",
    ];
    let provider = MockUpstream::new(move |number| {
        let events = format!("{head}{}", event_text("a"));
        vec![send(events), send(ends[number]), Action::Close]
    })
    .await;
    let gateway = TestGateway::new(&[provider_at("acme", provider.address)]).await;
    for (number, end) in ends.into_iter().enumerate() {
        let (text, _) = gateway.caller().stream(&chat(STREAM)).await.rest().await;
        let rows = gateway.ledger.wait(number + 1).await;
        let partial = number == ends.len() - 1;
        let as_it_came = text == event_text("a") + end;
        assert_eq!(as_it_came, !partial, "{end:?}: {text}");
        assert_eq!(text.contains("upstream_error"), partial, "{end:?}: {text}");
        assert_eq!(rows[number].1.partial, partial, "{end:?}");
    }
}

#[tokio::test]
async fn a_response_without_end_is_cut() {
    let provider = MockUpstream::new(|number| match number {
        0 => {
            let mut acts = vec![stream_head()];
            acts.extend((0..100).map(|_| event(&"x".repeat(1000))));
            acts.push(done());
            acts
        }
        1 => {
            let one = || {
                [
                    event(&"x".repeat(1000)),
                    Action::Sleep(Duration::from_millis(1)),
                ]
            };
            let mut acts = vec![stream_head()];
            acts.extend((0..100).flat_map(|_| one()));
            acts.push(done());
            acts
        }
        _ => vec![send("HTTP/1.1 200 OK\r\n\r\n"), send("x".repeat(100_000))],
    })
    .await;
    let gateway = TestGateway::with(&[provider_at("acme", provider.address)], |options| {
        options.max_response = 50_000;
    })
    .await;
    // At once, and one by one.
    for _ in 0..2 {
        let (text, whole) = gateway.caller().stream(&chat(STREAM)).await.rest().await;
        assert!(
            whole && text.len() < 60_000 && text.contains("answer_too_large"),
            "{}",
            text.len()
        );
    }
    let text = until_closed(&gateway, &chat("")).await;
    assert!(
        text.len() < 60_000 && !text.ends_with("0\r\n\r\n"),
        "{}",
        text.len()
    );
    assert!(
        gateway
            .ledger
            .wait(3)
            .await
            .iter()
            .all(|(_, call)| call.partial)
    );
}

#[tokio::test]
async fn a_stream_whose_provider_is_slow_is_not_taken_for_unread() {
    let go = Arc::new(Notify::new());
    let wait = Arc::clone(&go);
    let provider = MockUpstream::new(move |_| {
        let event = || [event("a"), Action::Sleep(Duration::from_millis(2))];
        let mut acts = vec![stream_head()];
        acts.extend((0..4).flat_map(|_| event()));
        acts.extend([Action::Wait(Arc::clone(&wait)), done()]);
        acts
    })
    .await;
    let gateway = TestGateway::with(&[provider_at("acme", provider.address)], |options| {
        options.unread_timeout = Duration::from_secs(5);
        // Else it would say something itself.
        options.keep_alive_interval = Duration::from_hours(1);
    })
    .await;
    let mut coming = gateway.caller().stream(&chat(STREAM)).await;
    let (mut text, all) = (String::new(), event_text("a").repeat(4));
    while text.len() < all.len() {
        text += &coming.next().await.unwrap().unwrap();
    }
    let relay = gateway.relay.clone();
    tokio::time::pause();
    let sweeps = tokio::time::timeout(Duration::from_secs(25), relay.maintain());
    assert!(sweeps.await.is_err());
    tokio::time::resume();
    assert!(gateway.ledger.rows().is_empty(), "it goes on");
    go.notify_one();
    let (rest, whole) = coming.rest().await;
    assert_eq!((&*rest, whole), ("data: [DONE]\n\n", true));
}

#[tokio::test]
async fn a_response_that_nobody_reads_is_ended() {
    let provider = MockUpstream::new(|_| {
        let Action::Send(event) = event(&"x".repeat(16_000)) else {
            return Vec::new();
        };
        vec![
            stream_head(),
            Action::Flood(event, 10_000),
            Action::AwaitClose,
        ]
    })
    .await;
    let gateway = TestGateway::with(&[provider_at("acme", provider.address)], |options| {
        options.unread_timeout = Duration::from_secs(10);
    })
    .await;
    let caller = gateway.caller();
    let _deaf = caller.raw(&caller.raw_chat(&chat(STREAM))).await;
    // Until all buffers are full.
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert!(gateway.ledger.rows().is_empty());
    let relay = gateway.relay.clone();
    tokio::time::pause();
    let early = tokio::time::timeout(Duration::from_secs(11), relay.maintain());
    assert!(early.await.is_err());
    assert!(gateway.ledger.rows().is_empty(), "it may still read");
    // The buffers of a slow machine may have filled only now, and the time began then.
    for _ in 0..5 {
        let late = tokio::time::timeout(Duration::from_secs(6), relay.maintain());
        assert!(late.await.is_err());
    }
    tokio::time::resume();
    let call = gateway.ledger.only().await;
    assert!(call.partial && call.tokens.completion > 0);
    assert!(provider.wait_for_open(0).await, "the provider is let go");
}

#[tokio::test]
async fn a_hundred_streams_cut_at_random_are_a_hundred_rows() {
    let provider = MockUpstream::new(|number| {
        let mut acts = vec![stream_head()];
        for _ in 0..20 {
            acts.push(event("some words"));
            if number % 5 == 0 {
                acts.push(Action::Sleep(Duration::from_millis(1)));
            }
            if number % 2 == 0 && fastrand::u32(..20) == 0 {
                acts.extend([send("3"), Action::Close]);
            }
        }
        acts.push(done());
        acts
    })
    .await;
    let gateway = TestGateway::new(&[provider_at("acme", provider.address)]).await;
    let caller = gateway.caller();
    for round in 0..100 {
        if round % 2 == 1 {
            let mut stream = caller.raw(&caller.raw_chat(&chat(STREAM))).await;
            let mut some = vec![0; fastrand::usize(1..1000)];
            stream.read_exact(&mut some).await.unwrap();
        } else {
            caller.stream(&chat(STREAM)).await.rest().await;
        }
    }
    let rows = gateway.ledger.wait(100).await;
    let ids: std::collections::HashSet<_> = rows.iter().map(|(_, call)| call.id).collect();
    assert_eq!(ids.len(), 100);
    // Only connections that can be used again are left.
    assert!(
        provider
            .wait_for_open(gateway.relay.idle_connections())
            .await
    );
}

/// Everything that comes until the gateway closes the connection, which it must.
async fn until_closed(gateway: &TestGateway, body: &str) -> String {
    let caller = gateway.caller();
    let mut stream = caller.raw(&caller.raw_chat(body)).await;
    let mut all = Vec::new();
    let end = tokio::time::timeout(TIMEOUT, stream.read_to_end(&mut all)).await;
    assert!(end.is_ok(), "it is not closed");
    String::from_utf8(all).unwrap()
}
