//! Files: names, types, codings, what is found at which path.

use crate::support::{deploy, deploy_body, new_project, site};
use base64::Engine as _;
use estrade_testkit::{EdgeClient, Page};
use estrade_testkit::{TestApp, on_both_backends};
use serde_json::json;
use std::time::Duration;

on_both_backends! {
    paths_lead_where_people_expect;
    files_say_what_they_are;
    how_long_a_file_may_be_kept_depends_on_its_name;
    hidden_files_and_rules_are_not_served;
    names_in_other_scripts_work_encoded;
    nothing_outside_the_site_can_be_reached;
    only_get_and_head_are_for_files;
    the_nearest_page_says_not_found;
    an_application_responds_for_its_own_routes;
    clean_urls_can_be_switched_off;
    files_of_all_sizes_come_back_byte_for_byte;
    compressed_variants_are_sent_to_who_takes_them;
    what_is_given_again_is_the_same;
    what_was_given_is_not_given_again_once_it_has_changed;
}

async fn paths_lead_where_people_expect(app: &TestApp) {
    let files = [
        ("index.html", "home"),
        ("about.html", "about"),
        ("docs/index.html", "docs"),
        ("docs/install.html", "install"),
        ("data.json", "{}"),
    ];
    let (_, mut visitor) = site(app, "my-site", &files).await;
    for (path, body) in [
        ("/", "home"),
        ("/index.html", "home"),
        ("/about", "about"),
        ("/about.html", "about"),
        ("/about?x=1", "about"),
        ("/docs/", "docs"),
        ("/docs/install", "install"),
        ("//docs//install", "install"),
        ("/docs/../about", "about"),
        ("/data.json", "{}"),
    ] {
        let page = visitor.get(path).await;
        assert_eq!((page.status, page.text()), (200, body), "{path}");
    }
    for (path, location) in [
        ("/docs", "/docs/"),
        ("/docs?a=b", "/docs/?a=b"),
        ("/about/", "/about"),
        ("/docs/install/", "/docs/install"),
    ] {
        let page = visitor.get(path).await;
        assert_eq!(
            (page.status, page.header("location")),
            (301, Some(location)),
            "{path}"
        );
    }
    for path in [
        "/nothing",
        "/docs/nothing/",
        "/about.html/",
        "/data",
        "/index.html/x",
    ] {
        assert_eq!(visitor.get(path).await.status, 404, "{path}");
    }
}

async fn files_say_what_they_are(app: &TestApp) {
    let names = [
        ("index.html", "text/html; charset=utf-8"),
        ("app.js", "text/javascript; charset=utf-8"),
        ("style.css", "text/css; charset=utf-8"),
        ("data.json", "application/json"),
        ("logo.svg", "image/svg+xml"),
        ("font.woff2", "font/woff2"),
        ("module.wasm", "application/wasm"),
        ("notes.txt", "text/plain; charset=utf-8"),
        ("unknown.zzz", "application/octet-stream"),
        ("LICENSE", "application/octet-stream"),
    ];
    let files: Vec<_> = names.iter().map(|(name, _)| (*name, "x")).collect();
    let (_, mut visitor) = site(app, "my-site", &files).await;
    for (name, kind) in names {
        let page = visitor.get(&format!("/{name}")).await;
        assert_eq!(page.header("content-type"), Some(kind), "{name}");
    }
}

async fn how_long_a_file_may_be_kept_depends_on_its_name(app: &TestApp) {
    let files = [
        ("assets/app.3f2a9c1b.js", "1"),
        ("assets/index-DkA3_9fz.css", "1"),
        ("index.html", "1"),
        ("report-20240101.pdf", "1"),
    ];
    let (_, mut visitor) = site(app, "my-site", &files).await;
    for (path, _) in &files[..2] {
        let page = visitor.get(&format!("/{path}")).await;
        assert_eq!(
            page.header("cache-control"),
            Some("public, max-age=31536000, immutable")
        );
    }
    for (path, _) in &files[2..] {
        let page = visitor.get(&format!("/{path}")).await;
        assert_eq!(
            page.header("cache-control"),
            Some("public, max-age=0, must-revalidate")
        );
    }
}

