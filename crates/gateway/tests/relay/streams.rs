//! Streams: at once, whole events, metered.

use crate::support::{SECRET, TestGateway, chat, error_code, provider_at, until};
use estrade_mock_upstream::{
    Action, MockUpstream, chunk, done, event, event_text, send, stream_head, usage_event,
};
use serde_json::Value;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::Notify;

const STREAM: &str = r#","stream":true"#;
const COMMENT: &str = ": keep-alive\n\n";

#[tokio::test]
async fn events_go_out_as_they_come_and_the_hidden_usage_is_metered() {
    let go = Arc::new(Notify::new());
    let wait = Arc::clone(&go);
    let provider = MockUpstream::new(move |_| {
        vec![
            stream_head(),
            event("Hel"),
            Action::Wait(Arc::clone(&wait)),
            event("lo"),
            usage_event(7, 8),
            done(),
        ]
    })
    .await;
    let gateway = TestGateway::new(&[provider_at("acme", provider.address)]).await;
    let mut coming = gateway.caller().stream(&chat(STREAM)).await;
    assert_eq!(
        coming.response.headers()["content-type"],
        "text/event-stream"
    );
    assert_eq!(coming.next().await.unwrap().unwrap(), event_text("Hel"));
    assert!(gateway.ledger.rows().is_empty());
    go.notify_one();
    let (rest, whole) = coming.rest().await;
    assert!(whole);
    assert_eq!(rest, format!("{}data: [DONE]\n\n", event_text("lo")));
    let sent: Value = serde_json::from_str(&provider.requests()[0].body).unwrap();
    assert_eq!(sent["stream_options"]["include_usage"], true);
    let call = gateway.ledger.only().await;
    assert!(call.streamed && !call.partial && !call.estimated);
    assert_eq!((call.tokens.prompt, call.tokens.completion), (7, 8));
    assert_eq!(gateway.relay.idle_connections(), 1);
}

