//! SIGTERM: what is in flight is finished, what never ends is ended.

use crate::support::{Home, Reaped, Server, text};
use reqwest::Method;
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// A connection to the platform API, without a client that is too clever.
fn connect(server: &Server) -> TcpStream {
    let stream = TcpStream::connect(server.platform.strip_prefix("http://").unwrap()).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(10)))
        .unwrap();
    stream
}

/// An upload of which only the first half was sent.
struct HalfSent {
    stream: TcpStream,
    rest: Vec<u8>,
}

impl HalfSent {
    fn begin(server: &Server, project: &str) -> Self {
        let body = json!({"files": [{"path": "index.html", "data": "x".repeat(10_000)}]});
        let body = body.to_string().into_bytes();
        let head = format!(
            "POST /v2/projects/{project}/releases HTTP/1.1\r\nHost: localhost\r\n\
             Authorization: Bearer {}\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\n\r\n",
            server.token,
            body.len()
        );
        let mut stream = connect(server);
        let (half, rest) = body.split_at(body.len() / 2);
        stream.write_all(head.as_bytes()).unwrap();
        stream.write_all(half).unwrap();
        std::thread::sleep(Duration::from_millis(200));
        Self {
            stream,
            rest: rest.to_vec(),
        }
    }

    fn finish(mut self) -> String {
        self.stream.write_all(&self.rest).unwrap();
        let mut response = String::new();
        self.stream.read_to_string(&mut response).unwrap();
        response
    }
}

/// Waits for the end; its exit code, and how long it took.
fn wait(process: &mut Reaped) -> (Option<i32>, Duration) {
    let started = Instant::now();
    let code = process.wait().code();
    (code, started.elapsed())
}

#[tokio::test]
async fn an_upload_in_flight_is_finished() {
    let home = Home::new();
    let mut server = Server::start(&home);
    server.create_project("slow").await;
    let upload = HalfSent::begin(&server, "slow");
    server.signal("TERM");
    std::thread::sleep(Duration::from_millis(500));
    let address = server.platform.strip_prefix("http://").unwrap();
    assert!(TcpStream::connect(address).is_err(), "it still accepts");
    assert!(server.process.0.try_wait().unwrap().is_none(), "it ended");

    let response = upload.finish();
    assert!(response.starts_with("HTTP/1.1 201 "), "{response}");
    let body: Value = serde_json::from_str(response.split_once("\r\n\r\n").unwrap().1).unwrap();
    let (code, took) = wait(&mut server.process);
    assert_eq!(code, Some(0), "{}", server.log());
    assert!(took < Duration::from_secs(15), "{took:?}");

    let server = Server::start(&home);
    let path = format!(
        "/v1/releases/{}?wait=READY&timeout=10",
        text(&body["releaseID"])
    );
    let release = server.platform(Method::GET, &path, Value::Null).await;
    assert_eq!(release.assert(200).json()["release"]["state"], "READY");
    server.stop();
}

/// Makes a release that nobody works on, so that one can wait for it.
async fn create_stuck_release(home: &Home, server: &Server) -> String {
    server.create_project("stuck").await;
    let body = json!({"files": [{"path": "index.html", "data": "x"}]});
    let path = "/v2/projects/stuck/releases";
    let made = server.platform(Method::POST, path, body).await;
    let id = text(&made.assert(201).json()["releaseID"]);
    let path = format!("/v1/releases/{id}?wait=READY&timeout=10");
    let ready = server.platform(Method::GET, &path, Value::Null).await;
    assert_eq!(ready.json()["release"]["state"], "READY");
    let database = rusqlite::Connection::open(home.data().join("estrade.db")).unwrap();
    database.busy_timeout(Duration::from_secs(5)).unwrap();
    let far = i64::MAX / 2;
    let changed = database
        .execute(
            "UPDATE releases SET state = 'BUILDING', finished_at = NULL, lease_owner = 'test',
             lease_until = ?1, deadline = ?1 WHERE id = ?2",
            (far, &id),
        )
        .unwrap();
    assert_eq!(changed, 1);
    id
}

