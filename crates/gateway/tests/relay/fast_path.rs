//! The fast path: what is ordinary is answered there, and everything else by hyper, on the same
//! connection.

use crate::support::{MODEL, TestGateway, chat, chat_response, provider_at, until};
use estrade_mock_upstream::{Action, MockUpstream, done, event, json, stream_head};
use estrade_model::provider::OnDisconnect;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

const STREAM: &str = r#","stream":true"#;

/// A connection, read as a client reads it.
struct Wire(BufReader<TcpStream>);

#[derive(Debug)]
struct Read {
    status: u16,
    head: String,
    body: String,
}

impl Wire {
    async fn open(gateway: &TestGateway) -> Self {
        Self(BufReader::new(gateway.caller().raw("").await))
    }

    async fn write(&mut self, text: &str) {
        self.0.get_mut().write_all(text.as_bytes()).await.unwrap();
    }

    async fn line(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).await.unwrap();
        line
    }

    async fn exactly(&mut self, count: usize) -> String {
        let mut bytes = vec![0; count];
        self.0.read_exact(&mut bytes).await.unwrap();
        String::from_utf8(bytes).unwrap()
    }

    async fn head(&mut self) -> (u16, String) {
        let mut head = String::new();
        loop {
            let line = self.line().await;
            assert!(line.ends_with("\r\n"), "{head}{line:?}");
            if line == "\r\n" {
                break;
            }
            head.push_str(&line);
        }
        (head[9..12].parse().unwrap(), head.to_ascii_lowercase())
    }

    async fn response(&mut self) -> Read {
        let (status, head) = self.head().await;
        let length = head
            .lines()
            .find_map(|line| line.strip_prefix("content-length: "));
        let mut body = String::new();
        if let Some(length) = length {
            assert!(!head.contains("transfer-encoding"));
            body = self.exactly(length.parse().unwrap()).await;
        } else {
            assert!(head.contains("transfer-encoding: chunked\r\n"), "{head}");
            loop {
                let line = self.line().await;
                let size = usize::from_str_radix(line.trim_end(), 16).unwrap();
                body.push_str(&self.exactly(size).await);
                assert_eq!(self.exactly(2).await, "\r\n");
                if size == 0 {
                    break;
                }
            }
        }
        Read { status, head, body }
    }

    async fn ended(mut self) -> bool {
        matches!(self.0.read(&mut [0]).await, Ok(0) | Err(_))
    }
}

async fn answering() -> (MockUpstream, TestGateway) {
    let provider = MockUpstream::new(|_| json(200, &chat_response(3, 4))).await;
    let gateway = TestGateway::new(&[provider_at("acme", provider.address)]).await;
    (provider, gateway)
}