async fn hidden_files_and_rules_are_not_served(app: &TestApp) {
    let files = [
        (".env", "SECRET=1"),
        (".git/config", "x"),
        ("a/.hidden/b", "x"),
        (".well-known/security.txt", "contact"),
        ("_redirects", "/x /y"),
        ("_headers", "/*\n  X-A: b"),
        ("index.html", "x"),
    ];
    let (_, mut visitor) = site(app, "my-site", &files).await;
    for path in [
        "/.env",
        "/%2eenv",
        "/.git/config",
        "/a/.hidden/b",
        "/_redirects",
        "/_headers",
    ] {
        assert_eq!(visitor.get(path).await.status, 404, "{path}");
    }
    assert_eq!(
        visitor.get("/.well-known/security.txt").await.text(),
        "contact"
    );
}

async fn names_in_other_scripts_work_encoded(app: &TestApp) {
    let files = [
        ("größe/naïve café.html", "1"),
        ("你好.txt", "2"),
        ("a+b&c.txt", "3"),
        ("100%.txt", "4"),
    ];
    let (_, mut visitor) = site(app, "my-site", &files).await;
    for (path, body) in [
        ("/gr%C3%B6%C3%9Fe/na%C3%AFve%20caf%C3%A9.html", "1"),
        ("/gr%c3%b6%c3%9fe/na%c3%afve%20caf%c3%a9", "1"),
        ("/%E4%BD%A0%E5%A5%BD.txt", "2"),
        ("/a+b&c.txt", "3"),
        ("/a%2Bb%26c.txt", "3"),
        ("/100%25.txt", "4"),
    ] {
        let page = visitor.get(path).await;
        assert_eq!((page.status, page.text()), (200, body), "{path}");
    }
}

async fn nothing_outside_the_site_can_be_reached(app: &TestApp) {
    let (_, _) = site(app, "my-site", &[("index.html", "x"), ("a/b.html", "y")]).await;
    for path in [
        "/../../etc/passwd",
        "/a/../../../etc/passwd",
        "/%2e%2e/%2e%2e/etc/passwd",
        "/..%2f..%2fetc%2fpasswd",
        "/a/%2e%2e%2f%2e%2e%2fetc/passwd",
        "/%c0%ae%c0%ae/etc/passwd",
        "/a%00.html",
        "/..%5c..%5cetc",
        "/%ff%fe",
        "/%",
        "/%zz",
    ] {
        let mut visitor = EdgeClient::connect(app.edge(), "my-site.localhost").await;
        let page = visitor.get(path).await;
        assert!(matches!(page.status, 400 | 404), "{path}: {}", page.status);
        assert!(!page.text().contains("root:"), "{path}");
    }
}

async fn only_get_and_head_are_for_files(app: &TestApp) {
    let (_, mut visitor) = site(app, "my-site", &[("index.html", "hello")]).await;
    let head = visitor.request("HEAD", "/", &[]).await;
    assert_eq!(
        (head.status, head.header("content-length")),
        (200, Some("5"))
    );
    let get = visitor.get("/").await;
    let but_date = |page: &estrade_testkit::Page| {
        let mut headers = page.headers.clone();
        headers.remove("date");
        headers
    };
    assert_eq!(but_date(&get), but_date(&head));
    for method in ["POST", "PUT", "DELETE", "OPTIONS", "PATCH"] {
        let mut visitor = EdgeClient::connect(app.edge(), "my-site.localhost").await;
        let page = visitor
            .request(method, "/", &[("content-length", "0")])
            .await;
        assert_eq!(
            (page.status, page.header("allow")),
            (405, Some("GET, HEAD")),
            "{method}"
        );
    }
}

async fn the_nearest_page_says_not_found(app: &TestApp) {
    let files = [
        ("404.html", "root"),
        ("docs/404.html", "docs"),
        ("index.html", "x"),
    ];
    let (_, mut visitor) = site(app, "my-site", &files).await;
    for (path, body) in [
        ("/x", "root"),
        ("/docs/x", "docs"),
        ("/docs/a/b/c", "docs"),
        ("/a/b", "root"),
    ] {
        let page = visitor.get_with(path, &[("if-none-match", "*")]).await;
        assert_eq!((page.status, page.text()), (404, body), "{path}");
        assert_eq!(page.header("etag"), None);
    }
}

