//! Two servers on one PostgreSQL and one bucket of a real S3 server, which a forwarder can cut off.

pub(crate) mod cluster;
pub(crate) mod forwarder;
mod migration;

use crate::support::{ADMIN, Home, Server, text};
use cluster::Cluster;
use forwarder::Bucket;
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use std::fmt::Write;
use std::time::{Duration, Instant};

/// More than a pack takes: an object of its own.
const LARGE_BYTES: usize = 3_000_000;
/// A deploy during an outage is refused within this time, also the first one.
const MAX_REFUSAL_TIME: Duration = Duration::from_secs(30);

/// A small page and a large file.
fn site(version: &str) -> Value {
    json!([
        {"path": "index.html", "data": page(version)},
        {"path": "large.bin", "data": large(version)},
    ])
}

fn page(version: &str) -> String {
    format!("<h1>{version}</h1>")
}

fn large(version: &str) -> String {
    let mut text = String::with_capacity(LARGE_BYTES + 64);
    let mut number = 0;
    while text.len() < LARGE_BYTES {
        writeln!(text, "{version} {number}").unwrap();
        number += 1;
    }
    text
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_one_node_receives_every_node_serves() {
    let cluster = Cluster::start().await;
    let (a, b) = (&cluster.a, &cluster.b);
    a.server().create_project("site").await;
    let first = a.deploy_site("site", site("one")).await;
    for node in [a, b] {
        node.await_content("site", "/", &page("one")).await;
        node.await_content("site", "/large.bin", &large("one"))
            .await;
    }
    assert_eq!(a.metric("estrade_blob_cache_misses_total").await, 0);
    assert!(b.metric("estrade_blob_cache_misses_total").await > 0);
    assert!(b.metric("estrade_blob_cache_bytes").await > LARGE_BYTES as u64);
    assert_eq!(b.metric("estrade_blob_cache_evictions_total").await, 0);
    let capacity = b.metric("estrade_blob_cache_capacity_bytes").await;
    assert_eq!(capacity, 64 << 20);

    // The first visitor of a node may want a part of a file, or only its head.
    a.server().create_project("cold").await;
    a.deploy_site("cold", site("cold")).await;
    let began = Instant::now();
    let range = loop {
        let range = b.request(Method::GET, "cold", "/large.bin");
        let range = range.header("range", "bytes=1000000-1000099").send();
        let range = range.await.unwrap();
        // It hears of the release a moment later.
        if range.status() != StatusCode::NOT_FOUND || began.elapsed() > Duration::from_secs(1) {
            break range;
        }
    };
    assert_eq!(range.status(), StatusCode::PARTIAL_CONTENT);
    let part = &large("cold")[1_000_000..1_000_100];
    assert_eq!(range.text().await.unwrap(), part);
    let head = b.request(Method::HEAD, "cold", "/").send().await.unwrap();
    let length = head.headers()["content-length"].to_str().unwrap();
    assert_eq!((head.status(), length), (StatusCode::OK, "13"));

    // The other way round, and back again.
    b.deploy_site("site", site("two")).await;
    for node in [a, b] {
        node.await_content("site", "/large.bin", &large("two"))
            .await;
    }
    let path = format!("/v1/releases/{first}/rollback");
    let rolled = a.server().platform(Method::POST, &path, Value::Null).await;
    let rolled = rolled.json();
    a.await_ready(&text(&rolled["releaseID"])).await;
    for node in [a, b] {
        node.await_content("site", "/", &page("one")).await;
        node.await_content("site", "/large.bin", &large("one"))
            .await;
    }
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_outage_of_the_bucket_stops_deploys_and_nothing_else() {
    let mut cluster = Cluster::start().await;
    let (a, b) = (&cluster.a, &cluster.b);
    for project in ["cached", "cold"] {
        a.server().create_project(project).await;
        a.deploy_site(project, site(project)).await;
    }
    b.await_content("cached", "/", &page("cached")).await;
    b.await_content("cached", "/large.bin", &large("cached"))
        .await;
    b.await_storage("up").await;

    cluster.forwarder.cut();
    for node in [a, b] {
        node.await_content("cached", "/", &page("cached")).await;
        node.await_content("cached", "/large.bin", &large("cached"))
            .await;
    }
    // The node that received it has it.
    a.await_content("cold", "/", &page("cold")).await;
    let response = b.request(Method::GET, "cold", "/large.bin").send();
    let response = response.await.unwrap();
    assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert!(response.headers().contains_key("retry-after"));
    for size in [10, LARGE_BYTES] {
        for attempt in 0..3 {
            let started = Instant::now();
            let files = json!([{"path": "index.html", "data": "x".repeat(size + attempt)}]);
            let refused = a.deploy("cached", files).await;
            let body = refused.assert(503).json();
            assert_eq!(body["data"]["code"], "storage_unavailable", "{body}");
            let took = started.elapsed();
            eprintln!("a deploy of {size} bytes was refused after {took:?}");
            assert!(took < MAX_REFUSAL_TIME, "{took:?}");
        }
    }
    for node in [a, b] {
        node.await_storage("down").await;
    }
    // What needs no bucket goes on.
    b.server().create_project("made-meanwhile").await;
    a.await_content("cached", "/", &page("cached")).await;

    // A node that is restarted meanwhile comes up and serves what it has.
    cluster.b.restart();
    let (a, b) = (&cluster.a, &cluster.b);
    b.await_content("cached", "/", &page("cached")).await;
    b.await_content("cached", "/large.bin", &large("cached"))
        .await;
    assert_eq!(b.visit("cold", "/").await.0, 503);

    cluster.forwarder.mend();
    b.await_content("cold", "/", &page("cold")).await;
    b.await_content("cold", "/large.bin", &large("cold")).await;
    for node in [a, b] {
        node.await_storage("up").await;
    }
    b.deploy_site("cached", site("after")).await;
    for node in [a, b] {
        node.await_content("cached", "/", &page("after")).await;
    }
    cluster.stop().await;
}

/// As when its machine hangs: connections are taken, and nothing comes back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bucket_that_hangs_stops_deploys_and_nothing_else() {
    let cluster = Cluster::start().await;
    let (a, b) = (&cluster.a, &cluster.b);
    a.server().create_project("site").await;
    a.deploy_site("site", site("before")).await;
    for node in [a, b] {
        node.await_content("site", "/", &page("before")).await;
        node.await_content("site", "/large.bin", &large("before"))
            .await;
        node.await_storage("up").await;
    }

    cluster.forwarder.stall();
    let stalled = Instant::now();
    let files = json!([{"path": "index.html", "data": "not stored"}]);
    let refused = async |node: &cluster::Node| {
        let refused = node.deploy("site", files.clone()).await;
        let body = refused.assert(503).json();
        assert_eq!(body["data"]["code"], "storage_unavailable", "{body}");
        stalled.elapsed()
    };
    let visits = async {
        while stalled.elapsed() < Duration::from_secs(3) {
            for node in [a, b] {
                assert_eq!(node.visit("site", "/").await, (200, page("before")));
            }
        }
    };
    let (one, two, ()) = tokio::join!(refused(a), refused(b), visits);
    eprintln!("deploys were refused {one:?} and {two:?} after the bucket hung");
    assert!(one.max(two) < MAX_REFUSAL_TIME, "{one:?} {two:?}");
    for node in [a, b] {
        node.await_storage("down").await;
    }

    cluster.forwarder.mend();
    let mended = Instant::now();
    for node in [a, b] {
        node.await_storage("up").await;
    }
    b.deploy_site("site", site("after")).await;
    for node in [a, b] {
        node.await_content("site", "/", &page("after")).await;
    }
    eprintln!(
        "a deploy was served {:?} after the bucket answered again",
        mended.elapsed()
    );
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_that_was_accepted_before_an_outage_waits_and_is_not_failed() {
    let cluster = Cluster::start().await;
    let (a, b) = (&cluster.a, &cluster.b);
    a.server().create_project("archived").await;
    let upload = a.server().client.post(format!(
        "{}/v2/projects/archived/sources",
        a.server().platform
    ));
    let upload = upload
        .bearer_auth(&a.server().token)
        .header("content-type", "multipart/form-data; boundary=x-y-z")
        .body(form(&archive()));
    let sent = upload.send().await.unwrap();
    let status = sent.status();
    let sent = sent.text().await.unwrap();
    assert!(status.is_success(), "{status} {sent}");
    let sent: Value = serde_json::from_str(&sent).unwrap();

    cluster.forwarder.cut();
    let path = "/v2/projects/archived/releases";
    let body = json!({"sourceID": sent["sourceID"]});
    let made = b.server().platform(Method::POST, path, body).await;
    let release = text(&made.assert(201).json()["releaseID"]);
    let path = format!("/v1/releases/{release}");
    let until = Instant::now() + Duration::from_secs(8);
    while Instant::now() < until {
        let read = a.server().platform(Method::GET, &path, Value::Null).await;
        let state = text(&read.assert(200).json()["release"]["state"]);
        assert!(matches!(&*state, "PENDING" | "BUILDING"), "{state}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    cluster.forwarder.mend();
    for _ in 0..4 {
        let wait = format!("{path}?wait=READY&timeout=15");
        let read = a.server().platform(Method::GET, &wait, Value::Null).await;
        if read.assert(200).json()["release"]["state"] == "READY" {
            break;
        }
    }
    for node in [a, b] {
        node.await_content("archived", "/", "<h1>archived</h1>")
            .await;
    }
    cluster.stop().await;
}

/// The form of an upload.
fn form(archive: &[u8]) -> Vec<u8> {
    let head = "--x-y-z\r\nContent-Disposition: form-data; name=\"file\"; filename=\"site.tar.gz\"\r\n\r\n";
    [head.as_bytes(), archive, b"\r\n--x-y-z--\r\n"].concat()
}

/// A site as `.tar.gz`.
fn archive() -> Vec<u8> {
    let directory = tempfile::TempDir::new().unwrap();
    let page = directory.path().join("index.html");
    std::fs::write(page, "<h1>archived</h1>").unwrap();
    let packed = std::process::Command::new("tar")
        .args(["-cz", "-C"])
        .arg(directory.path())
        .arg("index.html")
        .output();
    packed.unwrap().stdout
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bucket_that_cannot_be_used_is_refused_with_the_reason() {
    let bucket = Bucket::of_test();
    let start = |home: Home| {
        let refused = home.fail_to_serve();
        refused.assert(2);
        assert!(!refused.stderr.contains(&bucket.secret_access_key));
        refused.stderr
    };
    let home = || bucket.configure(Home::new(), &bucket.endpoint);
    let missing = home().with("ESTRADE_BLOBS_URL", "s3://there-is-no-such-bucket/x");
    let said = start(missing);
    assert!(
        said.contains("cannot use s3://there-is-no-such-bucket/x"),
        "{said}"
    );
    let wrong = home().with("ESTRADE_BLOBS_SECRET_ACCESS_KEY", "hunter2");
    let said = start(wrong);
    assert!(said.contains("keys in [blobs]"), "{said}");
    assert!(!said.contains("hunter2"), "{said}");
    let nobody = home().with("ESTRADE_BLOBS_ENDPOINT", "http://127.0.0.1:1");
    let said = start(nobody);
    assert!(said.contains("endpoint"), "{said}");

    // The prefix belongs to the installation that used it first.
    let first = home();
    Server::start(&first).stop();
    Server::start(&first).stop();
    let said = start(home());
    assert!(said.contains("the files of another installation"), "{said}");
    let token = first.create_token(ADMIN);
    assert!(!token.is_empty());
}
