//! Bodies in both directions: as they come, of any size, in little memory.

use crate::backend::{App, always, whole};
use crate::stage::Stage;
use crate::visitor::Modern;
use bytes::Bytes;
use estrade_fixtures::eventually;
use estrade_mock_upstream::{Action, chunk, send, stream_head};
use futures_util::StreamExt;
use http::Response;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::sync::Notify;
use tokio::time::timeout;

/// Longer than all buffers on the way together.
const BIG: u64 = 256 << 20;
/// Far above what the next part of a body takes: a limit for one that is held back.
const TIMEOUT: Duration = Duration::from_secs(5);

#[tokio::test]
async fn events_are_passed_on_one_by_one() {
    let stage = Stage::start().await;
    let next = Arc::new(Notify::new());
    let wait = || Action::Wait(Arc::clone(&next));
    let app = always(vec![
        stream_head(),
        chunk("data: 1\n\n"),
        wait(),
        chunk("data: 2\n\n"),
        wait(),
        send("0\r\n\r\n"),
    ])
    .await;
    stage.serve(&[app.address]).await;
    for method in ["GET", "POST"] {
        let mut visitor = stage.visitor().await;
        visitor.send(method, "/", &[], b"").await;
        let (_, headers) = timeout(TIMEOUT, visitor.head()).await.unwrap().unwrap();
        assert!(headers.contains(&("content-type".into(), "text/event-stream".into())));
        for event in ["data: 1\n\n", "data: 2\n\n"] {
            let chunk = timeout(TIMEOUT, visitor.chunk()).await.unwrap().unwrap();
            assert_eq!(chunk.unwrap(), event.as_bytes());
            next.notify_one();
        }
        let end = timeout(TIMEOUT, visitor.chunk()).await.unwrap().unwrap();
        assert_eq!(end, None);
    }
    let modern = Modern::new(stage.address);
    let response = modern
        .request(reqwest::Method::GET, "/")
        .send()
        .await
        .unwrap();
    let mut events = response.bytes_stream();
    for event in ["data: 1\n\n", "data: 2\n\n"] {
        let chunk = timeout(TIMEOUT, events.next()).await.unwrap().unwrap();
        assert_eq!(chunk.unwrap(), event.as_bytes());
        next.notify_one();
    }
    let rest = timeout(TIMEOUT, events.collect::<Vec<_>>()).await.unwrap();
    assert!(rest.iter().all(|data| data.as_ref().unwrap().is_empty()));
    stage.finish().await;
}

#[tokio::test]
async fn an_upload_reaches_the_instance_as_it_comes() {
    let stage = Stage::start().await;
    let app = App::echo().await;
    stage.serve(&[app.address]).await;
    let mut visitor = stage.visitor().await;
    let head = "POST / HTTP/1.1\r\nHost: app.localhost\r\nTransfer-Encoding: chunked\r\n\r\n";
    visitor.send_raw(head.as_bytes()).await;
    timeout(TIMEOUT, visitor.head()).await.unwrap().unwrap();
    for part in ["one", "two", "three"] {
        let sent = format!("{:x}\r\n{part}\r\n", part.len());
        visitor.send_raw(sent.as_bytes()).await;
        let back = timeout(TIMEOUT, visitor.chunk()).await.unwrap().unwrap();
        assert_eq!(back.unwrap(), part.as_bytes());
    }
    visitor.send_raw(b"0\r\n\r\n").await;
    assert_eq!(
        timeout(TIMEOUT, visitor.chunk()).await.unwrap().unwrap(),
        None
    );
    // Expectations are met by the edge.
    visitor
        .send(
            "POST",
            "/",
            &[("Expect", "100-continue"), ("Content-Length", "2")],
            b"",
        )
        .await;
    assert_eq!(visitor.head().await.unwrap().0, 100);
    visitor.send_raw(b"ok").await;
    assert_eq!(visitor.response("POST").await.unwrap().text(), "ok");
    assert_eq!(app.connections(), 1);
    stage.finish().await;
}

/// Most memory that this process has had, in bytes.
fn peak() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:"));
    let number = line.unwrap().split_whitespace().nth(1).unwrap();
    number.parse::<u64>().unwrap() * 1024
}

