//! Bodies that come slowly: what they hold is shared fairly.

use crate::support::new_project;
use estrade_testkit::{Api, TestApp, User, on_both_backends};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

on_both_backends! {
    slow_bodies_of_one_account_hold_a_share_of_the_memory;
    dripping_uploads_leave_slots_to_others;
}

const MEBIBYTE: usize = 1 << 20;

/// A request whose body does not come to its end.
async fn drip(app: &TestApp, user: &User, path: &str, announced: usize, sent: usize) -> TcpStream {
    let mut stream = TcpStream::connect(app.address(Api::Platform))
        .await
        .unwrap();
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\ncontent-length: {announced}\r\n\r\n",
        user.token(),
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    // A server that refused does not take all of it.
    drop(stream.write_all(&vec![b' '; sent]).await);
    stream
}

/// The status that a request has been answered with so far.
async fn status(stream: &mut TcpStream) -> Option<u16> {
    let mut head = [0; 64];
    let read = timeout(Duration::from_millis(20), stream.read(&mut head)).await;
    let length = read.ok()?.ok()?;
    let head = String::from_utf8_lossy(&head[..length]).into_owned();
    head.split(' ').nth(1)?.parse().ok()
}

async fn slow_bodies_of_one_account_hold_a_share_of_the_memory(app: &TestApp) {
    let (ada, bob) = (app.new_account("ada").await, app.new_account("bob").await);
    let mut held = Vec::new();
    for _ in 0..40 {
        let sent = MEBIBYTE - 1;
        held.push(drip(app, &ada, "/v1/projects", MEBIBYTE, sent).await);
    }
    tokio::time::sleep(Duration::from_millis(500)).await;
    let (mut waiting, mut refused) = (0, 0);
    for stream in &mut held {
        match status(stream).await {
            None => waiting += 1,
            Some(429) => refused += 1,
            Some(other) => panic!("{other}"),
        }
    }
    assert!(waiting <= 32 && refused >= 8, "{waiting} {refused}");
    // Small ones come in one piece and are not waited for; others have a share of their own.
    new_project(&ada, "hers").await;
    new_project(&bob, "his").await;
}

async fn dripping_uploads_leave_slots_to_others(app: &TestApp) {
    let (ada, bob) = (app.new_account("ada").await, app.new_account("bob").await);
    new_project(&ada, "hers").await;
    new_project(&bob, "his").await;
    let path = "/v2/projects/hers/releases";
    let mut held = Vec::new();
    for _ in 0..34 {
        // Without a seat in memory: it announces too much.
        let (announced, sent) = (20 * MEBIBYTE, MEBIBYTE + MEBIBYTE / 2);
        held.push(drip(app, &ada, path, announced, sent).await);
    }
    tokio::time::sleep(Duration::from_millis(500)).await;
    let page = "x".repeat(9 * MEBIBYTE);
    let release = serde_json::json!({"files": [{"path": "index.html", "data": page}]});
    let deploy = bob.post("/v2/projects/his/releases", &release);
    let deployed = timeout(Duration::from_secs(20), deploy).await;
    deployed.expect("a slot is free").assert(201);
}
