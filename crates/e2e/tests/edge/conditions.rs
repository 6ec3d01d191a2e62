//! What a client has already, and which part of a file it wants.

use crate::support::{deploy, roll_back, site};
use estrade_testkit::{TestApp, on_both_backends};
use std::time::Duration;

on_both_backends! {
    a_file_that_did_not_change_is_not_sent_again;
    a_roll_back_never_passes_for_what_was_live_in_between;
    of_two_releases_in_one_second_none_passes_for_the_other;
    parts_of_a_file;
    several_parts_in_one_response;
    a_part_is_sent_only_of_the_version_that_was_begun;
}

async fn a_file_that_did_not_change_is_not_sent_again(app: &TestApp) {
    let (ada, mut visitor) = site(app, "my-site", &[("a.txt", "same"), ("b.txt", "old")]).await;
    let (a, b) = (visitor.get("/a.txt").await, visitor.get("/b.txt").await);
    let tag = |page: &estrade_testkit::Page| page.header("etag").unwrap().to_owned();
    deploy(&ada, "my-site", &[("a.txt", "same"), ("b.txt", "new")]).await;
    let same = visitor
        .get_with("/a.txt", &[("if-none-match", &tag(&a))])
        .await;
    assert_eq!(
        (same.status, same.body.len(), same.header("etag")),
        (304, 0, Some(&*tag(&a)))
    );
    assert!(same.header("cache-control").is_some() && same.header("content-length").is_none());
    let changed = visitor
        .get_with("/b.txt", &[("if-none-match", &tag(&b))])
        .await;
    assert_eq!((changed.status, changed.text()), (200, "new"));
    let failed = visitor.get_with("/b.txt", &[("if-match", &tag(&b))]).await;
    assert_eq!(failed.status, 412);
}

async fn of_two_releases_in_one_second_none_passes_for_the_other(app: &TestApp) {
    let (ada, mut visitor) = site(app, "my-site", &[("a.txt", "first")]).await;
    for number in 0..20 {
        let before = visitor.get("/a.txt").await;
        let content = format!("number {number}");
        deploy(&ada, "my-site", &[("a.txt", &content)]).await;
        let date = before.header("last-modified").unwrap();
        let page = visitor.get("/a.txt").await;
        if page.header("last-modified") != Some(date) {
            continue;
        }
        let since = [("if-modified-since", date)];
        let asked = visitor.get_with("/a.txt", &since).await;
        assert_eq!((asked.status, asked.text()), (200, &*content));
        let part = [("if-range", date), ("range", "bytes=1-")];
        assert_eq!(visitor.get_with("/a.txt", &part).await.text(), content);
        return;
    }
    panic!("no two releases in one second");
}

async fn a_roll_back_never_passes_for_what_was_live_in_between(app: &TestApp) {
    let (ada, mut visitor) = site(app, "my-site", &[("a.txt", "one")]).await;
    let releases = ada.get("/v1/projects/my-site/releases").await;
    let first = releases.field("/releases/0/_id");
    // `Last-Modified` has seconds.
    tokio::time::sleep(Duration::from_millis(1100)).await;
    deploy(&ada, "my-site", &[("a.txt", "two")]).await;
    let two = visitor.get("/a.txt").await;
    let since = two.header("last-modified").unwrap().to_owned();
    let again = visitor
        .get_with("/a.txt", &[("if-modified-since", &since)])
        .await;
    assert_eq!(again.status, 304);
    tokio::time::sleep(Duration::from_millis(1100)).await;
    roll_back(&ada, &first).await;
    let back = visitor
        .get_with("/a.txt", &[("if-modified-since", &since)])
        .await;
    assert_eq!((back.status, back.text()), (200, "one"));
}

async fn parts_of_a_file(app: &TestApp) {
    let (_, mut visitor) = site(
        app,
        "my-site",
        &[("a.txt", "0123456789"), ("empty.txt", "")],
    )
    .await;
    for (range, body, described) in [
        ("bytes=0-3", "0123", "bytes 0-3/10"),
        ("bytes=7-", "789", "bytes 7-9/10"),
        ("bytes=-2", "89", "bytes 8-9/10"),
        ("bytes=5-100", "56789", "bytes 5-9/10"),
    ] {
        let page = visitor.get_with("/a.txt", &[("range", range)]).await;
        assert_eq!((page.status, page.text()), (206, body), "{range}");
        assert_eq!(page.header("content-range"), Some(described));
    }
    let page = visitor.get_with("/a.txt", &[("range", "bytes=10-")]).await;
    assert_eq!(
        (page.status, page.header("content-range")),
        (416, Some("bytes */10"))
    );
    for (path, range) in [("/a.txt", "lines=1-2"), ("/empty.txt", "bytes=0-5")] {
        assert_eq!(
            visitor.get_with(path, &[("range", range)]).await.status,
            200,
            "{range}"
        );
    }
    assert_eq!(
        visitor.get("/a.txt").await.header("accept-ranges"),
        Some("bytes")
    );
}

async fn several_parts_in_one_response(app: &TestApp) {
    let (_, mut visitor) = site(app, "my-site", &[("a.txt", "0123456789")]).await;
    let page = visitor
        .get_with("/a.txt", &[("range", "bytes=0-1, 8-9")])
        .await;
    assert_eq!(page.status, 206);
    let kind = page.header("content-type").unwrap();
    let boundary = kind
        .strip_prefix("multipart/byteranges; boundary=")
        .unwrap();
    let part = |range: &str, body: &str| {
        format!(
            "\r\n--{boundary}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Range: bytes {range}/10\r\n\r\n{body}"
        )
    };
    let whole = format!(
        "{}{}\r\n--{boundary}--\r\n",
        part("0-1", "01"),
        part("8-9", "89")
    );
    assert_eq!(page.text(), whole);
}

async fn a_part_is_sent_only_of_the_version_that_was_begun(app: &TestApp) {
    let (ada, mut visitor) = site(app, "my-site", &[("a.txt", "0123456789")]).await;
    let first = visitor.get("/a.txt").await;
    let (tag, date) = (
        first.header("etag").unwrap(),
        first.header("last-modified").unwrap(),
    );
    for value in [tag, date] {
        let page = visitor
            .get_with("/a.txt", &[("range", "bytes=8-"), ("if-range", value)])
            .await;
        assert_eq!((page.status, page.text()), (206, "89"), "{value}");
    }
    deploy(&ada, "my-site", &[("a.txt", "abcdefghij")]).await;
    let page = visitor
        .get_with("/a.txt", &[("range", "bytes=8-"), ("if-range", tag)])
        .await;
    assert_eq!((page.status, page.text()), (200, "abcdefghij"));
}