fn flood() -> impl futures_util::Stream<Item = Bytes> {
    let piece = Bytes::from(vec![b'x'; 64 << 10]);
    let pieces = usize::try_from(BIG / piece.len() as u64).unwrap();
    futures_util::stream::repeat(piece).take(pieces)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_bodies_take_little_memory_in_both_directions() {
    let stage = Stage::start().await;
    let app = App::start(|request| async move {
        let mut body = request.into_body().into_data_stream();
        let mut length = 0;
        while let Some(data) = body.next().await {
            length += data.unwrap().len() as u64;
        }
        if length > 0 {
            return Response::new(whole(length.to_string()));
        }
        let frames = flood().map(|data| Ok(Frame::data(data)));
        Response::new(BodyExt::boxed(StreamBody::new(frames)))
    })
    .await;
    stage.serve(&[app.address]).await;
    let before = peak();
    let mut visitor = stage.visitor().await;
    visitor.send("GET", "/", &[], b"").await;
    visitor.head().await.unwrap();
    // The client does not read for a while, and what comes meanwhile is not buffered.
    tokio::time::sleep(Duration::from_millis(300)).await;
    let mut length = 0;
    while let Some(chunk) = visitor.chunk().await.unwrap() {
        length += chunk.len() as u64;
    }
    assert_eq!(length, BIG);
    let modern = Modern::new(stage.address);
    let response = modern
        .request(reqwest::Method::GET, "/")
        .send()
        .await
        .unwrap();
    let (mut body, mut length) = (response.bytes_stream(), 0);
    while let Some(data) = body.next().await {
        length += data.unwrap().len() as u64;
    }
    assert_eq!(length, BIG);
    let head = format!("POST / HTTP/1.1\r\nHost: app.localhost\r\nContent-Length: {BIG}\r\n\r\n");
    visitor.send_raw(head.as_bytes()).await;
    let mut pieces = std::pin::pin!(flood());
    while let Some(piece) = pieces.next().await {
        visitor.send_raw(&piece).await;
    }
    assert_eq!(
        visitor.response("POST").await.unwrap().text(),
        BIG.to_string()
    );
    let sent = reqwest::Body::wrap_stream(flood().map(Ok::<_, std::io::Error>));
    let posted = modern.request(reqwest::Method::POST, "/").body(sent).send();
    assert_eq!(posted.await.unwrap().text().await.unwrap(), BIG.to_string());
    let grown = peak() - before;
    assert!(grown < 48 << 20, "{} MiB", grown >> 20);
    stage.finish().await;
}

#[tokio::test]
async fn what_is_too_long_is_refused_before_it_is_read_or_while() {
    let stage = Stage::start_with(|setup| setup.edge.proxy.body_bytes = 1000).await;
    let seen = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&seen);
    let app = App::start(move |request| {
        let counted = Arc::clone(&counted);
        async move {
            let mut body = request.into_body().into_data_stream();
            while let Some(Ok(data)) = body.next().await {
                counted.fetch_add(data.len() as u64, Ordering::SeqCst);
            }
            Response::new(whole("all of it"))
        }
    })
    .await;
    stage.serve(&[app.address]).await;
    let mut visitor = stage.visitor().await;
    let page = visitor
        .request("POST", "/", &[], &[b'x'; 1000])
        .await
        .unwrap();
    assert_eq!((page.status, seen.swap(0, Ordering::SeqCst)), (200, 1000));
    let page = visitor
        .request("POST", "/", &[], &[b'x'; 1001])
        .await
        .unwrap();
    assert_eq!((page.status, seen.load(Ordering::SeqCst)), (413, 0));
    // No client is told to go on with what will be refused.
    let mut visitor = stage.visitor().await;
    let announced = [("Content-Length", "1001"), ("Expect", "100-continue")];
    let page = visitor.request("POST", "/", &announced, b"").await.unwrap();
    assert_eq!(page.status, 413);
    let mut visitor = stage.visitor().await;
    visitor
        .send("POST", "/", &[("Transfer-Encoding", "chunked")], b"")
        .await;
    for _ in 0..3 {
        let chunk = format!("190\r\n{}\r\n", "x".repeat(400));
        // It may have been refused already.
        drop(visitor.stream.write_all(chunk.as_bytes()).await);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(visitor.response("POST").await.unwrap().status, 413);
    assert!(seen.load(Ordering::SeqCst) <= 800);
    stage.finish().await;
}

#[tokio::test]
async fn what_becomes_too_long_while_it_is_relayed_breaks_off() {
    let stage = Stage::start_with(|setup| setup.edge.proxy.body_bytes = 1000).await;
    let app = App::echo().await;
    stage.serve(&[app.address]).await;
    let mut visitor = stage.visitor().await;
    visitor
        .send("POST", "/", &[("Transfer-Encoding", "chunked")], b"")
        .await;
    visitor.head().await.unwrap();
    let chunk = |length: usize| format!("{length:x}\r\n{}\r\n", "x".repeat(length));
    visitor.send_raw(chunk(900).as_bytes()).await;
    let mut back = 0;
    while back < 900 {
        back += visitor.chunk().await.unwrap().unwrap().len();
    }
    visitor.send_raw(chunk(200).as_bytes()).await;
    let rest = [chunk(50), "0\r\n\r\n".into()].concat();
    // It may have been cut off already.
    drop(visitor.stream.write_all(rest.as_bytes()).await);
    let end = timeout(TIMEOUT, visitor.chunk()).await.unwrap();
    assert!(end.is_err(), "{end:?}");
    stage.finish().await;
}

#[tokio::test]
async fn an_instance_may_respond_before_it_has_read_everything() {
    let stage = Stage::start().await;
    let no = "HTTP/1.1 403 Forbidden\r\ncontent-length: 2\r\n\r\nno";
    let app = always(vec![send(no), Action::Close]).await;
    stage.serve(&[app.address]).await;
    let mut visitor = stage.visitor().await;
    let head =
        "POST / HTTP/1.1\r\nHost: app.localhost\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n";
    visitor.send_raw(head.as_bytes()).await;
    let page = timeout(TIMEOUT, visitor.response("POST"))
        .await
        .unwrap()
        .unwrap();
    assert_eq!((page.status, page.text()), (403, "no"));
    stage.finish().await;
}

#[tokio::test]
async fn a_visitor_that_stops_in_the_middle_of_its_body_is_not_waited_for() {
    let stage = Stage::start_with(|setup| {
        setup.edge.proxy.idle_timeout = Duration::from_millis(300);
    })
    .await;
    let app = App::echo().await;
    let release = stage.serve(&[app.address]).await;
    // This one answers only when it has everything.
    let patient = App::start(|request| async move {
        drop(request.into_body().collect().await);
        Response::new(whole("all of it"))
    })
    .await;
    stage.publish(release, &[patient.address]);
    let mut visitor = stage.visitor().await;
    visitor
        .send("POST", "/", &[("Content-Length", "10")], b"")
        .await;
    visitor.send_raw(b"12345").await;
    let page = timeout(TIMEOUT, visitor.response("POST"))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(page.status, 408);
    // And one that goes away is noticed by the instance.
    let instances = stage.edge.routes().endpoints();
    let instances = instances.instances(stage.project, release).unwrap();
    let mut visitor = stage.visitor().await;
    visitor
        .send("POST", "/", &[("Content-Length", "10")], b"")
        .await;
    eventually("it is in flight", || async { instances.in_flight() == 1 }).await;
    drop(visitor);
    eventually("it is not any more", || async {
        instances.in_flight() == 0
    })
    .await;
    stage.finish().await;
}

#[tokio::test]
async fn a_visitor_that_drips_does_not_keep_an_instance() {
    let stage = Stage::start_with(|setup| {
        setup.edge.proxy.upload_grace = Duration::from_millis(600);
    })
    .await;
    // It answers only when it has everything.
    let patient = App::start(|request| async move {
        drop(request.into_body().collect().await);
        Response::new(whole("all of it"))
    })
    .await;
    stage.serve(&[patient.address]).await;
    let mut visitor = stage.visitor().await;
    visitor
        .send("POST", "/", &[("Content-Length", "1000")], b"")
        .await;
    // Never silent for long, and never done.
    for _ in 0..10 {
        visitor.send_raw(b"x").await;
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let page = timeout(TIMEOUT, visitor.response("POST"))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(page.status, 408);
    stage.finish().await;
}