#[tokio::test]
async fn who_asks_for_the_usage_sees_it_and_a_provider_that_cannot_is_not_asked() {
    let script = |_| vec![stream_head(), event("Hello"), usage_event(7, 8), done()];
    let provider = MockUpstream::new(script).await;
    let mut simple = provider_at("acme", provider.address);
    let gateway = TestGateway::new(&[simple.clone()]).await;
    let body = chat(r#","stream":true,"stream_options":{"include_usage":true}"#);
    let (text, _) = gateway.caller().stream(&body).await.rest().await;
    assert!(text.contains("prompt_tokens"), "{text}");
    simple.stream_usage = false;
    gateway.gateway.set_providers(&[simple], true).unwrap();
    let (text, _) = gateway.caller().stream(&chat(STREAM)).await.rest().await;
    assert!(
        text.contains("prompt_tokens"),
        "what it sends anyway is passed on: {text}"
    );
    assert!(!provider.requests()[1].body.contains("stream_options"));
    assert_eq!(gateway.ledger.wait(2).await[1].1.tokens.total(), 15);
}

#[tokio::test]
async fn events_that_are_split_anywhere_arrive_whole() {
    let text = format!("{}{}data: [DONE]\n\n", event_text("a"), event_text("b"));
    let sent = text.clone();
    let provider = MockUpstream::new(move |number| {
        let (one, two) = sent.split_at((number * 13 + 1).min(sent.len() - 1));
        vec![
            stream_head(),
            chunk(one),
            Action::Sleep(Duration::from_millis(2)),
            chunk(two),
            send("0\r\n\r\n"),
        ]
    })
    .await;
    let gateway = TestGateway::new(&[provider_at("acme", provider.address)]).await;
    for _ in 0..text.len() / 13 {
        let (got, whole) = gateway.caller().stream(&chat(STREAM)).await.rest().await;
        assert_eq!((&*got, whole), (&*text, true));
    }
    assert_eq!(provider.connections(), 1);
}

/// Events that are like each other, in chunks, and what is said in them.
fn alike(count: u32) -> (String, String) {
    let texts: Vec<_> = (0..count)
        .map(|number| event_text(&format!("w{number}")))
        .collect();
    let chunks = texts
        .iter()
        .map(|text| format!("{:x}\r\n{text}\r\n", text.len()));
    (chunks.collect(), texts.concat())
}

#[tokio::test]
async fn events_that_are_alike_arrive_wherever_what_was_sent_is_split() {
    let (raw, text) = alike(8);
    let parts = 40;
    let (step, sent) = (raw.len() / parts, raw.clone());
    let provider = MockUpstream::new(move |number| {
        let (one, two) = sent.split_at(number * step + 1);
        vec![
            stream_head(),
            send(one),
            Action::Sleep(Duration::from_millis(2)),
            send(two),
            send("0\r\n\r\n"),
        ]
    })
    .await;
    let gateway = TestGateway::new(&[provider_at("acme", provider.address)]).await;
    for number in 1..=parts {
        let (got, whole) = gateway.caller().stream(&chat(STREAM)).await.rest().await;
        assert_eq!((&*got, whole), (&*text, true));
        let call = gateway.ledger.wait(number).await.pop().unwrap().1;
        assert_eq!(call.tokens.completion, 4, "16 bytes were said");
    }
    assert_eq!(provider.connections(), 1);
}

#[tokio::test]
async fn the_content_of_similar_events_is_known_before_the_end() {
    let go = Arc::new(Notify::new());
    let wait = Arc::clone(&go);
    let (raw, text) = alike(8);
    let provider = MockUpstream::new(move |_| {
        let (first, rest) = raw.split_at(raw.len() / 2);
        vec![
            stream_head(),
            send(first),
            Action::Sleep(Duration::from_millis(2)),
            send(rest),
            Action::Wait(Arc::clone(&wait)),
            done(),
        ]
    })
    .await;
    let gateway = TestGateway::new(&[provider_at("acme", provider.address)]).await;
    gateway.ledger.relaxed.store(true, Ordering::Relaxed);
    let mut coming = gateway.caller().stream(&chat(STREAM)).await;
    let mut got = String::new();
    while got.len() < text.len() {
        got += &coming.next().await.unwrap().unwrap();
    }
    assert_eq!(got, text);
    // Calls that have only just begun are not told of.
    let in_flight = || gateway.gateway.in_flight().0;
    until("it is under way", || !in_flight().is_empty()).await;
    assert_eq!(in_flight()[0].tokens.completion, 4);
    go.notify_one();
    assert!(coming.rest().await.1);
}

#[tokio::test]
async fn a_key_in_an_event_like_those_before_does_not_pass() {
    let provider = MockUpstream::new(|_| {
        vec![
            stream_head(),
            event("a"),
            Action::Sleep(Duration::from_millis(2)),
            event("b"),
            Action::Sleep(Duration::from_millis(2)),
            event(SECRET),
            Action::Sleep(Duration::from_millis(2)),
            done(),
        ]
    })
    .await;
    let gateway = TestGateway::new(&[provider_at("acme", provider.address)]).await;
    let (text, _) = gateway.caller().stream(&chat(STREAM)).await.rest().await;
    let before = event_text("a") + &event_text("b");
    assert!(
        text.starts_with(&before) && !text.contains(SECRET),
        "{text}"
    );
    assert!(gateway.ledger.only().await.partial);
}

#[tokio::test]
async fn a_silent_stream_gets_comments_between_events() {
    let (one, two) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let pauses = (Arc::clone(&one), Arc::clone(&two));
    let provider = MockUpstream::new(move |_| {
        vec![
            stream_head(),
            event("a"),
            Action::Wait(Arc::clone(&pauses.0)),
            chunk("data: {\"x\":"),
            Action::Wait(Arc::clone(&pauses.1)),
            chunk("1}\n\n"),
            done(),
        ]
    })
    .await;
    let gateway = TestGateway::with(&[provider_at("acme", provider.address)], |options| {
        options.keep_alive_interval = Duration::from_millis(30);
    })
    .await;
    let mut coming = gateway.caller().stream(&chat(STREAM)).await;
    let mut text = String::new();
    for (pause, comments) in [(one, 2), (two, 4)] {
        while text.matches(COMMENT).count() < comments {
            text.push_str(&coming.next().await.unwrap().unwrap());
        }
        pause.notify_one();
    }
    let (rest, whole) = coming.rest().await;
    text.push_str(&rest);
    assert!(whole, "{text}");
    assert_eq!(
        text.replace(COMMENT, ""),
        format!("{}data: {{\"x\":1}}\n\ndata: [DONE]\n\n", event_text("a"))
    );
}

#[tokio::test]
async fn who_waits_for_the_end_of_a_slow_event_gets_comments() {
    let provider = MockUpstream::new(|_| {
        let drop = || [chunk("x"), Action::Sleep(Duration::from_millis(5))];
        let mut acts = vec![stream_head(), chunk("data: ")];
        acts.extend((0..60).flat_map(|_| drop()));
        acts.extend([chunk("\n\n"), done()]);
        acts
    })
    .await;
    let gateway = TestGateway::with(&[provider_at("acme", provider.address)], |options| {
        options.keep_alive_interval = Duration::from_millis(100);
    })
    .await;
    let (text, whole) = gateway.caller().stream(&chat(STREAM)).await.rest().await;
    assert!(whole && text.starts_with(COMMENT), "{text}");
    let event = format!("data: {}\n\n", "x".repeat(60));
    assert_eq!(text.replace(COMMENT, ""), event + "data: [DONE]\n\n");
}

#[tokio::test]
async fn a_silence_after_many_events_is_noticed() {
    let (silence, pause) = (Arc::new(Notify::new()), Duration::from_millis(3));
    let end = Arc::clone(&silence);
    let provider = MockUpstream::new(move |_| {
        let events = (0..10).flat_map(|_| [event("a"), Action::Sleep(pause)]);
        let rest = [Action::Wait(Arc::clone(&silence)), done()];
        std::iter::once(stream_head())
            .chain(events)
            .chain(rest)
            .collect()
    })
    .await;
    let gateway = TestGateway::with(&[provider_at("acme", provider.address)], |options| {
        options.keep_alive_interval = Duration::from_millis(50);
    })
    .await;
    let mut coming = gateway.caller().stream(&chat(STREAM)).await;
    let (mut text, all) = (String::new(), event_text("a").repeat(10));
    // On a slow machine there may be silences between them, too.
    let comments = COMMENT.repeat(3);
    while !(text.ends_with(&comments) && text.replace(COMMENT, "") == all) {
        text.push_str(&coming.next().await.unwrap().unwrap());
    }
    end.notify_one();
    let (rest, whole) = coming.rest().await;
    assert!(whole && rest.ends_with("data: [DONE]\n\n"), "{rest}");
}

#[tokio::test]
async fn who_says_something_now_and_then_is_not_silent() {
    let provider = MockUpstream::new(|_| {
        let event = || [event("a"), Action::Sleep(Duration::from_millis(100))];
        let mut acts = vec![stream_head()];
        acts.extend((0..25).flat_map(|_| event()));
        acts.push(done());
        acts
    })
    .await;
    let gateway = TestGateway::with(&[provider_at("acme", provider.address)], |options| {
        options.keep_alive_interval = Duration::from_secs(2);
    })
    .await;
    let (text, whole) = gateway.caller().stream(&chat(STREAM)).await.rest().await;
    assert!(whole && !text.contains(COMMENT), "{text}");
}

#[tokio::test]
async fn in_strict_mode_the_end_waits_until_the_call_is_on_disk() {
    let provider = MockUpstream::new(|number| match number {
        0 => vec![
            stream_head(),
            event("a"),
            Action::Sleep(Duration::from_millis(5)),
            usage_event(1, 1),
            done(),
        ],
        _ => estrade_mock_upstream::json(200, "{}"),
    })
    .await;
    let gateway = TestGateway::new(&[provider_at("acme", provider.address)]).await;
    let durable = Arc::new(Notify::new());
    *gateway.ledger.durable.lock().unwrap() = Some(Arc::clone(&durable));
    let mut coming = gateway.caller().stream(&chat(STREAM)).await;
    assert_eq!(coming.next().await.unwrap().unwrap(), event_text("a"));
    gateway.ledger.wait(1).await;
    let early = tokio::time::timeout(Duration::from_millis(30), coming.next()).await;
    assert!(early.is_err(), "{early:?}");
    durable.notify_one();
    assert_eq!(coming.rest().await, ("data: [DONE]\n\n".to_owned(), true));
    let caller = gateway.caller();
    let body = chat("");
    let whole = caller.chat(&body);
    tokio::pin!(whole);
    assert!(
        tokio::time::timeout(Duration::from_millis(50), &mut whole)
            .await
            .is_err()
    );
    assert_eq!(gateway.ledger.wait(2).await[1].1.status, 200);
    durable.notify_one();
    assert_eq!(whole.await.status, 200);
}

#[tokio::test]
async fn in_strict_mode_what_is_not_on_disk_in_time_has_no_end() {
    let provider = MockUpstream::new(|number| match number {
        0 => vec![stream_head(), event("a"), usage_event(1, 1), done()],
        1 => estrade_mock_upstream::json(200, "{}"),
        _ => {
            let head = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n";
            let pause = Action::Sleep(Duration::from_millis(50));
            vec![send(head), pause, send("{}")]
        }
    })
    .await;
    let gateway = TestGateway::new(&[provider_at("acme", provider.address)]).await;
    let durable = Arc::new(Notify::new());
    *gateway.ledger.durable.lock().unwrap() = Some(Arc::clone(&durable));
    gateway.ledger.full.store(true, Ordering::Relaxed);
    durable.notify_one();
    let (text, _) = gateway.caller().stream(&chat(STREAM)).await.rest().await;
    assert!(text.contains("usage_not_recorded"), "{text}");
    assert!(!text.contains("[DONE]"), "{text}");
    durable.notify_one();
    let response = gateway.caller().chat(&chat("")).await;
    assert_eq!(response.status, 503);
    assert_eq!(error_code(&response.body), "usage_not_recorded");
    durable.notify_one();
    let (text, whole) = gateway.caller().stream(&chat("")).await.rest().await;
    assert!(!whole, "{text}");
}

#[tokio::test]
async fn a_stream_without_usage_is_estimated() {
    let provider =
        MockUpstream::new(|_| vec![stream_head(), event("12345678"), event("1234"), done()]).await;
    let gateway = TestGateway::new(&[provider_at("acme", provider.address)]).await;
    gateway.caller().stream(&chat(STREAM)).await.rest().await;
    let call = gateway.ledger.only().await;
    assert!(call.estimated && !call.partial);
    assert_eq!(call.tokens.completion, 3);
}

#[tokio::test]
async fn tiny_chunks_leave_others_their_turn() {
    let provider = MockUpstream::new(|_| {
        let tiny = "1\r\nx\r\n".repeat(100_000);
        vec![stream_head(), send(tiny), chunk("\n\n"), done()]
    })
    .await;
    let gateway = TestGateway::new(&[provider_at("acme", provider.address)]).await;
    let mut waited = Vec::new();
    // A host that takes its processor away counts as our work; it does not do so every time.
    while waited.last().is_none_or(|longest| *longest >= 15_000) {
        assert!(waited.len() < 10, "others waited {waited:?} µs");
        let mut watch = tokio::task::JoinSet::new();
        let longest = Arc::new(AtomicU64::new(0));
        let (noted, mut last) = (Arc::clone(&longest), thread_time());
        watch.spawn(std::future::poll_fn(move |cx| {
            let now = thread_time();
            noted.fetch_max(now - last, Ordering::Relaxed);
            last = now;
            cx.waker().wake_by_ref();
            std::task::Poll::<()>::Pending
        }));
        let (text, whole) = gateway.caller().stream(&chat(STREAM)).await.rest().await;
        assert!(whole && text.len() == 100_000 + 2 + 14, "{}", text.len());
        waited.push(longest.load(Ordering::Relaxed));
    }
}

/// Microseconds that this thread worked: what else runs on the machine does not count.
fn thread_time() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    u64::try_from(time.tv_sec * 1_000_000 + time.tv_nsec / 1000).unwrap()
}