async fn an_application_responds_for_its_own_routes(app: &TestApp) {
    let ada = app.new_account("ada").await;
    new_project(&ada, "my-app").await;
    let body = json!({
        "platformConfig": {"spa": true},
        "files": [{"path": "index.html", "data": "app"}, {"path": "main.js", "data": "js"}],
    });
    deploy_body(&ada, "my-app", &body).await;
    let mut visitor = EdgeClient::connect(app.edge(), "my-app.localhost").await;
    for path in ["/", "/users/42", "/deep/down/", "/page.html"] {
        let page = visitor.get(path).await;
        assert_eq!((page.status, page.text()), (200, "app"), "{path}");
    }
    assert_eq!(visitor.get("/main.js").await.text(), "js");
    // A script that is missing must not be answered with a page.
    assert_eq!(visitor.get("/missing.js").await.status, 404);
    let navigation = [("accept", "text/html,application/xhtml+xml")];
    assert_eq!(
        visitor
            .get_with("/users/john.doe", &navigation)
            .await
            .text(),
        "app"
    );
}

async fn clean_urls_can_be_switched_off(app: &TestApp) {
    let ada = app.new_account("ada").await;
    new_project(&ada, "my-app").await;
    let body = json!({
        "platformConfig": {"cleanUrls": false},
        "files": [{"path": "about.html", "data": "about"}],
    });
    deploy_body(&ada, "my-app", &body).await;
    let mut visitor = EdgeClient::connect(app.edge(), "my-app.localhost").await;
    assert_eq!(visitor.get("/about").await.status, 404);
    assert_eq!(visitor.get("/about.html").await.status, 200);
}

/// Bytes that do not repeat in a way that a mistake could hide behind.
fn noise(length: usize) -> Vec<u8> {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()[0]
    };
    (0..length).map(|_| next()).collect()
}

async fn files_of_all_sizes_come_back_byte_for_byte(app: &TestApp) {
    let ada = app.new_account("ada").await;
    new_project(&ada, "sizes").await;
    let sizes = [0, 1, 1023, 65_535, 65_536, 65_537, 1 << 20, (3 << 20) + 7];
    let encode = |size| base64::engine::general_purpose::STANDARD.encode(noise(size));
    let file =
        |size| json!({"path": format!("{size}.bin"), "data": encode(size), "encoding": "base64"});
    let files: Vec<_> = sizes.into_iter().map(file).collect();
    deploy_body(&ada, "sizes", &json!({ "files": files })).await;
    let mut visitor = EdgeClient::connect(app.edge(), "sizes.localhost").await;
    for _ in 0..2 {
        for size in sizes {
            let page = visitor.get(&format!("/{size}.bin")).await;
            assert!(page.status == 200 && page.body == noise(size), "{size}");
        }
    }
    let http2 = reqwest::Client::builder()
        .no_proxy()
        .resolve("sizes.localhost", app.edge())
        .http2_prior_knowledge()
        .resolve("sizes.localhost", app.edge())
        .build()
        .unwrap();
    for size in sizes {
        let url = format!("http://sizes.localhost:{}/{size}.bin", app.edge().port());
        let response = http2.get(url).send().await.unwrap();
        assert_eq!(response.version(), reqwest::Version::HTTP_2);
        assert_eq!(response.status(), 200, "{size}");
        assert!(response.bytes().await.unwrap() == noise(size), "{size}");
    }
}

async fn compressed_variants_are_sent_to_who_takes_them(app: &TestApp) {
    let text = "All work and no play makes Jack a dull boy. ".repeat(200);
    let (_, mut visitor) = site(app, "my-site", &[("long.html", &text), ("short.html", "x")]).await;
    let plain = visitor.get("/long.html").await;
    assert_eq!(
        (plain.header("content-encoding"), plain.header("vary")),
        (None, Some("accept-encoding"))
    );
    for (accept, coding, suffix) in [("gzip", "gzip", "-gz\""), ("zstd", "zstd", "-zst\"")] {
        let page = visitor
            .get_with("/long.html", &[("accept-encoding", accept)])
            .await;
        assert_eq!(page.header("content-encoding"), Some(coding));
        assert!(page.header("etag").unwrap().ends_with(suffix));
        assert!(page.body.len() < text.len() / 2);
        let tag = page.header("etag").unwrap().to_owned();
        let again = [("accept-encoding", accept), ("if-none-match", &*tag)];
        assert_eq!(visitor.get_with("/long.html", &again).await.status, 304);
    }
    let short = visitor
        .get_with("/short.html", &[("accept-encoding", "gzip, br, zstd")])
        .await;
    assert_eq!(
        (short.header("content-encoding"), short.header("vary")),
        (None, None)
    );
    // A range is of the content as it is.
    let part = [("accept-encoding", "gzip"), ("range", "bytes=0-7")];
    let part = visitor.get_with("/long.html", &part).await;
    assert_eq!((part.status, part.text()), (206, "All work"));
    assert_eq!(part.header("content-encoding"), None);
}

