//! What instances and visitors are told, and what not.

use crate::backend::{App, always, ok, whole};
use crate::stage::{HOST, Stage};
use crate::visitor::{Modern, Visitor};
use estrade_mock_upstream::{MockUpstream, send};
use http::Response;
use reqwest::Method;
use std::time::Duration;
use tokio::time::timeout;

/// The headers that the last request had, without its first line.
fn received(app: &MockUpstream) -> Vec<(String, String)> {
    let head = app.requests().pop().unwrap().head;
    let lines = head.lines().skip(1);
    let header = |line: &str| {
        let (name, value) = line.split_once(": ").unwrap();
        (name.to_ascii_lowercase(), value.to_owned())
    };
    lines.map(header).collect()
}

fn values<'h>(headers: &'h [(String, String)], name: &str) -> Vec<&'h str> {
    let of_it = headers.iter().filter(|it| it.0 == name);
    of_it.map(|it| &*it.1).collect()
}

/// A connection on the fast path, and one with hyper, to which a POST leads.
async fn both_paths(stage: &Stage) -> [Visitor; 2] {
    let mut by_hyper = stage.visitor().await;
    let posted = by_hyper.request("POST", "/", &[], b"x").await.unwrap();
    assert_eq!(posted.status, 200);
    [stage.visitor().await, by_hyper]
}

#[tokio::test]
async fn instances_are_told_who_asks_and_believe_nobody_else() {
    let stage = Stage::start().await;
    let app = always(vec![ok("x")]).await;
    stage.serve(&[app.address]).await;
    let spoofed = [
        ("X-Forwarded-For", "6.6.6.6"),
        ("X_Forwarded_For", "6.6.6.6"),
        ("X-Forwarded-Proto", "https"),
        ("X-Forwarded-Host", "evil.example"),
        ("X-Forwarded-Port", "1"),
        ("X-Real-IP", "6.6.6.6"),
        ("Forwarded", "for=6.6.6.6;proto=https"),
        ("Proxy", "http://6.6.6.6"),
    ];
    for mut visitor in both_paths(&stage).await {
        let page = visitor
            .request("GET", "/a%2Fb/../c?d=%20e&f", &spoofed, b"")
            .await;
        assert_eq!(page.unwrap().status, 200);
        let line = app.requests().pop().unwrap().head;
        assert!(
            line.starts_with("GET /a%2Fb/../c?d=%20e&f HTTP/1.1\r\n"),
            "{line}"
        );
        let received = received(&app);
        let received: Vec<_> = received
            .iter()
            .map(|(name, value)| (&**name, &**value))
            .collect();
        assert_eq!(
            received,
            [
                ("host", HOST),
                ("x-forwarded-for", "127.0.0.1"),
                ("x-forwarded-proto", "http"),
                ("x-forwarded-host", HOST),
                ("x-real-ip", "127.0.0.1"),
                (
                    "forwarded",
                    "for=127.0.0.1;host=\"app.localhost\";proto=http"
                ),
            ]
        );
    }
    stage.finish().await;
}

#[tokio::test]
async fn trusted_proxies_are_believed_as_far_as_they_know() {
    let stage = Stage::start_with(|setup| {
        let trusted = ["127.0.0.1/32", "10.0.0.0/8"];
        setup.listener.trusted_proxies = trusted.iter().map(|it| it.parse().unwrap()).collect();
    })
    .await;
    let app = always(vec![ok("x")]).await;
    stage.serve(&[app.address]).await;
    let said = [
        ("X-Forwarded-For", "6.6.6.6, 1.1.1.1, 10.0.0.9"),
        ("X-Forwarded-Proto", "https"),
        ("X-Forwarded-Host", "www.example.com"),
        ("Forwarded", "for=6.6.6.6"),
    ];
    for mut visitor in both_paths(&stage).await {
        visitor.request("GET", "/", &said, b"").await.unwrap();
        let received = received(&app);
        assert_eq!(
            values(&received, "x-forwarded-for"),
            ["1.1.1.1, 10.0.0.9, 127.0.0.1"]
        );
        assert_eq!(values(&received, "x-real-ip"), ["1.1.1.1"]);
        assert_eq!(values(&received, "x-forwarded-proto"), ["https"]);
        assert_eq!(values(&received, "x-forwarded-host"), ["www.example.com"]);
        assert_eq!(
            values(&received, "forwarded"),
            ["for=1.1.1.1;host=\"www.example.com\";proto=https, for=10.0.0.9, for=127.0.0.1"]
        );
    }
    stage.finish().await;
}

