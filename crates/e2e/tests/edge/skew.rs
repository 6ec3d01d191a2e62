//! Open pages go on working: assets of releases that were live a moment ago.

use crate::support::{deploy, roll_back, site};
use estrade_testkit::{Setup, TestApp, on_both_backends};
use std::time::Duration;

on_both_backends! {
    assets_of_earlier_releases_stay_for_a_while with one_minute;
    the_newest_earlier_release_wins with one_minute;
    many_releases_and_roll_backs_later_assets_are_still_there with one_minute;
    a_roll_back_keeps_the_assets_of_what_it_replaced with one_minute;
}

fn one_minute() -> Setup {
    Setup::with(|setup| setup.settings.skew = Duration::from_mins(1))
}

async fn assets_of_earlier_releases_stay_for_a_while(app: &TestApp) {
    let one = [
        ("index.html", "1"),
        ("app.aaaa1111.js", "one"),
        ("plain.js", "one"),
    ];
    let (ada, mut visitor) = site(app, "my-site", &one).await;
    deploy(
        &ada,
        "my-site",
        &[("index.html", "2"), ("app.bbbb2222.js", "two")],
    )
    .await;
    deploy(
        &ada,
        "my-site",
        &[("index.html", "3"), ("app.cccc3333.js", "three")],
    )
    .await;
    for (path, body) in [
        ("/app.aaaa1111.js", "one"),
        ("/app.bbbb2222.js", "two"),
        ("/app.cccc3333.js", "three"),
    ] {
        let page = visitor.get(path).await;
        assert_eq!((page.status, page.text()), (200, body), "{path}");
        assert_eq!(
            page.header("cache-control"),
            Some("public, max-age=31536000, immutable")
        );
    }
    // Names without a hash belong to the live release alone.
    assert_eq!(visitor.get("/plain.js").await.status, 404);
    assert_eq!(visitor.get("/").await.text(), "3");
    app.core().clock.advance(Duration::from_secs(90));
    for path in ["/app.aaaa1111.js", "/app.bbbb2222.js"] {
        assert_eq!(visitor.get(path).await.status, 404, "{path}");
    }
    assert_eq!(visitor.get("/app.cccc3333.js").await.status, 200);
}

async fn many_releases_and_roll_backs_later_assets_are_still_there(app: &TestApp) {
    let (ada, mut visitor) = site(app, "my-site", &[("app.aaaa1111.js", "oldest")]).await;
    let mut releases = Vec::new();
    for number in 0..22 {
        let page = format!("{number}");
        releases.push(deploy(&ada, "my-site", &[("index.html", page.as_str())]).await);
    }
    for release in releases.iter().skip(19) {
        roll_back(&ada, release).await;
    }
    assert_eq!(visitor.get("/app.aaaa1111.js").await.text(), "oldest");
}

async fn the_newest_earlier_release_wins(app: &TestApp) {
    let (ada, mut visitor) = site(app, "my-site", &[("lib.abcd1234.js", "first")]).await;
    deploy(&ada, "my-site", &[("lib.abcd1234.js", "second")]).await;
    deploy(&ada, "my-site", &[("index.html", "without")]).await;
    assert_eq!(visitor.get("/lib.abcd1234.js").await.text(), "second");
}

async fn a_roll_back_keeps_the_assets_of_what_it_replaced(app: &TestApp) {
    let (ada, mut visitor) = site(
        app,
        "my-site",
        &[("index.html", "1"), ("app.aaaa1111.js", "one")],
    )
    .await;
    let first = ada
        .get("/v1/projects/my-site/releases")
        .await
        .field("/releases/0/_id");
    deploy(
        &ada,
        "my-site",
        &[("index.html", "2"), ("app.bbbb2222.js", "two")],
    )
    .await;
    roll_back(&ada, &first).await;
    assert_eq!(visitor.get("/").await.text(), "1");
    assert_eq!(visitor.get("/app.aaaa1111.js").await.text(), "one");
    assert_eq!(visitor.get("/app.bbbb2222.js").await.text(), "two");
}
