//! How connections are treated: kept, shared, cut when they are hostile.

use crate::support::site;
use estrade_testkit::EdgeClient;
use estrade_testkit::{Backend, TestApp};
use std::time::Duration;

async fn app_with_site() -> (TestApp, EdgeClient) {
    let app = TestApp::start(Backend::Sqlite).await;
    let (_, visitor) = site(&app, "my-site", &[("index.html", "home"), ("a.txt", "aaa")]).await;
    (app, visitor)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pipelined_requests_get_responses_in_order() {
    let (app, mut visitor) = app_with_site().await;
    let one = "GET /a.txt HTTP/1.1\r\nHost: my-site.localhost\r\n\r\n";
    let two = "GET / HTTP/1.1\r\nHost: my-site.localhost\r\n\r\n";
    let both = format!("{one}{two}").repeat(40);
    visitor.send(both.as_bytes()).await.unwrap();
    for _ in 0..40 {
        assert_eq!(visitor.read_response("GET").await.unwrap().text(), "aaa");
        assert_eq!(visitor.read_response("GET").await.unwrap().text(), "home");
    }
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_may_come_byte_by_byte() {
    let (app, mut visitor) = app_with_site().await;
    for _ in 0..2 {
        for byte in b"GET /a.txt HTTP/1.1\r\nHost: my-site.localhost\r\n\r\n" {
            visitor.send(&[*byte]).await.unwrap();
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        assert_eq!(visitor.read_response("GET").await.unwrap().text(), "aaa");
    }
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_leaves_the_express_lane_goes_on() {
    let (app, mut visitor) = app_with_site().await;
    assert_eq!(visitor.get("/a.txt").await.text(), "aaa");
    let posted = visitor
        .request("POST", "/", &[("content-length", "0")])
        .await;
    assert_eq!(posted.status, 405);
    for _ in 0..3 {
        assert_eq!(visitor.get("/a.txt").await.text(), "aaa");
    }
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_wants_to_close_is_let_go() {
    let (app, mut visitor) = app_with_site().await;
    let page = visitor.get_with("/", &[("connection", "close")]).await;
    assert_eq!(
        (page.status, page.header("connection")),
        (200, Some("close"))
    );
    assert!(visitor.try_ask("GET", "/", &[]).await.is_err());
    let mut old = EdgeClient::connect(app.edge(), "").await;
    old.send(b"GET / HTTP/1.0\r\nHost: my-site.localhost\r\n\r\n")
        .await
        .unwrap();
    assert_eq!(old.read_response("GET").await.unwrap().text(), "home");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nonsense_is_refused_and_nothing_is_smuggled() {
    let (app, _) = app_with_site().await;
    for request in [
        "GET / HTTP/1.1\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nHost: my-site.localhost\r\n\r\n",
        "GET / HTTP/1.1\r\nHost : my-site.localhost\r\n\r\n",
        "GET  / HTTP/1.1\r\nHost: my-site.localhost\r\n\r\n",
        "GET / HTTP/1.1\nHost: my-site.localhost\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: my-site.localhost\n\n",
        "POST / HTTP/1.1\r\nHost: my-site.localhost\r\nContent-Length: 0\n\r\n",
        "NONSENSE\r\n\r\n",
        "GET / HTTP/9.9\r\nHost: my-site.localhost\r\n\r\n",
    ] {
        let mut visitor = EdgeClient::connect(app.edge(), "").await;
        visitor.send(request.as_bytes()).await.unwrap();
        let response = visitor.read_response("GET").await;
        let good = response.as_ref().is_ok_and(|page| page.status < 400);
        assert!(!good, "{request:?}: {response:?}");
    }
    for hosts in ["a", "my-site.localhost"] {
        let mut visitor = EdgeClient::connect(app.edge(), hosts).await;
        let two = [("Host", "my-site.localhost")];
        assert_eq!(visitor.get_with("/", &two).await.status, 400, "{hosts}");
    }
    // What looks like a second request is the body of the first.
    let mut visitor = EdgeClient::connect(app.edge(), "my-site.localhost").await;
    let inner = "GET /a.txt HTTP/1.1\r\nHost: my-site.localhost\r\n\r\n";
    let length = inner.len().to_string();
    let first = format!(
        "GET / HTTP/1.1\r\nHost: my-site.localhost\r\nContent-Length: {length}\r\n\r\n{inner}"
    );
    visitor.send(first.as_bytes()).await.unwrap();
    assert_eq!(visitor.read_response("GET").await.unwrap().text(), "home");
    let more = tokio::time::timeout(Duration::from_millis(300), visitor.read_response("GET")).await;
    assert!(!matches!(more, Ok(Ok(_))), "{more:?}");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_head_is_cut_off_and_others_are_served() {
    let (app, mut visitor) = app_with_site().await;
    let mut slow = EdgeClient::connect(app.edge(), "").await;
    slow.send(b"GET / HTTP/1.1\r\nHost: my-").await.unwrap();
    for _ in 0..10 {
        assert_eq!(visitor.get("/").await.status, 200);
    }
    let cut = tokio::time::timeout(Duration::from_secs(20), slow.read_response("GET")).await;
    assert!(matches!(cut, Ok(Err(_))), "{cut:?}");
    app.finish().await;
}