#[tokio::test]
async fn headers_of_one_connection_do_not_reach_the_other() {
    let stage = Stage::start().await;
    let response = "HTTP/1.1 200 OK\r\nConnection: keep-alive, X-Hop\r\nX-Hop: 1\r\nKeep-Alive: timeout=9\r\n\
        Proxy-Authenticate: x\r\nTrailer: x\r\nUpgrade: h2c\r\nX-App: 1\r\nSet-Cookie: a=1\r\nSet-Cookie: b=2\r\n\
        Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\nX-Late: 1\r\n\r\n";
    let app = always(vec![send(response)]).await;
    stage.serve(&[app.address]).await;
    let asked = [
        ("Connection", "keep-alive, X-Own"),
        ("X-Own", "1"),
        ("Keep-Alive", "timeout=9"),
        ("TE", "trailers"),
        ("Proxy-Authorization", "x"),
        ("Upgrade", "websocket"),
        ("Accept", "text/html"),
    ];
    for mut visitor in both_paths(&stage).await {
        let page = visitor.request("GET", "/", &asked, b"").await.unwrap();
        for gone in [
            "x-hop",
            "keep-alive",
            "proxy-authenticate",
            "trailer",
            "upgrade",
            "connection",
        ] {
            assert_eq!(page.header(gone), None, "{gone}");
        }
        assert_eq!(page.header("x-app"), Some("1"));
        assert_eq!(values(&page.headers, "set-cookie"), ["a=1", "b=2"]);
        assert_eq!(page.text(), "x");
        let received = received(&app);
        for gone in [
            "x-own",
            "keep-alive",
            "te",
            "proxy-authorization",
            "upgrade",
            "connection",
        ] {
            assert_eq!(values(&received, gone), [""; 0], "{gone}");
        }
        assert_eq!(values(&received, "accept"), ["text/html"]);
    }
    // The connection was none the worse for it.
    assert_eq!(app.connections(), 1);
    stage.finish().await;
}

#[tokio::test]
async fn responses_without_a_body_keep_their_length_and_the_connection() {
    let stage = Stage::start().await;
    let app = MockUpstream::with_script(|_, asked| {
        vec![send(if asked.head.starts_with("HEAD") {
            "HTTP/1.1 200 OK\r\ncontent-length: 7\r\ndate: today\r\n\r\n"
        } else if asked.head.contains("/304") {
            "HTTP/1.1 304 Not Modified\r\netag: \"x\"\r\ncontent-length: 9\r\n\r\n"
        } else if asked.head.contains("/204") {
            "HTTP/1.1 204 No Content\r\n\r\n"
        } else {
            "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"
        })]
    })
    .await;
    stage.serve(&[app.address]).await;
    for mut visitor in both_paths(&stage).await {
        for _ in 0..2 {
            let page = visitor.request("HEAD", "/", &[], b"").await.unwrap();
            assert_eq!(
                (page.status, page.header("content-length")),
                (200, Some("7"))
            );
            assert_eq!(values(&page.headers, "date"), ["today"]);
            let page = visitor.get("/304").await;
            assert_eq!((page.status, page.header("etag")), (304, Some("\"x\"")));
            assert_eq!(page.header("transfer-encoding"), None);
            let page = visitor.get("/204").await;
            assert_eq!((page.status, page.header("content-length")), (204, None));
            let page = visitor.get("/").await;
            assert_eq!(
                (page.status, page.header("content-length")),
                (200, Some("0"))
            );
            assert!(page.header("date").is_some());
        }
    }
    assert_eq!(app.connections(), 1);
    stage.finish().await;
}

#[tokio::test]
async fn a_body_that_ends_before_it_begins_ends_for_the_visitor_too() {
    let stage = Stage::start().await;
    let head = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
    let app = always(vec![send(format!("{head}0\r\n\r\n"))]).await;
    stage.serve(&[app.address]).await;
    for mut visitor in both_paths(&stage).await {
        for _ in 0..3 {
            let page = timeout(Duration::from_secs(10), visitor.get("/")).await;
            let page = page.expect("the end of the answer");
            assert_eq!((page.status, page.text()), (200, ""));
        }
    }
    assert_eq!(app.connections(), 1);
    stage.finish().await;
}

