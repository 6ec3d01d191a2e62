//! Providers that fail: again, elsewhere, or not at all.

use crate::support::{
    SECRET, TIMEOUT, TestGateway, chat, chat_response, error_code, provider_at, until,
    with_short_timeouts,
};
use estrade_listener::UpstreamBudget;
use estrade_mock_upstream::{Action, MockUpstream, json, send};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::net::TcpListener;
use tokio::sync::Notify;

#[tokio::test]
async fn a_passing_failure_is_repeated() {
    for status in [429, 500, 502, 503, 504] {
        let provider = MockUpstream::new(move |number| match number {
            0 => json(status, "{}"),
            _ => json(200, &chat_response(1, 1)),
        })
        .await;
        let gateway = TestGateway::new(&[provider_at("acme", provider.address)]).await;
        let response = gateway.caller().chat(&chat("")).await;
        assert_eq!(
            (
                response.status.as_u16(),
                response.header("x-estrade-attempts")
            ),
            (200, "2"),
            "{status}"
        );
        let call = gateway.ledger.only().await;
        assert_eq!((call.attempts, call.status), (2, 200));
    }
}

#[tokio::test]
async fn the_wish_of_a_provider_to_wait_is_honoured() {
    let provider = MockUpstream::new(|number| match number {
        0 => vec![send(
            "HTTP/1.1 503 No\r\nretry-after: 0.2\r\ncontent-length: 0\r\n\r\n",
        )],
        _ => json(200, &chat_response(1, 1)),
    })
    .await;
    let gateway = TestGateway::new(&[provider_at("acme", provider.address)]).await;
    let start = Instant::now();
    assert_eq!(gateway.caller().chat(&chat("")).await.status, 200);
    assert!(start.elapsed() >= Duration::from_millis(200));
    assert_eq!(provider.connections(), 1, "the refusal was read to its end");
}

#[tokio::test]
async fn the_next_provider_is_asked_when_one_fails() {
    let bad = MockUpstream::new(|_| json(503, "{}")).await;
    let good = MockUpstream::new(|_| json(200, &chat_response(1, 1))).await;
    let providers = [
        provider_at("bad", bad.address),
        provider_at("good", good.address),
    ];
    let gateway = TestGateway::new(&providers).await;
    for round in 0..8 {
        let response = gateway.caller().chat(&chat("")).await;
        assert_eq!(response.header("x-estrade-provider"), "good");
        let attempts = if round < 5 { "3" } else { "1" };
        assert_eq!(response.header("x-estrade-attempts"), attempts, "{round}");
    }
    assert_eq!(
        bad.requests().len(),
        10,
        "after five failed calls it is left alone"
    );
    let rows = gateway.ledger.wait(8).await;
    assert!(rows.iter().all(|(_, call)| &*call.provider == "good"));
}

#[tokio::test]
async fn the_last_provider_is_never_given_up() {
    let bad = MockUpstream::new(|number| {
        if number < 12 {
            json(503, "{}")
        } else {
            json(200, "{}")
        }
    })
    .await;
    let mut only = provider_at("bad", bad.address);
    only.retries = 0;
    let gateway = TestGateway::new(&[only]).await;
    for round in 0..13 {
        let response = gateway.caller().chat(&chat("")).await;
        assert_eq!(
            response.status,
            if round < 12 { 502 } else { 200 },
            "{round}"
        );
    }
}

#[tokio::test]
async fn what_the_caller_did_wrong_is_passed_on_unchanged() {
    for status in [400_u16, 404, 409, 422] {
        let body = r#"{"error":{"message":"too long","code":"context_length_exceeded"}}"#;
        let provider = MockUpstream::new(move |_| json(status, body)).await;
        let gateway = TestGateway::new(&[provider_at("acme", provider.address)]).await;
        for _ in 0..6 {
            let response = gateway.caller().chat(&chat("")).await;
            assert_eq!((response.status.as_u16(), response.text()), (status, body));
            assert_eq!(response.header("x-estrade-attempts"), "1");
            assert_eq!(response.header("openai-organization"), "");
        }
        let call = &gateway.ledger.wait(6).await[0].1;
        assert_eq!(
            (call.status, call.cost.nanos(), call.tokens.total()),
            (status, 0, 0)
        );
        assert_eq!(provider.connections(), 1);
    }
}