#[tokio::test]
async fn requests_on_one_connection_get_responses_in_order_however_they_come() {
    let (provider, gateway) = answering().await;
    let one = gateway.caller().raw_chat(&chat(""));
    let unknown = one.replace("Bearer good", "Bearer nobody");
    let mut wire = Wire::open(&gateway).await;
    // One, two at once, and one in pieces.
    wire.write(&one).await;
    assert_eq!(wire.response().await.body, chat_response(3, 4));
    wire.write(&format!("{unknown}{one}")).await;
    let refused = wire.response().await;
    assert_eq!(refused.status, 401, "{refused:?}");
    assert_eq!(wire.response().await.status, 200);
    for piece in one.as_bytes().chunks(7) {
        wire.write(std::str::from_utf8(piece).unwrap()).await;
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    let last = wire.response().await;
    assert_eq!((last.status, &*last.body), (200, &*chat_response(3, 4)));
    assert!(last.head.contains("\r\ndate: ") && last.head.contains("\r\nx-estrade-call: "));
    assert_eq!(provider.count(), 3);
    assert_eq!(provider.connections(), 1);
}

#[tokio::test]
async fn the_connection_goes_on_after_a_response_of_any_size() {
    let sizes = [1000, 20_000, 8 * 1024, 40_000, 500_000, 2000];
    let response = |size| format!("{{\"x\":\"{}\"}}", "y".repeat(size));
    let provider = MockUpstream::new(move |number| json(200, &response(sizes[number]))).await;
    let gateway = TestGateway::new(&[provider_at("acme", provider.address)]).await;
    let mut wire = Wire::open(&gateway).await;
    // What comes too early is not lost either.
    let one = gateway.caller().raw_chat(&chat(""));
    wire.write(&one.repeat(2)).await;
    for (number, size) in sizes.into_iter().enumerate() {
        let read = wire.response().await;
        assert!(read.status == 200 && read.body == response(size), "{size}");
        if number + 2 < sizes.len() {
            wire.write(&one).await;
        }
    }
    assert_eq!(provider.connections(), 1);
}

#[tokio::test]
async fn what_comes_while_a_response_flows_is_kept() {
    let provider = MockUpstream::new(|number| {
        if number == 0 {
            return vec![
                stream_head(),
                event("a"),
                Action::Sleep(Duration::from_millis(100)),
                event("b"),
                done(),
            ];
        }
        json(200, &chat_response(1, 1))
    })
    .await;
    let gateway = TestGateway::new(&[provider_at("acme", provider.address)]).await;
    let caller = gateway.caller();
    let mut wire = Wire::open(&gateway).await;
    wire.write(&caller.raw_chat(&chat(STREAM))).await;
    until("it is asked", || provider.count() == 1).await;
    wire.write(&caller.raw_chat(&chat(""))).await;
    let streamed = wire.response().await;
    assert!(streamed.head.contains("content-type: text/event-stream"));
    assert!(streamed.body.ends_with("data: [DONE]\n\n"), "{streamed:?}");
    assert_eq!(wire.response().await.body, chat_response(1, 1));
}

#[tokio::test]
async fn who_closes_only_the_sending_side_gets_its_responses() {
    let provider = MockUpstream::with_script(|_, asked| {
        let pause = || Action::Sleep(Duration::from_millis(60));
        if asked.body.contains(STREAM) {
            return vec![
                stream_head(),
                event("a"),
                pause(),
                event("b"),
                pause(),
                done(),
            ];
        }
        let mut acts = vec![pause()];
        acts.extend(json(200, &chat_response(3, 4)));
        acts
    })
    .await;
    let gateway = TestGateway::new(&[provider_at("acme", provider.address)]).await;
    let caller = gateway.caller();
    let (one, stream) = (chat(""), chat(STREAM));
    for bodies in [vec![&one], vec![&stream], vec![&one, &stream, &one]] {
        let mut wire = Wire::open(&gateway).await;
        let all: String = bodies.iter().map(|body| caller.raw_chat(body)).collect();
        wire.write(&all).await;
        wire.0.get_mut().shutdown().await.unwrap();
        for body in bodies {
            let response = wire.response().await;
            assert_eq!(response.status, 200);
            let end = if body == &one {
                "}"
            } else {
                "data: [DONE]\n\n"
            };
            assert!(response.body.ends_with(end), "{response:?}");
        }
        assert!(wire.ended().await);
    }
    for (_, call) in gateway.ledger.wait(5).await {
        assert!(call.status == 200 && !call.partial, "{call:?}");
    }
}

#[tokio::test]
async fn who_closes_everything_is_not_waited_for_without_end() {
    let provider = MockUpstream::new(|_| vec![Action::AwaitClose]).await;
    let mut acme = provider_at("acme", provider.address);
    let gateway = TestGateway::with(&[acme.clone()], |options| {
        options.detached_timeout = Duration::from_millis(300);
    })
    .await;
    gateway.ledger.budgets.store(true, Ordering::Relaxed);
    let hang_up = async |asked: usize| {
        let mut wire = Wire::open(&gateway).await;
        wire.write(&gateway.caller().raw_chat(&chat(""))).await;
        until("it is asked", || provider.count() == asked).await;
        wire.0.get_mut().shutdown().await.unwrap();
        let started = Instant::now();
        let (reservation, call) = gateway.ledger.wait(asked).await.remove(asked - 1);
        assert_eq!((call.status, call.cost), (499, reservation.reserved));
        started.elapsed()
    };
    let took = hang_up(1).await;
    assert!(took >= Duration::from_millis(290), "{took:?}");
    assert!(provider.wait_for_open(0).await);
    // A provider that is cancelled at once is not waited for at all.
    acme.on_disconnect = OnDisconnect::CancelAndChargeReserved;
    gateway.gateway.set_providers(&[acme], false).unwrap();
    let mut took = Vec::new();
    while took
        .last()
        .is_none_or(|took| *took > Duration::from_millis(200))
    {
        assert!(took.len() < 20, "{took:?}");
        let asked = provider.count() + 1;
        took.push(hang_up(asked).await);
    }
}

#[tokio::test]
async fn a_request_that_is_not_ordinary_goes_on_with_the_framework() {
    let (provider, gateway) = answering().await;
    let body = chat("");
    let mut wire = Wire::open(&gateway).await;
    let head = "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer good\r\n";
    wire.write(&gateway.caller().raw_chat(&body)).await;
    assert_eq!(wire.response().await.status, 200);
    // In chunks.
    let chunked = format!(
        "{head}transfer-encoding: chunked\r\n\r\n{:x}\r\n{body}\r\n0\r\n\r\n",
        body.len()
    );
    wire.write(&chunked).await;
    assert_eq!(wire.response().await.status, 200);
    // It stays there.
    wire.write(&gateway.caller().raw_chat(&body)).await;
    assert_eq!(wire.response().await.status, 200);
    // A client that expects `100 Continue` gets it.
    let mut wire = Wire::open(&gateway).await;
    let length = body.len();
    wire.write(&format!(
        "{head}content-length: {length}\r\nexpect: 100-continue\r\n\r\n"
    ))
    .await;
    assert_eq!(wire.head().await.0, 100);
    wire.write(&body).await;
    assert_eq!(wire.response().await.status, 200);
    // A large one, and one that takes its time.
    let large = chat(&format!(r#","pad":"{}""#, "x".repeat(100_000)));
    let mut wire = Wire::open(&gateway).await;
    wire.write(&gateway.caller().raw_chat(&large)).await;
    assert_eq!(wire.response().await.status, 200);
    let slow = gateway.caller().raw_chat(&body);
    let mut wire = Wire::open(&gateway).await;
    wire.write(&slow[..slow.len() - 5]).await;
    tokio::time::sleep(Duration::from_millis(1200)).await;
    wire.write(&slow[slow.len() - 5..]).await;
    assert_eq!(wire.response().await.status, 200);
    assert_eq!(provider.count(), 6);
}

#[tokio::test]
async fn lengths_that_others_may_read_otherwise_are_refused() {
    let (provider, gateway) = answering().await;
    let body = chat("");
    let length = body.len();
    for lengths in [
        format!("content-length: {length}\r\ncontent-length: 3\r\n"),
        format!("content-length: +{length}\r\n"),
        format!("content-length: {length}, 3\r\n"),
        "content-length: 99999999999999999999999\r\n".to_owned(),
    ] {
        let mut wire = Wire::open(&gateway).await;
        wire.write(&format!(
            "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer good\r\n{lengths}\r\n{body}"
        ))
        .await;
        assert_eq!(wire.head().await.0, 400, "{lengths}");
    }
    assert_eq!(provider.count(), 0);
}

#[tokio::test]
async fn one_length_that_is_sent_twice_counts_once() {
    let (provider, gateway) = answering().await;
    let body = chat("");
    let length = format!("content-length: {}\r\n", body.len());
    let mut wire = Wire::open(&gateway).await;
    for _ in 0..2 {
        wire.write(&format!(
            "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer good\r\n{length}{length}\r\n{body}"
        ))
        .await;
        assert_eq!(wire.response().await.status, 200);
    }
    assert_eq!(provider.count(), 2);
}

#[tokio::test]
async fn who_wants_to_close_gets_a_response_and_an_end() {
    let (_provider, gateway) = answering().await;
    let close = gateway
        .caller()
        .raw_chat(&chat(""))
        .replace("host: x", "host: x\r\nconnection: close");
    let mut wire = Wire::open(&gateway).await;
    wire.write(&close).await;
    let response = wire.response().await;
    assert!(
        response.head.contains("connection: close\r\n"),
        "{response:?}"
    );
    assert!(wire.ended().await);
}

#[tokio::test]
async fn a_response_that_is_cut_has_no_end() {
    let provider = MockUpstream::new(|_| {
        let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n";
        vec![
            estrade_mock_upstream::send(format!("{head}content-length: 100\r\n\r\n{{\"a\":")),
            Action::Sleep(Duration::from_millis(50)),
            Action::Close,
        ]
    })
    .await;
    let gateway = TestGateway::new(&[provider_at("acme", provider.address)]).await;
    let mut wire = Wire::open(&gateway).await;
    wire.write(&gateway.caller().raw_chat(&chat(""))).await;
    let (status, head) = wire.head().await;
    assert_eq!(status, 200);
    // The name of the model may still change its length.
    assert!(head.contains("transfer-encoding: chunked\r\n"), "{head}");
    let mut rest = Vec::new();
    let _ = wire.0.read_to_end(&mut rest).await;
    assert_eq!(rest, b"5\r\n{\"a\":\r\n");
    let call = gateway.ledger.only().await;
    assert!(call.partial);
    assert_eq!(&*call.model, MODEL);
}

#[tokio::test]
async fn a_response_without_a_body_has_none() {
    let provider = MockUpstream::new(|number| {
        if number > 0 {
            return json(200, &chat_response(1, 1));
        }
        let head = "HTTP/1.1 204 No Content\r\ncontent-type: text/event-stream\r\n\r\n";
        vec![estrade_mock_upstream::send(head)]
    })
    .await;
    let gateway = TestGateway::new(&[provider_at("acme", provider.address)]).await;
    let mut wire = Wire::open(&gateway).await;
    wire.write(&gateway.caller().raw_chat(&chat(""))).await;
    let (status, head) = wire.head().await;
    assert_eq!(status, 204);
    let framed = head.contains("transfer-encoding") || head.contains("content-length");
    assert!(!framed, "{head}");
    wire.write(&gateway.caller().raw_chat(&chat(""))).await;
    assert_eq!(wire.response().await.status, 200, "nothing is in between");
}

#[tokio::test]
async fn one_caller_that_sends_very_many_requests_does_not_keep_others_waiting() {
    const MANY: usize = 20_000;
    let (_provider, gateway) = answering().await;
    let refused = "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n";
    let (mut reading, mut writing) = gateway.caller().raw("").await.into_split();
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let _ = writing.write_all(refused.repeat(MANY).as_bytes()).await;
        std::future::pending::<()>().await;
    });
    let answered = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&answered);
    tasks.spawn(async move {
        let mut bytes = vec![0; 64 * 1024];
        while let Ok(length @ 1..) = reading.read(&mut bytes).await {
            let heads = bytes[..length].windows(9).filter(|it| it == b"HTTP/1.1 ");
            count.fetch_add(heads.count(), Ordering::Relaxed);
        }
    });
    until("it is under way", || answered.load(Ordering::Relaxed) > 0).await;
    assert_eq!(gateway.caller().chat(&chat("")).await.status, 200);
    let before = answered.load(Ordering::Relaxed);
    assert!(before < MANY / 4, "{before} of {MANY} were answered first");
}