#[tokio::test]
async fn a_second_request_cannot_be_hidden_in_the_first() {
    let stage = Stage::start().await;
    let app = always(vec![ok("x")]).await;
    stage.serve(&[app.address]).await;
    let hidden = "GET /hidden HTTP/1.1\r\nHost: app.localhost\r\n\r\n";
    let length = hidden.len();
    for (framing, body) in [
        // A server that believes the length sees a request in the body, and one that believes the chunks after it.
        (
            format!("Content-Length: {length}\r\nTransfer-Encoding: chunked\r\n"),
            format!("0\r\n\r\n{hidden}"),
        ),
        (
            format!("Transfer-Encoding: chunked\r\nContent-Length: {length}\r\n"),
            format!("0\r\n\r\n{hidden}"),
        ),
        (
            format!("Content-Length: 0\r\nContent-Length: {length}\r\n"),
            hidden.into(),
        ),
        ("Content-Length: +5\r\n".into(), format!("12345{hidden}")),
        ("Content-Length : 5\r\n".into(), format!("12345{hidden}")),
        (
            "Transfer-Encoding: xchunked\r\n".into(),
            format!("0\r\n\r\n{hidden}"),
        ),
        (
            "Transfer-Encoding: chunked, identity\r\n".into(),
            format!("0\r\n\r\n{hidden}"),
        ),
        (
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n".into(),
            format!("0\r\n\r\n{hidden}"),
        ),
        (
            "Transfer-Encoding: gzip, chunked\r\n".into(),
            format!("0\r\n\r\n{hidden}"),
        ),
        (
            "Transfer-Encoding: chunked\r\n".into(),
            format!("5 5\r\n12345\r\n0\r\n\r\n{hidden}"),
        ),
    ] {
        for method in ["POST", "GET"] {
            let mut visitor = stage.visitor().await;
            let head = format!("{method} / HTTP/1.1\r\nHost: app.localhost\r\n{framing}\r\n");
            visitor.send_raw(format!("{head}{body}").as_bytes()).await;
            let page = visitor.response(method).await;
            let refused = page.as_ref().is_ok_and(|page| page.status == 400);
            // With both, chunks count, and nothing may follow on this connection.
            let closed = framing.contains("Content-Length") && framing.contains("Transfer");
            assert!(refused || closed, "{head}{page:?}");
            let closed = timeout(Duration::from_secs(5), visitor.is_closed()).await;
            assert_eq!(closed, Ok(true), "{head}");
        }
    }
    let mut visitor = stage.visitor().await;
    let page = visitor
        .request("GET", "/hidden", &[("Host", "other")], b"")
        .await;
    assert_eq!(page.unwrap().status, 400);
    let asked = app.requests();
    assert!(
        asked.iter().all(|it| !it.head.contains("/hidden")),
        "{asked:?}"
    );
    assert!(
        asked.iter().all(|it| !it.body.contains("/hidden")),
        "{asked:?}"
    );
    stage.finish().await;
}

#[tokio::test]
async fn visitors_may_speak_http2() {
    let stage = Stage::start().await;
    let app = App::start(|request| async move {
        let text = format!("{:?} {:?}", request.version(), request.headers());
        let mut response = Response::new(whole(text));
        let headers = response.headers_mut();
        headers.insert("connection", "x-hop".parse().unwrap());
        headers.insert("x-hop", "1".parse().unwrap());
        response
    })
    .await;
    stage.serve(&[app.address]).await;
    let modern = Modern::new(stage.address);
    let request = modern.request(Method::GET, "/x");
    let request = request.header("cookie", "a=b").header("cookie", "c=d");
    let response = request.header("te", "trailers").send().await.unwrap();
    assert_eq!(
        (response.version(), response.status().as_u16()),
        (http::Version::HTTP_2, 200)
    );
    assert_eq!(response.headers().get("x-hop"), None);
    let text = response.text().await.unwrap();
    assert!(text.starts_with("HTTP/1.1 "), "{text}");
    assert!(text.contains("\"cookie\": \"a=b; c=d\""), "{text}");
    let host = format!("\"host\": \"{HOST}:{}\"", stage.address.port());
    assert!(text.contains(&host), "{text}");
    assert!(!text.contains("\"te\""), "{text}");
    stage.finish().await;
}

#[tokio::test]
async fn cookies_are_not_for_the_domain_that_projects_share() {
    let stage = Stage::start().await;
    let response = "HTTP/1.1 200 OK\r\ncontent-length: 1\r\nSet-Cookie: a=1; Domain=.localhost; Path=/\r\nset-cookie: b=2; Domain=app.localhost\r\nset-cookie: c=3\r\n\r\nx";
    let app = always(vec![send(response)]).await;
    stage.serve(&[app.address]).await;
    for mut visitor in both_paths(&stage).await {
        let page = visitor.request("GET", "/", &[], b"").await.unwrap();
        let cookies = values(&page.headers, "set-cookie");
        assert_eq!(cookies, ["a=1; Path=/", "b=2; Domain=app.localhost", "c=3"]);
    }
}