#[tokio::test]
async fn streams_and_long_polls_do_not_hold_up_the_end() {
    let home = Home::new();
    let mut server = Server::start(&home);
    let id = create_stuck_release(&home, &server).await;
    let get = |path: String| {
        let url = format!("{}{path}", server.platform);
        server.client.get(url).bearer_auth(&server.token).send()
    };
    let mut events = get("/v1/projects/stuck/events/stream".into())
        .await
        .unwrap();
    assert_eq!(events.status().as_u16(), 200);
    let first = events.chunk().await.unwrap().unwrap();
    assert!(
        first.starts_with(b"id:") || first.starts_with(b"event:"),
        "{first:?}"
    );
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn(get(format!("/v1/releases/{id}?wait=READY&timeout=60")));
    let idle = connect(&server);
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(
        tasks.try_join_next().is_none(),
        "the long poll is not waiting"
    );

    server.signal("TERM");
    let (code, took) = wait(&mut server.process);
    eprintln!("with a stream, a long poll and an idle connection it ended after {took:?}");
    assert_eq!(code, Some(0), "{}", server.log());
    assert!(took < Duration::from_secs(15), "{took:?}");
    // The stream ends as streams end, not with a broken connection.
    while let Some(_chunk) = events.chunk().await.unwrap() {}
    let poll = tasks.join_next().await.unwrap().unwrap().unwrap();
    let status = poll.status().as_u16();
    let body = poll.text().await.unwrap();
    assert_eq!(status, 200, "{body}");
    assert!(body.contains("BUILDING"), "{body}");
    drop(idle);
}

#[tokio::test]
async fn a_second_signal_ends_it_at_once() {
    let home = Home::new();
    let mut server = Server::start(&home);
    server.create_project("slow").await;
    let _upload = HalfSent::begin(&server, "slow");
    server.signal("TERM");
    std::thread::sleep(Duration::from_millis(300));
    assert!(server.process.0.try_wait().unwrap().is_none(), "it ended");
    server.signal("TERM");
    let (code, took) = wait(&mut server.process);
    assert_eq!(code, Some(1), "{}", server.log());
    assert!(took < Duration::from_secs(10), "{took:?}");
    Server::start(&home).stop();
}

/// Threads go on for a while after the second signal, as when they compress something large. Until the last one
/// has ended, nobody else may use the directory.
#[tokio::test]
async fn the_directory_is_locked_until_the_process_has_ended() {
    let home = Home::new();
    let mut server = Server::start(&home);
    server.create_project("large").await;
    // Text that is slow to compress.
    let mut random = 1_u64;
    let words: String = (0..8_000_000)
        .map(|_| {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            char::from(b"etaoin shrdlu\n"[(random >> 33) as usize % 14])
        })
        .collect();
    let body = json!({"files": [{"path": "index.html", "data": words}]});
    let path = "/v2/projects/large/releases";
    let made = server.platform(Method::POST, path, body).await;
    let id = text(&made.assert(201).json()["releaseID"]);
    let path = format!("/v1/releases/{id}?wait=READY&timeout=50");
    let ready = server.platform(Method::GET, &path, Value::Null).await;
    assert_eq!(ready.json()["release"]["state"], "READY");
    // Brotli follows in the background, after a second.
    std::thread::sleep(Duration::from_millis(1500));
    server.signal("TERM");
    std::thread::sleep(Duration::from_millis(50));
    server.signal("TERM");
    let lock = std::fs::File::open(home.data().join("server.lock")).unwrap();
    let began = Instant::now();
    while lock.try_lock().is_err() {
        assert!(began.elapsed() < Duration::from_mins(1), "it does not end");
        std::thread::sleep(Duration::from_millis(1));
    }
    // A process that is about to end has a moment.
    std::thread::sleep(Duration::from_millis(100));
    let ended = server.process.0.try_wait().unwrap();
    assert!(ended.is_some(), "the lock is free and the process runs");
}

#[test]
fn ctrl_c_ends_it_well_and_leaves_one_whole_file() {
    let home = Home::new();
    let mut server = Server::start(&home);
    server.signal("INT");
    assert_eq!(wait(&mut server.process).0, Some(0));
    // A copy of that file is a backup.
    let log = std::fs::metadata(home.data().join("estrade.db-wal"));
    assert_eq!(log.map_or(0, |log| log.len()), 0);
}
