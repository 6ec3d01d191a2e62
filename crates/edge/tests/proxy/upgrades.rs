//! Connections that become something else, as WebSocket does.

use crate::backend::{App, always, ok, whole};
use crate::stage::{HOST, Stage};
use crate::visitor::Visitor;
use estrade_fixtures::eventually;
use estrade_mock_upstream::{Action, send};
use http::{Request, Response, StatusCode};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_util::task::TaskTracker;

const LIMIT: Duration = Duration::from_secs(30);
const ASK: &[(&str, &str)] = &[
    ("Connection", "keep-alive, Upgrade"),
    ("Upgrade", "websocket"),
    ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="),
    ("Sec-WebSocket-Version", "13"),
];

/// Sends back what it gets, once it has said that it will.
pub(crate) async fn echo_tunnel() -> App {
    let tunnels = TaskTracker::new();
    App::start(move |request| {
        let tunnels = tunnels.clone();
        async move {
            let headers = request.headers();
            if headers.get("upgrade").is_none_or(|it| it != "websocket") {
                return Response::new(whole("plain"));
            }
            assert_eq!(headers.get("connection").unwrap(), "upgrade");
            assert!(headers.contains_key("sec-websocket-key"));
            tunnels.spawn(echo(request));
            let mut response = Response::new(whole(""));
            *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
            let headers = response.headers_mut();
            headers.insert("connection", "upgrade".parse().unwrap());
            headers.insert("upgrade", "websocket".parse().unwrap());
            headers.insert("sec-websocket-accept", "x".parse().unwrap());
            response
        }
    })
    .await
}

async fn echo(mut request: Request<Incoming>) {
    let upgraded = hyper::upgrade::on(&mut request).await.unwrap();
    let mut stream = TokioIo::new(upgraded);
    stream.write_all(b"hello ").await.unwrap();
    let (mut from, mut to) = tokio::io::split(stream);
    drop(tokio::io::copy(&mut from, &mut to).await);
    drop(to.write_all(b" bye").await);
    drop(to.shutdown().await);
}

async fn upgraded(stage: &Stage) -> Visitor {
    let mut visitor = stage.visitor().await;
    // The connection may have served other requests before.
    assert_eq!(visitor.get("/").await.text(), "plain");
    let page = visitor.request("GET", "/socket", ASK, b"").await.unwrap();
    assert_eq!(
        (page.status, page.header("upgrade")),
        (101, Some("websocket"))
    );
    assert_eq!(page.header("sec-websocket-accept"), Some("x"));
    assert_eq!(visitor.exactly(6).await.unwrap(), b"hello ");
    visitor
}

async fn echoes(visitor: &mut Visitor, text: &[u8]) {
    visitor.send_raw(text).await;
    assert_eq!(visitor.exactly(text.len()).await.unwrap(), text);
}

#[tokio::test]
async fn a_socket_outlives_the_switch_and_counts_as_in_flight() {
    let stage = Stage::start().await;
    let (old, new) = (echo_tunnel().await, App::saying("new").await);
    let before = stage.serve(&[old.address]).await;
    let (mut one, mut two) = (upgraded(&stage).await, upgraded(&stage).await);
    echoes(&mut one, b"before").await;
    stage.serve(&[new.address]).await;
    let leaving = stage.publish(before, &[]);
    assert_eq!(stage.visitor().await.get("/").await.text(), "new");
    for visitor in [&mut one, &mut two] {
        echoes(visitor, b"after").await;
        echoes(visitor, &vec![b'x'; 500_000]).await;
    }
    assert_eq!(leaving.in_flight(), 2);
    assert!(!leaving.drained(Duration::from_millis(100)).await);
    // One closes its side and hears the rest, the other is simply gone.
    one.stream.shutdown().await.unwrap();
    assert_eq!(one.exactly(4).await.unwrap(), b" bye");
    assert!(one.is_closed().await);
    drop(two);
    assert!(leaving.drained(LIMIT).await);
    stage.finish().await;
}

#[tokio::test]
async fn a_socket_ends_with_its_instance_and_with_the_edge() {
    let stage = Stage::start().await;
    let app = always(vec![
        send("HTTP/1.1 101 Go\r\nupgrade: x\r\nconnection: upgrade\r\n\r\nfirst"),
        Action::Sleep(Duration::from_millis(50)),
        Action::Close,
    ])
    .await;
    let release = stage.serve(&[app.address]).await;
    let mut visitor = stage.visitor().await;
    let ask = [("Connection", "upgrade"), ("Upgrade", "x")];
    assert_eq!(
        visitor.request("GET", "/", &ask, b"").await.unwrap().status,
        101
    );
    assert_eq!(visitor.exactly(5).await.unwrap(), b"first");
    assert!(visitor.is_closed().await);
    let app = echo_tunnel().await;
    stage.publish(release, &[app.address]);
    let mut visitor = upgraded(&stage).await;
    // Which does not wait for those who talk for hours.
    stage.finish().await;
    let mut rest = Vec::new();
    drop(visitor.stream.read_to_end(&mut rest).await);
}

