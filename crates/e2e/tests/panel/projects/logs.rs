//! What instances wrote.

use super::support::{Person, new_project};
use estrade_store::log_blocks::{NewLogBlock, insert_block};
use estrade_testkit::{TestApp, on_both_backends};
use http::Method;
use std::time::Duration;
use tokio::time::timeout;

on_both_backends! {
    lines_are_shown_searched_and_inert;
    the_tail_is_for_our_own_pages;
}

/// In nanoseconds; long ago, lines would be removed as too old meanwhile.
const AT: i64 = 4_102_444_800_000_000_000;

async fn store(app: &TestApp, project: &str, instance: &str, lines: &[&str]) {
    let mut raw = Vec::new();
    for (index, text) in lines.iter().enumerate() {
        let since = if index == 0 { AT } else { 1_000_000_000 };
        raw.extend(since.to_be_bytes());
        raw.push(u8::from(text.starts_with('!')));
        raw.extend(u32::try_from(text.len()).unwrap().to_be_bytes());
        raw.extend(text.as_bytes());
    }
    let mut data = vec![1];
    data.extend(zstd::bulk::compress(&raw, 3).unwrap());
    let block = NewLogBlock {
        project: project.parse().unwrap(),
        release: "a".repeat(24).parse().unwrap(),
        instance: instance.to_owned(),
        first_at: AT,
        last_at: AT + i64::try_from(lines.len()).unwrap() * 1_000_000_000,
        lines: u32::try_from(lines.len()).unwrap(),
        data,
    };
    let now = app.core().now();
    let stored = app.core().db.transact(move |tx| {
        let block = block.clone();
        Box::pin(async move { insert_block(tx, &block, now).await })
    });
    assert!(stored.await.unwrap());
}

async fn lines_are_shown_searched_and_inert(app: &TestApp) {
    let ada = Person::sign_in(app, "ada").await;
    let project = new_project(&ada.user, "shop", "node").await;
    let page = ada
        .get("/panel/projects/shop/logs")
        .await
        .assert(200)
        .text();
    assert!(page.contains("Nothing was written yet"), "{page}");
    let long = "x".repeat(10_000);
    let hostile = [
        "</pre><script>alert(1)</script>",
        "!\u{1b}[31mred\u{1b}[0m \u{1b}]0;title\u{7}plain\0\u{202e}",
        &long,
        "needle",
    ];
    store(app, &project, "web-one-0123456789", &hostile).await;
    store(app, &project, "web-two-0123456789", &["from the other one"]).await;
    let page = ada
        .get("/panel/projects/shop/logs")
        .await
        .assert(200)
        .text();
    assert!(
        !page.contains("<script>alert") && page.contains("alert(1)"),
        "{page}"
    );
    assert!(page.contains("!red plain\u{fffd}\u{fffd}"), "{page}");
    assert!(!page.contains(&"x".repeat(4_001)) && page.contains(&"x".repeat(4_000)));
    assert!(page.contains("from the other one"));
    let found = ada
        .get("/panel/projects/shop/logs?q=NEEDLE")
        .await
        .assert(200)
        .text();
    assert!(
        found.contains("> needle\n") && !found.contains("plain\u{fffd}"),
        "{found}"
    );
    let one = "/panel/projects/shop/logs?instance=web-two-0123456789";
    let one = ada.get(one).await.assert(200).text();
    assert!(
        one.contains("from the other one") && !one.contains("needle"),
        "{one}"
    );
    let other = format!("/panel/projects/shop/logs?release={}", "b".repeat(24));
    let other = ada.get(&other).await.assert(200).text();
    assert!(other.contains("No line matches"), "{other}");
    for bad in ["release=x", &format!("q={}", "y".repeat(300))] {
        ada.get(&format!("/panel/projects/shop/logs?{bad}"))
            .await
            .assert(400);
    }
}

async fn the_tail_is_for_our_own_pages(app: &TestApp) {
    let ada = Person::sign_in(app, "ada").await;
    let project = new_project(&ada.user, "shop", "node").await;
    store(app, &project, "web-one", &["\u{1b}[1mfirst\u{1b}[0m"]).await;
    let path = "/panel/projects/shop/logs/stream";
    let mut tail = ada.unsigned(Method::GET, path).stream().await;
    let first = timeout(Duration::from_secs(20), tail.chunk())
        .await
        .unwrap();
    let events = String::from_utf8(first.unwrap().unwrap().to_vec()).unwrap();
    assert!(
        events.contains("event: line") && events.contains(r#""text":"first""#),
        "{events}"
    );
    for site in ["same-site", "cross-site"] {
        let call = ada.unsigned(Method::GET, path);
        call.header("sec-fetch-site", site).await.assert(403);
    }
    let call = ada.unsigned(Method::GET, path);
    call.header("origin", "http://shop.localhost:8080")
        .await
        .assert(403);
    // Neither the session's cookie alone at the API, nor a token at the panel.
    let api = ada.unsigned(Method::GET, "/v2/projects/shop/logs");
    api.await.refused(401, "unauthenticated");
    let token = ada.user.get(path).await;
    assert_eq!(token.status(), 303);
}
