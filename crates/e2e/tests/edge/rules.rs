//! `_redirects` and `_headers`.

use crate::support::{deploy, new_project, site};
use estrade_testkit::{TestApp, on_both_backends};
use serde_json::json;

on_both_backends! {
    redirects_send_people_on;
    rewrites_stay_inside_the_site;
    headers_are_added_where_their_pattern_fits;
    rules_that_stay_the_same_stay_in_force;
    too_many_rules_fail_the_release_and_say_where;
    the_first_of_many_rules_wins;
}

async fn too_many_rules_fail_the_release_and_say_where(app: &TestApp) {
    let ada = app.new_account("ada").await;
    new_project(&ada, "my-site").await;
    for (file, rules, message) in [
        (
            "_redirects",
            "/a /b 302\n".repeat(2001),
            "_redirects, line 2001: at most 2000 rules are allowed",
        ),
        (
            "_redirects",
            "/:a/b /b 302\n".repeat(101),
            "_redirects, line 101: at most 100 rules with placeholders are allowed",
        ),
        (
            "_headers",
            format!("{}\n  x: y\n", "/a".repeat(33)),
            "_headers, line 1: a path has at most 32 segments",
        ),
    ] {
        let body = json!({"files": [
            {"path": file, "data": rules},
            {"path": "index.html", "data": "x"},
        ]});
        let created = ada.post("/v2/projects/my-site/releases", &body).await;
        let release = created.assert(201).field("/releaseID");
        let path = format!("/v1/releases/{release}?wait=READY&timeout=60");
        let ended = ada.get(&path).await.assert(200);
        assert_eq!(ended.field("/release/state"), "FAILED", "{message}");
        assert_eq!(ended.field("/release/failReason"), "rules_exceeded");
        let said = ended.field("/release/failMessage");
        assert!(said.starts_with(message), "{said}");
    }
}

/// Rules of all kinds side by side: whatever is looked up how, their order decides.
async fn the_first_of_many_rules_wins(app: &TestApp) {
    let exact = |number: usize| format!("/many/{number} /exact/{number} 302\n");
    let rules = format!(
        "{}/many/:id /named/:id 302\n/many/* /rest/:splat 302\n/many/7000 /late 302\n/* /any 302\n",
        (0..1900).map(exact).collect::<String>()
    );
    let files = [("_redirects", rules.as_str()), ("index.html", "x")];
    let (_, mut visitor) = site(app, "my-site", &files).await;
    for (path, location) in [
        ("/many/0", "/exact/0"),
        ("/many/1899/", "/exact/1899"),
        ("/many/1900", "/named/1900"),
        ("/many/7000", "/named/7000"),
        ("/many/7000/x", "/rest/7000/x"),
        ("/many/", "/rest/"),
        ("/other", "/any"),
    ] {
        let page = visitor.get(path).await;
        assert_eq!(
            (page.status, page.header("location")),
            (302, Some(location)),
            "{path}"
        );
    }
}

async fn redirects_send_people_on(app: &TestApp) {
    let rules = "/old /new\n/temp /new 302\n/blog/* /news/:splat 308\n/u/:id /users?id=:id\n/out https://example.com/x 307\n/real /elsewhere\n/forced /elsewhere 301!\n";
    let files = [
        ("_redirects", rules),
        ("real.html", "real"),
        ("forced.html", "forced"),
        ("index.html", "x"),
    ];
    let (_, mut visitor) = site(app, "my-site", &files).await;
    for (path, status, location) in [
        ("/old", 301, "/new"),
        ("/old?a=1", 301, "/new?a=1"),
        ("/temp", 302, "/new"),
        ("/blog/2024/x", 308, "/news/2024/x"),
        ("/u/7", 301, "/users?id=7"),
        ("/out", 307, "https://example.com/x"),
        ("/forced", 301, "/elsewhere"),
    ] {
        let page = visitor.get(path).await;
        assert_eq!(
            (page.status, page.header("location")),
            (status, Some(location)),
            "{path}"
        );
    }
    // A file wins over a rule that is not forced.
    assert_eq!(visitor.get("/real").await.text(), "real");
}

async fn rewrites_stay_inside_the_site(app: &TestApp) {
    let rules = "/app/* /app.html 200\n/gone/* /gone.html 404\n/proxy/* https://example.com/:splat 200\n/hidden /.env 200\n/up /../../etc/passwd 200\n/history /.git 200\n/any/* /:splat 200\n";
    let files = [
        ("_redirects", rules),
        ("app.html", "app"),
        ("gone.html", "gone"),
        (".env", "SECRET"),
        (".git/index.html", "SECRET"),
        ("100%.txt", "percent"),
        ("app/real.txt", "real"),
    ];
    let (_, mut visitor) = site(app, "my-site", &files).await;
    for (path, status, body) in [
        ("/app/any/thing", 200, "app"),
        ("/app/real.txt", 200, "real"),
        ("/gone/x", 404, "gone"),
        ("/any/100%25.txt", 200, "percent"),
        ("/any/app/real.txt", 200, "real"),
    ] {
        let page = visitor.get(path).await;
        assert_eq!((page.status, page.text()), (status, body), "{path}");
    }
    for path in [
        "/proxy/x",
        "/hidden",
        "/up",
        "/history",
        "/any/.env",
        "/any/.git",
        "/any/%252egit/",
    ] {
        let page = visitor.get(path).await;
        assert!(matches!(page.status, 400 | 404), "{path}");
        assert!(!page.text().contains("SECRET"), "{path}");
    }
}

async fn headers_are_added_where_their_pattern_fits(app: &TestApp) {
    let rules = "/*\n  X-Frame-Options: DENY\n  Content-Length: 1\n  Set-Cookie: a=1\n  Set-Cookie: b=2; Domain=localhost; Path=/\n/api/*\n  Access-Control-Allow-Origin: *\n  Cache-Control: no-store\n";
    let files = [
        ("_headers", rules),
        ("index.html", "home"),
        ("api/data.json", "{}"),
        ("404.html", "no"),
    ];
    let (_, mut visitor) = site(app, "my-site", &files).await;
    let home = visitor.get("/").await;
    assert_eq!(
        (home.text(), home.header("x-frame-options")),
        ("home", Some("DENY"))
    );
    assert_eq!(home.header("set-cookie"), Some("a=1, b=2; Path=/"));
    assert_eq!(home.header("access-control-allow-origin"), None);
    let data = visitor.get("/api/data.json").await;
    assert_eq!(data.header("access-control-allow-origin"), Some("*"));
    assert_eq!(data.header("cache-control"), Some("no-store"));
    assert_eq!(data.header("x-frame-options"), Some("DENY"));
    let missing = visitor.get("/x").await;
    assert_eq!(
        (missing.status, missing.header("x-frame-options")),
        (404, Some("DENY"))
    );
}

/// A release is loaded with what is known of the one before: its rules are read all the same.
async fn rules_that_stay_the_same_stay_in_force(app: &TestApp) {
    let files = |page: &'static str| {
        [
            ("_redirects", "/old /new\n"),
            ("_headers", "/*\n  x-said: yes\n"),
            ("index.html", page),
        ]
    };
    let (ada, mut visitor) = site(app, "my-site", &files("one")).await;
    for text in ["one", "two", "three"] {
        deploy(&ada, "my-site", &files(text)).await;
        let page = visitor.get("/").await;
        assert_eq!((page.text(), page.header("x-said")), (text, Some("yes")));
        let sent_on = visitor.get("/old").await;
        assert_eq!(
            (sent_on.status, sent_on.header("location")),
            (301, Some("/new")),
            "{text}"
        );
    }
}