#[tokio::test]
async fn silent_sockets_are_closed_and_there_is_an_end_to_their_number() {
    let stage = Stage::start_with(|setup| {
        setup.edge.proxy.tunnel_timeout = Duration::from_millis(400);
        setup.edge.proxy.max_tunnels = 2;
    })
    .await;
    let app = echo_tunnel().await;
    let release = stage.serve(&[app.address]).await;
    let (mut one, mut two) = (upgraded(&stage).await, upgraded(&stage).await);
    let mut third = stage.visitor().await;
    let page = third.request("GET", "/", ASK, b"").await.unwrap();
    assert_eq!(page.status, 503);
    for _ in 0..8 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        echoes(&mut one, b"alive").await;
    }
    assert!(two.is_closed().await);
    echoes(&mut one, b"alive").await;
    assert!(one.is_closed().await);
    let instances = stage.edge.routes().endpoints();
    let instances = instances.instances(stage.project, release).unwrap();
    eventually("nothing is in flight", || async {
        instances.in_flight() == 0
    })
    .await;
    drop(upgraded(&stage).await);
    stage.finish().await;
}

#[tokio::test]
async fn one_project_does_not_take_the_sockets_of_all() {
    let stage = Stage::start_with(|setup| {
        // A project may have three of them: a quarter is left to others.
        setup.edge.proxy.max_tunnels = 4;
        setup.edge.proxy.max_project_tunnels = 2;
    })
    .await;
    let app = echo_tunnel().await;
    stage.serve(&[app.address]).await;
    let (mut one, two) = (upgraded(&stage).await, upgraded(&stage).await);
    let _three = upgraded(&stage).await;
    let mut fourth = stage.visitor().await;
    let page = fourth.request("GET", "/", ASK, b"").await.unwrap();
    assert_eq!((page.status, page.header("retry-after")), (503, Some("5")));
    echoes(&mut one, b"alive").await;
    drop(two);
    let mut tries = 0;
    while stage
        .visitor()
        .await
        .request("GET", "/", ASK, b"")
        .await
        .unwrap()
        .status
        != 101
    {
        tries += 1;
        assert!(tries < 200, "its place is never free");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    stage.finish().await;
}

#[tokio::test]
async fn an_upgrade_can_be_declined_and_some_are_not_passed_on() {
    let stage = Stage::start().await;
    let app = always(vec![ok("no")]).await;
    stage.serve(&[app.address]).await;
    let mut visitor = stage.visitor().await;
    let page = visitor.request("GET", "/", ASK, b"").await.unwrap();
    assert_eq!((page.status, page.text()), (200, "no"));
    assert!(
        app.requests()[0]
            .head
            .contains("\r\nconnection: upgrade\r\nupgrade: websocket\r\n")
    );
    for (protocol, connection) in [
        ("h2c", "Upgrade, HTTP2-Settings"),
        ("H2C", "upgrade"),
        ("websocket, h2c", "upgrade"),
        ("HTTP/2.0", "upgrade"),
        ("websocket", "keep-alive"),
    ] {
        let ask = [
            ("Connection", connection),
            ("Upgrade", protocol),
            ("HTTP2-Settings", "x"),
        ];
        let page = visitor.request("GET", "/", &ask, b"").await.unwrap();
        assert_eq!(page.status, 200);
        let head = app.requests().pop().unwrap().head.to_ascii_lowercase();
        assert!(
            !head.contains("upgrade") && !head.contains("http2"),
            "{head}"
        );
    }
    stage.finish().await;
}

/// What a new visitor is answered; nothing when its connection is closed at once.
async fn greeted(address: SocketAddr, from: [u8; 4]) -> Option<String> {
    let mut visitor = Visitor::connect_from(from, address, HOST).await;
    let close = [("Connection", "close")];
    let page = visitor.request("GET", "/", &close, b"").await;
    page.ok().map(|page| page.text().to_owned())
}

#[tokio::test]
async fn open_sockets_count_as_connections_of_their_address() {
    let (us, others) = ([127, 0, 0, 1], [127, 0, 0, 2]);
    let stage = Stage::start_with(|setup| {
        setup.listener.max_connections_per_address = Some(2);
    })
    .await;
    let app = echo_tunnel().await;
    stage.serve(&[app.address]).await;
    let (mut one, mut two) = (upgraded(&stage).await, upgraded(&stage).await);
    for _ in 0..3 {
        assert_eq!(greeted(stage.address, us).await, None);
        assert_eq!(greeted(stage.address, others).await.unwrap(), "plain");
    }
    echoes(&mut one, b"still here").await;
    drop(two);
    let mut tries = 0;
    while greeted(stage.address, us).await.is_none() {
        tries += 1;
        assert!(tries < 200, "its place is never free");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    // The last one that was let in has to be gone.
    tokio::time::sleep(Duration::from_millis(200)).await;
    two = upgraded(&stage).await;
    assert_eq!(greeted(stage.address, us).await, None);
    echoes(&mut two, b"again").await;
    stage.finish().await;
}

#[tokio::test]
async fn silent_sockets_are_not_closed_to_make_room() {
    let stage = Stage::start_with(|setup| {
        setup.listener.max_connections = 2;
        setup.listener.max_connections_per_address = Some(2);
    })
    .await;
    let app = echo_tunnel().await;
    stage.serve(&[app.address]).await;
    let (mut one, mut two) = (upgraded(&stage).await, upgraded(&stage).await);
    let mut waiting = std::pin::pin!(greeted(stage.address, [127, 0, 0, 2]));
    let wait = tokio::time::timeout(Duration::from_millis(400), waiting.as_mut());
    assert!(wait.await.is_err(), "there is room for a third");
    for visitor in [&mut one, &mut two] {
        echoes(visitor, b"still here").await;
    }
    drop(one);
    assert_eq!(waiting.await.unwrap(), "plain");
    echoes(&mut two, b"still here").await;
    stage.finish().await;
}
