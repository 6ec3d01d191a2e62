//! What visitors see when an instance does not do its part.

use crate::backend::{always, nowhere, ok};
use crate::stage::Stage;
use crate::visitor::{Modern, Page};
use estrade_mock_upstream::{Action, send};
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use tokio::net::{TcpSocket, TcpStream};

/// Asks on both paths; both shall get the same.
async fn ask_both(stage: &Stage, status: u16) -> Page {
    let get = stage.visitor().await.get("/").await;
    let post = stage.visitor().await.request("POST", "/", &[], b"x").await;
    let post = post.unwrap();
    assert_eq!((get.status, post.status), (status, status));
    assert_eq!(get.body, post.body);
    assert!(get.text().contains(&status.to_string()), "{}", get.text());
    assert_eq!(get.header("cache-control"), Some("no-store"));
    get
}

#[tokio::test]
async fn without_instances_there_is_a_page_that_says_when_to_come_back() {
    let stage = Stage::start().await;
    let page = stage.visitor().await.get("/").await;
    assert_eq!((page.status, page.header("retry-after")), (404, None));
    let release = stage.serve(&[]).await;
    assert_eq!(ask_both(&stage, 503).await.header("retry-after"), Some("5"));
    let app = always(vec![ok("x")]).await;
    stage.publish(release, &[app.address]);
    assert_eq!(stage.visitor().await.get("/").await.status, 200);
    stage.scale(0).await;
    assert_eq!(
        ask_both(&stage, 503).await.header("retry-after"),
        Some("60")
    );
    stage.scale(1).await;
    assert_eq!(stage.visitor().await.get("/").await.status, 200);
    stage.publish(release, &[]);
    assert_eq!(ask_both(&stage, 503).await.header("retry-after"), Some("5"));
    stage.finish().await;
}

#[tokio::test]
async fn nobody_there_and_nonsense_are_a_bad_gateway() {
    let stage = Stage::start().await;
    let release = stage.serve(&[nowhere().await, nowhere().await]).await;
    ask_both(&stage, 502).await;
    let long = "x".repeat(70_000);
    for garbage in [
        "SSH-2.0-OpenSSH_9.2p1\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nxx",
        "HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
        "HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\n\r\n",
        "HTTP/1.1 200 OK\r\nx: half a he",
        &*format!("HTTP/1.1 200 OK\r\nx: {long}\r\n\r\n"),
    ] {
        let app = always(vec![send(garbage), Action::Close]).await;
        stage.publish(release, &[app.address]);
        ask_both(&stage, 502).await;
    }
    stage.finish().await;
}

#[tokio::test]
async fn who_takes_too_long_is_not_waited_for() {
    let stage = Stage::start_with(|setup| {
        setup.edge.proxy.first_byte_timeout = Duration::from_millis(300);
    })
    .await;
    let app = always(vec![Action::AwaitClose]).await;
    stage.serve(&[app.address]).await;
    let began = Instant::now();
    ask_both(&stage, 504).await;
    let took = began.elapsed();
    // The deadline is the behaviour: by default each waits for a minute.
    let due = Duration::from_millis(600)..Duration::from_secs(10);
    assert!(due.contains(&took), "{took:?}");
    assert!(app.wait_for_open(0).await);
    // Each was tried once: it may still be working on it.
    assert_eq!(app.count(), 2);
    stage.finish().await;
}

#[tokio::test]
async fn one_that_lets_nobody_in_is_given_up_and_then_avoided() {
    let connect_timeout = Duration::from_millis(300);
    let stage = Stage::start_with(|setup| {
        setup.edge.proxy.connect_timeout = connect_timeout;
    })
    .await;
    // A socket whose queue is full lets nobody in and says nothing.
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let silent = socket.listen(1).unwrap();
    let address: SocketAddr = silent.local_addr().unwrap();
    let mut waiting = Vec::new();
    let brief = Duration::from_millis(200);
    while let Ok(Ok(stream)) = tokio::time::timeout(brief, TcpStream::connect(address)).await {
        waiting.push(stream);
        assert!(waiting.len() < 100, "it lets everybody in");
    }
    let release = stage.serve(&[address]).await;
    ask_both(&stage, 502).await;
    let app = always(vec![ok("x")]).await;
    stage.publish(release, &[address, app.address]);
    let (mut waited, mut visitor) = (0, stage.visitor().await);
    for _ in 0..20 {
        let began = Instant::now();
        assert_eq!(visitor.get("/").await.status, 200);
        waited += u32::from(began.elapsed() >= connect_timeout);
    }
    // Every other one if it were not avoided; else one, and one more for each second of a busy machine.
    assert!(waited <= 5, "{waited} requests waited for it");
    stage.finish().await;
}

/// Bodies that break off: with a length, in chunks, and by silence.
fn broken() -> Vec<Vec<Action>> {
    let length = "HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n12345";
    let chunks = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\n12345\r\n";
    let garbage = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\n12345\r\nxyz\r\n";
    vec![
        vec![send(length), Action::Close],
        vec![send(chunks), Action::Close],
        vec![send(format!("{chunks}5\r\n123")), Action::Close],
        vec![send(garbage), Action::AwaitClose],
        vec![send(length), Action::AwaitClose],
        vec![send(chunks), Action::AwaitClose],
    ]
}

#[tokio::test]
async fn a_response_that_breaks_off_is_never_taken_for_a_whole_one() {
    let stage = Stage::start_with(|setup| {
        setup.edge.proxy.idle_timeout = Duration::from_millis(300);
    })
    .await;
    let release = stage.serve(&[]).await;
    for acts in broken() {
        let app = always(acts.clone()).await;
        stage.publish(release, &[app.address]);
        for method in ["GET", "POST"] {
            let mut visitor = stage.visitor().await;
            let page = visitor.request(method, "/", &[], b"").await;
            assert!(page.is_err(), "{method} {acts:?} {page:?}");
        }
        let modern = Modern::new(stage.address);
        // The end may come so soon that there is not even a head.
        if let Ok(response) = modern.request(reqwest::Method::GET, "/").send().await {
            let body = response.bytes().await;
            assert!(body.is_err(), "{acts:?} {body:?}");
        }
        assert!(app.wait_for_open(0).await);
    }
    // Without a length and without chunks the end of the connection is the end of the body.
    let app = always(vec![send("HTTP/1.0 200 OK\r\n\r\n12345"), Action::Close]).await;
    stage.publish(release, &[app.address]);
    for method in ["GET", "POST"] {
        let page = stage.visitor().await.request(method, "/", &[], b"").await;
        assert_eq!(page.unwrap().text(), "12345");
    }
    stage.finish().await;
}
