//! Accepting, waiting, refusing, draining.

use crate::support::{Server, get_request};
use estrade_listener::ListenerOptions;
use http_body_util::{BodyExt, Empty};
use hyper_util::rt::{TokioExecutor, TokioIo};
use std::time::{Duration, Instant};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

fn impatient() -> ListenerOptions {
    ListenerOptions {
        header_timeout: Duration::from_millis(300),
        ..ListenerOptions::default()
    }
}

#[tokio::test]
async fn a_client_that_sends_nothing_or_half_a_head_is_dropped() {
    let server = Server::start_with(impatient()).await;
    for sent in ["", "GET /things/1 HTTP/1.1\r\nhost:", "PRI * HTTP/2.0"] {
        let started = Instant::now();
        let response = server.send(sent).await;
        assert!(!response.contains("200"), "{response}");
        let took = started.elapsed();
        assert!(
            // The deadline is the behaviour: not before it, and long before the default.
            took >= Duration::from_millis(250) && took < Duration::from_secs(5),
            "{took:?}"
        );
    }
}

#[tokio::test]
async fn a_connection_lives_on_between_requests() {
    let server = Server::start_with(impatient()).await;
    let mut client = server.connect().await;
    for _ in 0..2 {
        client
            .write("GET /things/1 HTTP/1.1\r\nhost: x\r\n\r\n")
            .await;
        client.read_until("\r\n\r\nthing").await;
        sleep(Duration::from_millis(500)).await;
    }
}

#[tokio::test]
async fn an_idle_connection_is_closed_after_a_while() {
    let options = ListenerOptions {
        idle_timeout: Duration::from_millis(300),
        ..ListenerOptions::default()
    };
    let server = Server::start_with(options).await;
    let mut client = server.connect().await;
    client
        .write("GET /things/1 HTTP/1.1\r\nhost: x\r\n\r\n")
        .await;
    assert!(client.read_to_end().await.ends_with("thing"));
}

#[tokio::test]
async fn beyond_the_cap_connections_wait_for_a_busy_one() {
    let options = ListenerOptions {
        max_connections: 1,
        ..ListenerOptions::default()
    };
    let server = Server::start_with(options).await;
    let mut first = server.connect().await;
    first.write("GET /slow HTTP/1.1\r\nhost: x\r\n\r\n").await;
    sleep(Duration::from_millis(50)).await;
    let mut second = server.connect_from("127.0.0.2").await;
    second.write(get_request("/things/1")).await;
    let response = second.read_to_end();
    tokio::pin!(response);
    assert!(
        timeout(Duration::from_millis(200), response.as_mut())
            .await
            .is_err()
    );
    // What it was asked is answered first; then it is idle, and makes room.
    first.read_until("slow but done").await;
    assert!(response.await.ends_with("thing"));
    assert_eq!(first.read_to_end().await, "");
}

#[tokio::test]
async fn the_longest_idle_connection_makes_room() {
    let options = ListenerOptions {
        max_connections: 2,
        max_connections_per_address: Some(2),
        ..ListenerOptions::default()
    };
    let server = Server::start_with(options).await;
    let request = "GET /things/1 HTTP/1.1\r\nhost: x\r\n\r\n";
    let mut old = server.connect().await;
    old.write(request).await;
    old.read_until("thing").await;
    sleep(Duration::from_millis(20)).await;
    let mut young = server.connect().await;
    young.write(request).await;
    young.read_until("thing").await;
    let mut newcomer = server.connect_from("127.0.0.2").await;
    newcomer.write(get_request("/things/1")).await;
    assert!(newcomer.read_to_end().await.ends_with("thing"));
    assert_eq!(old.read_to_end().await, "");
    young.write(request).await;
    young.read_until("thing").await;
}

#[tokio::test]
async fn an_idle_connection_that_does_not_close_is_cut_off() {
    // Two that hyper would wait for: half a head, and HTTP/2 without a response to its PING.
    let settings = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
    for sent in ["GET /things/1 HTTP/1.1\r\nhost:", settings] {
        let options = ListenerOptions {
            max_connections: 1,
            ..ListenerOptions::default()
        };
        let server = Server::start_with(options).await;
        let mut stuck = server.connect().await;
        stuck.write(sent).await;
        sleep(Duration::from_millis(100)).await;
        let started = Instant::now();
        let mut newcomer = server.connect_from("127.0.0.2").await;
        newcomer.write(get_request("/things/1")).await;
        assert!(newcomer.read_to_end().await.ends_with("thing"));
        let took = started.elapsed();
        let (least, most) = (Duration::from_millis(900), Duration::from_secs(5));
        assert!(took > least && took < most, "{sent:?}: {took:?}");
        stuck.read_to_end().await;
    }
}

#[tokio::test]
async fn one_address_has_a_share_of_the_connections() {
    let options = ListenerOptions {
        max_connections: 4,
        ..ListenerOptions::default()
    };
    let server = Server::start_with(options.clone()).await;
    let mut held = Vec::new();
    for _ in 0..2 {
        let mut client = server.connect().await;
        client.write("GET /slow HTTP/1.1\r\nhost: x\r\n").await;
        held.push(client);
    }
    sleep(Duration::from_millis(50)).await;
    assert_eq!(server.get("/things/1").await, "", "its share is taken");
    let mut other = server.connect_from("127.0.0.2").await;
    other.write(get_request("/things/1")).await;
    assert!(other.read_to_end().await.ends_with("thing"));
    drop(held);
    sleep(Duration::from_millis(50)).await;
    assert!(server.get("/things/1").await.ends_with("thing"));

    let trusting = ListenerOptions {
        trusted_proxies: std::iter::once("127.0.0.1".parse().unwrap()).collect(),
        ..options
    };
    let server = Server::start_with(trusting).await;
    let mut held = Vec::new();
    for _ in 0..3 {
        held.push(server.connect().await);
    }
    assert!(server.get("/things/1").await.ends_with("thing"));
}