#[tokio::test]
async fn what_we_did_wrong_is_not_the_callers_fault() {
    for status in [401, 403] {
        let body = format!("Incorrect API key provided: {SECRET}");
        let provider = MockUpstream::new(move |_| json(status, &body)).await;
        let gateway = TestGateway::new(&[provider_at("acme", provider.address)]).await;
        let response = gateway.caller().chat(&chat("")).await;
        assert_eq!(
            (response.status.as_u16(), &*error_code(&response.body)),
            (502, "upstream_auth")
        );
        assert!(!response.text().contains(SECRET));
        assert_eq!(provider.requests().len(), 1, "asking again does not help");
    }
}

#[tokio::test]
async fn a_provider_that_wants_our_money_is_not_the_callers_business() {
    let poor = MockUpstream::new(|_| json(402, r#"{"error":"top up"}"#)).await;
    let good = MockUpstream::new(|_| json(200, &chat_response(1, 1))).await;
    let providers = [
        provider_at("poor", poor.address),
        provider_at("good", good.address),
    ];
    let gateway = TestGateway::new(&providers).await;
    let response = gateway.caller().chat(&chat("")).await;
    assert_eq!(response.header("x-estrade-provider"), "good");
    assert_eq!(poor.requests().len(), 1, "asking again does not help");
    gateway
        .gateway
        .set_providers(&providers[..1], true)
        .unwrap();
    let response = gateway.caller().chat(&chat("")).await;
    assert_eq!(
        (response.status.as_u16(), &*error_code(&response.body)),
        (502, "upstream_error")
    );
    assert!(!response.text().contains("top up"));
}

#[tokio::test]
async fn a_provider_that_repeats_its_key_is_not_repeated() {
    let body = format!("you sent: authorization: Bearer {SECRET}");
    let provider = MockUpstream::new(move |_| json(400, &body)).await;
    let acme = provider_at("acme", provider.address);
    assert!(!format!("{acme:?}").contains(SECRET));
    let gateway = TestGateway::new(&[acme]).await;
    let response = gateway.caller().chat(&chat("")).await;
    assert_eq!(
        (response.status.as_u16(), &*error_code(&response.body)),
        (502, "upstream_error")
    );
    assert!(!response.text().contains(SECRET) && !response.text().contains("127.0.0.1"));
}

#[tokio::test]
async fn a_provider_that_has_responded_with_its_key_is_not_called_again() {
    let provider = MockUpstream::new(|_| {
        vec![send(format!(
            "HTTP/1.1 200 OK\r\ncontent-language: {SECRET}\r\ncontent-length: 2\r\n\r\n{{}}"
        ))]
    })
    .await;
    let mut acme = provider_at("acme", provider.address);
    acme.retries = 3;
    let gateway = TestGateway::new(&[acme]).await;
    let response = gateway.caller().chat(&chat("")).await;
    assert_eq!(response.status.as_u16(), 502);
    assert!(!format!("{:?}{}", response.headers, response.text()).contains(SECRET));
    assert_eq!(provider.count(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn endless_interim_responses_do_not_stop_the_clock() {
    let provider = MockUpstream::new(|_| {
        let interim = b"HTTP/1.1 100 Continue\r\n\r\n".repeat(4000);
        vec![Action::Flood(interim, u64::MAX)]
    })
    .await;
    let mut acme = with_short_timeouts(provider_at("acme", provider.address));
    acme.retries = 0;
    let gateway = TestGateway::new(&[acme]).await;
    let response = tokio::time::timeout(TIMEOUT, gateway.caller().chat(&chat(""))).await;
    assert_eq!(response.expect("a response").status.as_u16(), 504);
    assert!(provider.wait_for_open(0).await);
}

#[tokio::test]
async fn a_provider_that_stays_busy_says_until_when() {
    let provider = MockUpstream::new(|_| {
        vec![send(
            "HTTP/1.1 429 No\r\nretry-after: 1\r\ncontent-length: 8\r\n\r\norg-1234",
        )]
    })
    .await;
    let mut acme = provider_at("acme", provider.address);
    acme.retries = 0;
    let gateway = TestGateway::new(&[acme]).await;
    let response = gateway.caller().chat(&chat("")).await;
    assert_eq!(
        (response.status.as_u16(), &*error_code(&response.body)),
        (429, "upstream_rate_limited")
    );
    assert_eq!(response.header("retry-after"), "1");
    assert!(!response.text().contains("org-1234"));
}

#[tokio::test]
async fn garbage_silence_and_absence_have_their_codes() {
    // The last number: how often the prompt may have been worked on.
    let cases: [(Vec<Action>, u16, &str, u64); 6] = [
        (
            vec![send("SSH-2.0-OpenSSH_9\r\n")],
            502,
            "upstream_error",
            2,
        ),
        (
            vec![send("HTTP/1.1 200 OK\r\ncontent-le"), Action::Close],
            502,
            "upstream_error",
            2,
        ),
        (vec![Action::Close], 502, "upstream_error", 2),
        (vec![Action::AwaitClose], 504, "upstream_timeout", 1),
        (
            vec![send(
                "HTTP/1.1 301 Go\r\nlocation: http://127.0.0.1:9/\r\ncontent-length: 0\r\n\r\n",
            )],
            502,
            "upstream_error",
            0,
        ),
        (
            vec![send(format!(
                "HTTP/1.1 200 OK\r\nx: {}",
                "x".repeat(100_000)
            ))],
            502,
            "upstream_error",
            2,
        ),
    ];
    let prompt = chat("").len().div_ceil(4) as u64;
    for (acts, status, code, owed) in cases {
        let script = acts.clone();
        let provider = MockUpstream::new(move |_| script.clone()).await;
        let mut acme = provider_at("acme", provider.address);
        if status == 504 {
            acme = with_short_timeouts(acme);
        }
        let gateway = TestGateway::new(&[acme]).await;
        let response = gateway.caller().chat(&chat("")).await;
        assert_eq!(
            (response.status.as_u16(), &*error_code(&response.body)),
            (status, code),
            "{acts:?}"
        );
        let call = gateway.ledger.only().await;
        let cost = i64::try_from(owed * prompt * 1000).unwrap();
        assert_eq!(
            (call.status, call.tokens.prompt, call.cost.nanos()),
            (status, owed * prompt, cost),
            "{acts:?}"
        );
        assert_eq!((call.partial, call.estimated), (owed > 0, owed > 0));
        let kept = gateway.relay.idle_connections();
        assert!(provider.wait_for_open(kept).await, "{acts:?}");
    }
    let nobody = TcpListener::bind("127.0.0.1:0")
        .await
        .unwrap()
        .local_addr()
        .unwrap();
    let gateway = TestGateway::new(&[provider_at("acme", nobody)]).await;
    let response = gateway.caller().chat(&chat("")).await;
    assert_eq!(
        (response.status.as_u16(), &*error_code(&response.body)),
        (502, "upstream_error")
    );
    assert_eq!(response.header("x-estrade-attempts"), "2");
}

#[tokio::test]
async fn connections_to_providers_have_a_limit_and_idle_ones_make_room() {
    let go = Arc::new(Notify::new());
    let waits = Arc::clone(&go);
    let slow = MockUpstream::new(move |_| {
        let mut acts = vec![Action::Wait(Arc::clone(&waits))];
        acts.extend(json(200, &chat_response(1, 1)));
        acts
    })
    .await;
    let acme = provider_at("acme", slow.address);
    let gateway = TestGateway::with(&[acme], |options| {
        options.upstreams = UpstreamBudget::new(1, None);
    })
    .await;
    let body = chat("");
    let caller = gateway.caller();
    let refused = async {
        until("it is asked", || slow.count() == 1).await;
        let response = gateway.caller().chat(&chat("")).await;
        go.notify_waiters();
        response
    };
    let (first, refused) = tokio::join!(caller.chat(&body), refused);
    assert_eq!(first.status, 200);
    assert_eq!(
        (refused.status.as_u16(), &*error_code(&refused.body)),
        (503, "overloaded")
    );
    assert_eq!(refused.header("retry-after"), "1");
    let upstreams = gateway.gateway.upstreams();
    assert_eq!((upstreams.open(), upstreams.refused()), (1, 1));
    let calls = gateway.ledger.wait(2).await;
    assert_eq!(calls[0].1.cost.nanos(), 0, "nothing was sent");
    // Idle ones are not searched for again right after none was found.
    tokio::time::sleep(Duration::from_millis(100)).await;
    // The connection that is kept makes room for one to another provider.
    assert_eq!(gateway.relay.idle_connections(), 1);
    let other = MockUpstream::new(|_| json(200, &chat_response(1, 1))).await;
    let other = [provider_at("other", other.address)];
    gateway.gateway.set_providers(&other, true).unwrap();
    assert_eq!(gateway.caller().chat(&chat("")).await.status, 200);
    assert_eq!((upstreams.open(), upstreams.refused()), (1, 1));
    assert!(slow.wait_for_open(0).await);
}

#[tokio::test]
async fn what_was_sent_in_vain_is_paid_for_and_a_timeout_is_not_repeated() {
    let silent = MockUpstream::new(|_| vec![Action::AwaitClose]).await;
    let good = MockUpstream::new(|_| json(200, &chat_response(1, 1))).await;
    let providers = [
        with_short_timeouts(provider_at("silent", silent.address)),
        provider_at("good", good.address),
    ];
    let gateway = TestGateway::new(&providers).await;
    let response = gateway.caller().chat(&chat("")).await;
    assert_eq!(
        (
            response.status.as_u16(),
            response.header("x-estrade-attempts")
        ),
        (200, "2")
    );
    assert_eq!(silent.requests().len(), 1);
    let call = gateway.ledger.only().await;
    let prompt = 1 + chat("").len().div_ceil(4) as u64;
    assert_eq!(
        (call.tokens.prompt, call.tokens.completion),
        (prompt, 1),
        "both"
    );
    assert_eq!(
        call.cost.nanos(),
        i64::try_from(prompt).unwrap() * 1000 + 2000
    );
    assert!(call.estimated && !call.partial);
    assert!(call.cost <= gateway.ledger.max_cost(), "it was reserved");
}

#[tokio::test]
async fn an_early_refusal_of_a_large_body_is_heard() {
    let socket = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = socket.local_addr().unwrap();
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn(async move {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let (mut stream, _) = socket.accept().await.unwrap();
        let mut some = [0; 1000];
        stream.read_exact(&mut some).await.unwrap();
        let refusal = b"HTTP/1.1 413 Large\r\ncontent-length: 3\r\n\r\nbig";
        stream.write_all(refusal).await.unwrap();
        // Reads no further, and stays.
        std::future::pending::<()>().await;
    });
    let gateway = TestGateway::new(&[provider_at("acme", address)]).await;
    let large = chat(&format!(r#","x":"{}""#, "x".repeat(20_000_000)));
    let response = gateway.caller().chat(&large).await;
    assert_eq!((response.status.as_u16(), response.text()), (413, "big"));
    assert_eq!(gateway.relay.idle_connections(), 0);
}

#[tokio::test]
async fn providers_are_asked_over_tls_when_they_are_trusted() {
    use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()));
    let provider = std::sync::Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .unwrap();
    let acceptor = tokio_rustls::TlsAcceptor::from(std::sync::Arc::new(config));
    let socket = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = socket.local_addr().unwrap().port();
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn(async move {
        while let Ok((stream, _)) = socket.accept().await {
            let Ok(mut stream) = acceptor.accept(stream).await else {
                continue;
            };
            let mut some = [0; 4096];
            for _ in 0..2 {
                let _ = stream.read(&mut some).await;
                let _ = stream
                    .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}")
                    .await;
            }
        }
    });
    let mut acme = provider_at("acme", "127.0.0.1:1".parse().unwrap());
    acme.base_url = format!("https://localhost:{port}/v1");
    acme.retries = 0;
    let gateway = TestGateway::new(&[acme.clone()]).await;
    assert_eq!(
        gateway.caller().chat(&chat("")).await.status,
        502,
        "nobody vouches for it"
    );
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("ca.pem");
    std::fs::write(&path, made.cert.pem()).unwrap();
    acme.ca_file = Some(path.clone());
    gateway
        .gateway
        .set_providers(&[acme.clone()], true)
        .unwrap();
    for _ in 0..2 {
        assert_eq!(gateway.caller().chat(&chat("")).await.status, 200);
    }
    assert_eq!(gateway.relay.idle_connections(), 1);
    std::fs::write(&path, "nothing").unwrap();
    let refused = gateway.gateway.set_providers(&[acme], true).unwrap_err();
    assert!(refused.to_string().contains("ca_file"), "{refused}");
}
