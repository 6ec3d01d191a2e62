//! Clients and upstreams that mean no good: a clear response, bounded memory, no secret.

use super::{
    Backend, InferenceClient, InferenceFixture, SECRET, chat, chat_response, header, resident,
    status, times,
};
use crate::support::Server;
use estrade_mock_upstream::{
    Action, MockUpstream, ReceivedRequest, chunk, event, json, send, stream_head,
};
use estrade_testkit::{eventually, eventually_or};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::JoinSet;

const MIB: u64 = 1 << 20;
const STREAM: &str = r#","stream":true"#;

/// An upstream whose response the `user` field chooses; otherwise a good one.
async fn upstream(
    script: impl Fn(&str) -> Option<Vec<Action>> + Send + Sync + 'static,
) -> MockUpstream {
    let wish = |asked: &ReceivedRequest| {
        let (_, wish) = asked.body.split_once(r#""user":""#)?;
        Some(wish.split_once('"')?.0.to_owned())
    };
    MockUpstream::with_script(move |_, asked| {
        let acts = wish(asked).and_then(|wish| script(&wish));
        acts.unwrap_or_else(|| json(200, &chat_response(1)))
    })
    .await
}

fn asking(wish: &str, more: &str) -> String {
    chat(&format!(r#","user":"{wish}"{more}"#))
}

/// Demands that nothing of it is left: it serves others, and its memory is what it was.
async fn assert_well(server: &Server, client: &InferenceClient, before: u64, spare: u64) {
    let response = client.call(&chat("")).await;
    assert_eq!(status(&response), 200, "{response}");
    let after = resident(server);
    assert!(after < before + spare, "{before} before, {after} after");
}

/// Demands that only connections are left which wait for the next call, one per serving thread, once what is
/// read on for clients that left has ended.
async fn assert_closed(upstream: &MockUpstream) {
    let threads = std::thread::available_parallelism().unwrap().get();
    eventually_or(
        || format!("connections are closed; {} are left", upstream.open()),
        || async { upstream.open() <= threads },
    )
    .await;
}

/// The most memory that a server takes while something goes on.
async fn peak<T>(server: &Server, work: impl Future<Output = T>) -> (T, u64) {
    let mut work = std::pin::pin!(work);
    let mut most = resident(server);
    loop {
        tokio::select! {
            done = &mut work => return (done, most.max(resident(server))),
            () = tokio::time::sleep(Duration::from_millis(5)) => most = most.max(resident(server)),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bodies_beyond_the_limit_are_refused_without_being_kept() {
    let upstream = upstream(|_| None).await;
    let fixture = InferenceFixture::new(Backend::Sqlite, &upstream, "").await;
    let server = fixture.start();
    let client = InferenceClient::new(&server, "large", serde_json::json!({})).await;
    assert_eq!(status(&client.call(&chat("")).await), 200);
    let before = resident(&server);
    let hundred = 100 * MIB;
    let flood = async || {
        let mut clients = JoinSet::new();
        for number in 0..8 {
            let client = client.clone();
            clients.spawn(async move {
                let chunked = number % 2 == 0;
                let head = if chunked {
                    client.head("transfer-encoding: chunked\r\n")
                } else {
                    client.head(&format!("content-length: {hundred}\r\n"))
                };
                let mut stream = client.connect().await;
                stream.write_all(head.as_bytes()).await.unwrap();
                let (mut read, mut write) = stream.into_split();
                let piece = vec![b'x'; 1 << 16];
                let sending = async {
                    for _ in 0..hundred / piece.len() as u64 {
                        if chunked {
                            write.write_all(b"10000\r\n").await?;
                        }
                        write.write_all(&piece).await?;
                        if chunked {
                            write.write_all(b"\r\n").await?;
                        }
                    }
                    std::io::Result::Ok(())
                };
                let mut response = Vec::new();
                let reading = read.read_to_end(&mut response);
                let (_, _) = tokio::join!(sending, reading);
                String::from_utf8(response).unwrap()
            });
        }
        clients.join_all().await
    };
    for _ in 0..3 {
        let (responses, most) = peak(&server, flood()).await;
        for response in responses {
            assert_eq!(status(&response), 413, "{response}");
            assert!(response.contains("body_too_large"), "{response}");
        }
        // Four bodies of unknown length, each up to the limit of 32 MiB and what copying them takes.
        assert!(most < before + 4 * 3 * 32 * MIB, "{before} grew to {most}");
        eprintln!(
            "{before} before, {most} at most, {} then",
            resident(&server)
        );
    }
    assert_eq!(upstream.count(), 1);
    // What was taken is given back, once somebody calls again.
    let began = Instant::now();
    while resident(&server) > before + 48 * MIB && began.elapsed() < Duration::from_mins(1) {
        assert_eq!(status(&client.call(&chat("")).await), 200);
    }
    eprintln!("{} after {:?}", resident(&server), began.elapsed());
    assert_well(&server, &client, before, 48 * MIB).await;
    fixture.end(server).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_that_make_no_sense_are_told_so() {
    let upstream = upstream(|_| None).await;
    let fixture = InferenceFixture::new(Backend::Sqlite, &upstream, "").await;
    let server = fixture.start();
    let client = InferenceClient::new(&server, "strange", serde_json::json!({})).await;
    let before = resident(&server);
    let deep = |open: &str, close: &str| {
        let nested = format!("{}{}", open.repeat(10_000), close.repeat(10_000));
        chat(&format!(r#","x":{nested}"#))
    };
    for body in [
        deep("[", "]"),
        deep(r#"{"a":"#, "}").replace(":}", ":1}"),
        "[".repeat(100_000),
        "{".repeat(100_000),
        chat("")[..40].to_owned(),
        String::new(),
        "null".to_owned(),
        "\u{0}".to_owned(),
        r#"{"model":7}"#.to_owned(),
        r#"{"model":"a","model":"b"}"#.to_owned(),
        chat(r#","max_tokens":-1"#),
        chat(r#","n":1e400"#),
    ] {
        let response = client.call(&body).await;
        assert_eq!(
            status(&response),
            400,
            "{}: {response}",
            &body[..body.len().min(60)]
        );
        assert!(response.contains(r#"{"error":{"message":""#), "{response}");
    }
    assert_eq!(upstream.count(), 0);

    // As many headers as fit go through, more are refused, and neither costs much.
    let padding = |count: usize, size: usize| {
        let lines = (0..count).map(|number| format!("x-pad-{number}: {}\r\n", "y".repeat(size)));
        lines.collect::<Vec<_>>().concat()
    };
    let body = chat("");
    let length = format!("content-length: {}\r\n", body.len());
    for (count, size, expected) in [
        (80, 100, 200),
        (20, 1000, 200),
        (200, 10, 431),
        (8, 100_000, 431),
    ] {
        let head = client.head(&format!("{length}{}", padding(count, size)));
        let response = client.exchange(format!("{head}{body}")).await;
        assert_eq!(status(&response), expected, "{count} of {size}: {response}");
    }
    let sent = upstream.requests();
    assert!(sent.iter().all(|asked| !asked.head.contains("x-pad")));
    assert_well(&server, &client, before, 24 * MIB).await;
    fixture.end(server).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_callers_hinder_nobody_and_are_given_up() {
    let upstream = upstream(|_| {
        Some(vec![
            stream_head(),
            Action::Flood(event_bytes(16 * 1024), 10_000),
            Action::AwaitClose,
        ])
    })
    .await;
    let fixture = InferenceFixture::new(Backend::Sqlite, &upstream, "").await;
    let server = fixture.start();
    let client = InferenceClient::new(&server, "slow", serde_json::json!({})).await;
    assert_eq!(status(&client.call(&chat("")).await), 200);
    let before = resident(&server);

    // Heads and bodies that come byte by byte, or not at all.
    let mut slow = JoinSet::new();
    for number in 0..200 {
        let client = client.clone();
        slow.spawn(async move {
            let head = client.head("content-length: 100000\r\n");
            let start = if number % 2 == 0 { 10 } else { head.len() };
            let stream = client.connect().await;
            let (mut read, mut write) = stream.into_split();
            write.write_all(&head.as_bytes()[..start]).await.unwrap();
            let trickle = async {
                // A few say nothing more at all.
                while number >= 4 && write.write_all(b"x").await.is_ok() {
                    tokio::time::sleep(Duration::from_millis(400)).await;
                }
                std::future::pending::<()>().await;
            };
            let (began, mut response) = (Instant::now(), Vec::new());
            tokio::select! {
                _ = read.read_to_end(&mut response) => {}
                () = trickle => {}
            }
            (began.elapsed(), String::from_utf8(response).unwrap())
        });
    }
    // Clients that ask for a flood and read nothing of it.
    let mut deaf = Vec::new();
    for _ in 0..20 {
        let mut stream = client.connect().await;
        let request = client.request(&asking("flood", STREAM));
        stream.write_all(request.as_bytes()).await.unwrap();
        deaf.push(stream);
    }
    // The floods begin at once, and go on as far as the server reads them.
    eventually("the floods have begun", || async { upstream.open() >= 20 }).await;
    let mut took = Vec::new();
    for _ in 0..50 {
        let began = Instant::now();
        let response = client.call(&chat("")).await;
        assert_eq!(status(&response), 200, "{response}");
        took.push(began.elapsed());
    }
    // Not each of them: the machine may stand still for a moment, and that is nobody's fault.
    took.sort_unstable();
    assert!(took[took.len() / 2] < Duration::from_secs(1), "{took:?}");
    let during = resident(&server);
    // A client that does not read stops its upstream: some buffers each, not what was sent.
    assert!(during < before + 40 * MIB, "{before} grew to {during}");
    assert!(upstream.open() >= 20, "{}", upstream.open());
    drop(deaf);
    assert_closed(&upstream).await;
    let mut told = 0;
    while let Some(ended) = slow.join_next().await {
        let (took, response) = ended.unwrap();
        assert!(took < Duration::from_secs(30), "{took:?}");
        told += usize::from(status(&response) == 408);
    }
    // Those whose head was there are told why.
    assert_eq!(told, 100);
    assert_well(&server, &client, before, 32 * MIB).await;
    fixture.end(server).await;
}

fn event_bytes(size: usize) -> Vec<u8> {
    match event(&"x".repeat(size)) {
        Action::Send(bytes) => bytes,
        other => panic!("{other:?}"),
    }
}

/// What an upstream may do wrong before its response begins.
fn bad_response(wish: &str) -> Option<Vec<Action>> {
    let close = |text: &str| vec![send(text), Action::Close];
    Some(match wish {
        "garbage" => close("\u{1}\u{2}\u{3} this is not HTTP at all\r\n\r\n"),
        "nothing" => vec![Action::Close],
        "never" => vec![Action::AwaitClose],
        "half-head" => close("HTTP/1.1 200 OK\r\ncontent-type: appl"),
        "slow-head" => {
            let head = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}";
            let byte = |c: char| [send(c), Action::Sleep(Duration::from_millis(100))];
            head.chars().flat_map(byte).collect()
        }
        "endless-head" => {
            vec![
                send("HTTP/1.1 200 OK\r\n"),
                Action::Flood(b"x-more: and more\r\n".repeat(1000), 1000),
            ]
        }
        "two-lengths" => {
            close("HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\n{}}")
        }
        "minus" => close("HTTP/1.1 200 OK\r\ncontent-length: -2\r\n\r\n{}"),
        "switch" => close("HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\n\r\n"),
        "elsewhere" => close(
            "HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n",
        ),
        "long-complaint" => {
            let length = 10 * 1024 * MIB;
            vec![
                send(format!(
                    "HTTP/1.1 400 Bad Request\r\ncontent-length: {length}\r\n\r\n"
                )),
                Action::Flood(vec![b' '; 1 << 16], length >> 16),
            ]
        }
        "betrays" | "betrays-500" | "betrays-401" => {
            let status = match wish {
                "betrays" => 400,
                "betrays-500" => 500,
                _ => 401,
            };
            json(
                status,
                &format!(r#"{{"error":{{"message":"bad key {SECRET}"}}}}"#),
            )
        }
        "betrays-in-head" => close(&format!(
            "HTTP/1.1 200 OK\r\nx-request-id: {SECRET}\r\nx-echo: Bearer {SECRET}\r\ncontent-type: application/json; k={SECRET}\r\ncontent-length: 2\r\n\r\n{{}}"
        )),
        "betrays-in-response" => json(
            200,
            &format!(r#"{{"choices":[{{"message":{{"content":"{SECRET}"}}}}]}}"#),
        ),
        _ => return None,
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upstream_with_a_bad_response_is_reported() {
    let upstream = upstream(bad_response).await;
    let fixture = InferenceFixture::new(Backend::Sqlite, &upstream, "").await;
    let server = fixture.start();
    let client = InferenceClient::new(&server, "badly", serde_json::json!({})).await;
    assert_eq!(status(&client.call(&chat("")).await), 200);
    let before = resident(&server);
    for (wish, expected, code) in [
        ("garbage", 502, "upstream_error"),
        ("nothing", 502, "upstream_error"),
        ("never", 504, "upstream_timeout"),
        ("half-head", 502, "upstream_error"),
        ("slow-head", 504, "upstream_timeout"),
        ("endless-head", 502, "upstream_error"),
        ("two-lengths", 502, "upstream_error"),
        ("minus", 502, "upstream_error"),
        ("switch", 502, "upstream_error"),
        ("elsewhere", 502, "upstream_error"),
        ("long-complaint", 502, "upstream_error"),
        ("betrays", 502, "upstream_error"),
        ("betrays-500", 502, "upstream_error"),
        ("betrays-401", 502, "upstream_auth"),
    ] {
        for more in ["", STREAM] {
            let body = asking(wish, more);
            let (response, most) = peak(&server, client.call(&body)).await;
            assert_eq!(status(&response), expected, "{wish}: {response}");
            assert!(
                response.contains(&format!(r#""code":"{code}""#)),
                "{wish}: {response}"
            );
            assert!(!response.contains(SECRET), "{wish}: {response}");
            assert_eq!(header(&response, "x-estrade-provider"), "acme", "{wish}");
            assert!(most < before + 16 * MIB, "{wish}: {before} grew to {most}");
        }
    }
    for wish in ["betrays-in-head", "betrays-in-response"] {
        let response = client.call(&asking(wish, "")).await;
        assert!(!response.contains(SECRET), "{wish}: {response}");
    }
    assert_closed(&upstream).await;
    assert_well(&server, &client, before, 16 * MIB).await;
    fixture.end(server).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upstream_that_fails_in_its_response_is_reported() {
    let upstream = upstream(|wish| {
        let mut acts = vec![
            stream_head(),
            event("12345678"),
            Action::Sleep(Duration::from_millis(5)),
        ];
        acts.extend(match wish {
            "half" => vec![send("40\r\ndata: {\"half"), Action::Close],
            "no-chunk" => vec![send("zz\r\n")],
            "huge-chunk" => vec![send("ffffffffffffffff\r\nx")],
            "binary" => vec![chunk("\u{0}\u{1}\u{7f}"), Action::Close],
            "silence" => vec![Action::AwaitClose],
            _ => return None,
        });
        Some(acts)
    })
    .await;
    let fixture = InferenceFixture::new(Backend::Sqlite, &upstream, "").await;
    let server = fixture.start();
    let client = InferenceClient::new(&server, "wrong", serde_json::json!({})).await;
    for (wish, code) in [
        ("half", "upstream_error"),
        ("no-chunk", "upstream_error"),
        ("huge-chunk", "upstream_"),
        ("binary", "upstream_error"),
        ("silence", "upstream_timeout"),
    ] {
        let response = client.call(&asking(wish, STREAM)).await;
        assert_eq!(status(&response), 200, "{wish}: {response}");
        assert!(response.contains("12345678"), "{wish}: {response}");
        assert!(
            response.contains(&format!(r#""code":"{code}"#)),
            "{wish}: {response}"
        );
        assert!(response.ends_with("0\r\n\r\n"), "{wish}: {response}");
    }
    assert_closed(&upstream).await;
    let rows = client.logs(&server).await;
    assert!(
        rows.iter()
            .all(|row| row["partial"] == true && row["status"] == 200),
        "{rows:?}"
    );
    fixture.end(server).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_response_of_ten_gigabytes_passes_through_little_memory() {
    let length = 10 * 1024 * MIB;
    let upstream = upstream(move |wish| {
        let json_head = format!(
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n"
        );
        Some(match wish {
            "events" => vec![
                stream_head(),
                Action::Flood(event_bytes(60 * 1024), length >> 16),
            ],
            // One event that never ends.
            "line" => {
                let piece = format!("10000\r\n{}\r\n", "x".repeat(1 << 16));
                vec![
                    stream_head(),
                    send("6\r\ndata: \r\n"),
                    Action::Flood(piece.into_bytes(), length >> 16),
                ]
            }
            "json" => vec![
                send(json_head),
                send("{\"a\":\""),
                Action::Flood(vec![b'x'; 1 << 16], length >> 16),
            ],
            "nested" => vec![
                send(json_head),
                Action::Flood(vec![b'['; 1 << 16], length >> 16),
            ],
            _ => return None,
        })
    })
    .await;
    let fixture = InferenceFixture::new(Backend::Sqlite, &upstream, "").await;
    let server = fixture.start();
    let client = InferenceClient::new(&server, "flood", serde_json::json!({})).await;
    assert_eq!(status(&client.call(&chat("")).await), 200);
    let before = resident(&server);
    // All of it, to where it is cut, only in the long run.
    let enough = if times(10) == 10 { u64::MAX } else { 48 * MIB };
    for wish in ["events", "line", "json", "nested"] {
        let more = if matches!(wish, "events" | "line") {
            STREAM
        } else {
            ""
        };
        let reading = async {
            let mut stream = client.connect().await;
            let request = client.request(&asking(wish, more));
            stream.write_all(request.as_bytes()).await.unwrap();
            let (mut piece, mut passed, mut tail) = (vec![0; 1 << 16], 0, Vec::new());
            while passed < enough {
                let count = stream.read(&mut piece).await.unwrap_or(0);
                if count == 0 {
                    break;
                }
                passed += count as u64;
                tail.extend_from_slice(&piece[..count]);
                tail.drain(..tail.len().saturating_sub(400));
            }
            (passed, String::from_utf8_lossy(&tail).into_owned())
        };
        let began = Instant::now();
        let ((passed, tail), most) = peak(&server, reading).await;
        eprintln!(
            "{wish}: {} MiB in {:?}, {} KiB more memory",
            passed / MIB,
            began.elapsed(),
            (most - before.min(most)) / 1024
        );
        assert!(most < before + 24 * MIB, "{wish}: {before} grew to {most}");
        if enough == u64::MAX {
            assert!(passed < 1100 * MIB, "{wish}: {passed}");
            assert!(
                more.is_empty() || tail.contains("answer_too_large"),
                "{wish}: {tail}"
            );
        } else {
            assert!(passed >= enough, "{wish}: only {passed}: {tail}");
        }
    }
    assert_closed(&upstream).await;
    assert_well(&server, &client, before, 24 * MIB).await;
    // What its client has left is read on for its usage, and is a row after that.
    eventually("all calls are rows", || async {
        client.logs(&server).await.len() >= 6
    })
    .await;
    let rows = client.logs(&server).await;
    assert_eq!(rows.len(), 6, "{rows:?}");
    assert_eq!(
        rows.iter().filter(|row| row["partial"] == true).count(),
        4,
        "{rows:?}"
    );
    fixture.end(server).await;
}