#[tokio::test]
async fn an_idle_http2_connection_is_told_to_go_away() {
    let options = ListenerOptions {
        idle_timeout: Duration::from_millis(300),
        ..ListenerOptions::default()
    };
    let server = Server::start_with(options).await;
    let io = TokioIo::new(TcpStream::connect(server.address).await.unwrap());
    let (mut client, connection) = hyper::client::conn::http2::handshake(TokioExecutor::new(), io)
        .await
        .unwrap();
    let mut connection = tokio::spawn(connection);
    let request = |path: &str| {
        let uri = format!("http://{}{path}", server.address);
        let request = http::Request::builder().uri(uri);
        request.body(Empty::<bytes::Bytes>::new()).unwrap()
    };
    // A request that takes longer than the timeout is not idle.
    let response = client.send_request(request("/slow")).await.unwrap();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(body, "slow but done");
    assert!(
        timeout(Duration::from_millis(100), &mut connection)
            .await
            .is_err()
    );
    let ended = timeout(Duration::from_secs(5), connection).await;
    ended.expect("it is closed").unwrap().unwrap();
    assert!(client.send_request(request("/things/1")).await.is_err());
}

#[tokio::test]
async fn a_stop_finishes_what_is_in_flight_and_takes_nothing_new() {
    let server = Server::start().await;
    let mut idle = server.connect().await;
    idle.write("GET /things/1 HTTP/1.1\r\nhost: x\r\n\r\n")
        .await;
    idle.read_until("thing").await;
    let mut busy = server.connect().await;
    busy.write("GET /held HTTP/1.1\r\nhost: x\r\n\r\n").await;
    server.held.arrived.notified().await;

    server.shutdown.cancel();
    // Idle connections do not wait for the busy one.
    assert_eq!(idle.read_to_end().await, "");
    assert!(
        TcpStream::connect(server.address).await.is_err(),
        "the port is closed"
    );
    server.held.go.notify_one();
    let response = busy.read_to_end().await;
    assert!(response.ends_with("held but done"), "{response}");
    server.serving.await.unwrap();
}

#[tokio::test]
async fn a_stop_is_bounded() {
    let options = ListenerOptions {
        drain_timeout: Duration::from_millis(50),
        ..ListenerOptions::default()
    };
    let server = Server::start_with(options).await;
    let mut busy = server.connect().await;
    busy.write(get_request("/slow")).await;
    sleep(Duration::from_millis(100)).await;
    server.shutdown.cancel();
    assert_eq!(busy.read_to_end().await, "");
    timeout(Duration::from_secs(3), server.serving)
        .await
        .unwrap()
        .unwrap();
}

#[tokio::test]
async fn http2_works_without_asking_first_and_is_drained_too() {
    let server = Server::start().await;
    let io = TokioIo::new(TcpStream::connect(server.address).await.unwrap());
    let (mut client, connection) = hyper::client::conn::http2::handshake(TokioExecutor::new(), io)
        .await
        .unwrap();
    tokio::spawn(connection);
    let request = |path: &str| {
        let uri = format!("http://{}{path}", server.address);
        http::Request::builder()
            .uri(uri)
            .body(Empty::<bytes::Bytes>::new())
            .unwrap()
    };
    let response = client.send_request(request("/things/1/")).await.unwrap();
    assert_eq!(
        (response.status().as_u16(), response.version()),
        (200, http::Version::HTTP_2)
    );

    let slow = client.send_request(request("/slow"));
    let stop = async {
        sleep(Duration::from_millis(100)).await;
        server.shutdown.cancel();
    };
    let (response, ()) = tokio::join!(slow, stop);
    let body = response
        .unwrap()
        .into_body()
        .collect()
        .await
        .unwrap()
        .to_bytes();
    assert_eq!(body, "slow but done");
    server.serving.await.unwrap();
}

#[tokio::test]
async fn forwarded_headers_count_only_from_trusted_proxies() {
    let request =
        "GET /peer HTTP/1.1\r\nhost: x\r\nx-forwarded-for: 1.2.3.4\r\nconnection: close\r\n\r\n";
    let server = Server::start().await;
    assert!(server.send(request).await.ends_with("127.0.0.1"));
    let options = ListenerOptions {
        trusted_proxies: std::iter::once("127.0.0.0/8".parse().unwrap()).collect(),
        ..ListenerOptions::default()
    };
    let server = Server::start_with(options).await;
    assert!(server.send(request).await.ends_with("1.2.3.4"));
}

#[tokio::test]
async fn an_oversized_head_is_refused() {
    let server = Server::start().await;
    let long = format!(
        "GET /things/1 HTTP/1.1\r\nx-long: {}\r\n\r\n",
        "x".repeat(100_000)
    );
    assert!(server.send(long).await.starts_with("HTTP/1.1 431"));
    let many = format!("GET /things/1 HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(150));
    assert!(server.send(many).await.starts_with("HTTP/1.1 431"));
}