/// A page without what may differ from one moment to the next.
fn timeless(mut page: Page) -> Page {
    page.headers.remove("date");
    page
}

async fn what_is_given_again_is_the_same(app: &TestApp) {
    let text = "All work and no play. ".repeat(100);
    let large = "0123456789abcdef".repeat(5000);
    let files = [
        ("index.html", "home"),
        ("about.html", "about"),
        ("docs/index.html", "docs"),
        ("empty.txt", ""),
        ("text.txt", &*text),
        ("large.txt", &*large),
        ("app.3f2a9c1b.js", "x"),
        ("page-3f2a9c1b.html", "hashed"),
        ("LICENSE", "free"),
    ];
    let (_, mut one) = site(app, "my-site", &files).await;
    // Brotli follows in the background. Until it is there, the same request may get another coding.
    for path in ["/text.txt", "/large.txt"] {
        let brotli = [("Accept-Encoding", "br")];
        while one.get_with(path, &brotli).await.header("content-encoding") != Some("br") {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
    let paths = [
        "/",
        "/about",
        "/about.html",
        "/docs/",
        "/empty.txt",
        "/text.txt",
        "/large.txt",
        "/app.3f2a9c1b.js",
        "/page-3f2a9c1b",
        "/LICENSE",
        "/a%62out",
        "/nothing",
    ];
    let codings = [
        None,
        Some("gzip"),
        Some("br, zstd, gzip;q=0.1"),
        Some("*;q=0, identity"),
    ];
    for path in paths {
        for coding in codings {
            let coding: Vec<_> = coding
                .map(|it| ("Accept-Encoding", it))
                .into_iter()
                .collect();
            let first = timeless(one.get_with(path, &coding).await);
            // At many moments: in some of them it is looked up, to keep the caches aware.
            for _ in 0..70 {
                app.core().clock.advance(Duration::from_millis(1));
                let again = timeless(one.get_with(path, &coding).await);
                assert_eq!(again, first, "{path} {coding:?}");
            }
            let head = timeless(one.request("HEAD", path, &coding).await);
            assert_eq!(head.headers, first.headers, "{path} {coding:?}");
            let tag = first.header("etag").unwrap_or("none");
            let known = [&coding[..], &[("If-None-Match", tag)]].concat();
            let status = if first.status == 200 { 304 } else { 404 };
            assert_eq!(one.get_with(path, &known).await.status, status, "{path}");
            let range = one.get_with(path, &[("Range", "bytes=0-0")]).await;
            // Of nothing there is no first byte, so all of it is sent.
            let status = match (first.status, path) {
                (200, "/empty.txt") => 200,
                (200, _) => 206,
                (other, _) => other,
            };
            assert_eq!(range.status, status, "{path}");
        }
    }
}

async fn what_was_given_is_not_given_again_once_it_has_changed(app: &TestApp) {
    let (ada, mut visitor) = site(app, "my-site", &[("a.txt", "one"), ("b.txt", "b")]).await;
    for _ in 0..3 {
        assert_eq!(visitor.get("/a.txt").await.text(), "one");
        assert_eq!(visitor.get("/b.txt").await.text(), "b");
    }
    let earlier = visitor.get("/b.txt").await;
    app.core().clock.advance(Duration::from_mins(1));
    let rules = "/a.txt\n  X-Ruled: yes\n";
    deploy(&ada, "my-site", &[("a.txt", "two"), ("_headers", rules)]).await;
    let page = visitor.get("/a.txt").await;
    assert_eq!((page.text(), page.header("x-ruled")), ("two", Some("yes")));
    assert_ne!(
        page.header("last-modified"),
        earlier.header("last-modified")
    );
    assert_eq!(visitor.get("/b.txt").await.status, 404);
    deploy(
        &ada,
        "my-site",
        &[("_redirects", "/a.txt /b.txt 302"), ("b.txt", "c")],
    )
    .await;
    assert_eq!(visitor.get("/a.txt").await.status, 302);
    assert_eq!(visitor.get("/b.txt").await.text(), "c");
}
