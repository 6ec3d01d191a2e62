//! Releases: the list, one of them, back to an earlier one.

use super::support::{Person, deploy, new_project, wait_ready};
use estrade_testkit::{TestApp, on_both_backends};
use serde_json::json;

on_both_backends! {
    a_release_is_rolled_back_without_javascript;
    what_clients_say_of_a_release_is_inert;
    a_build_log_is_shown_streamed_and_downloaded;
    a_release_belongs_to_its_project;
}

async fn a_release_is_rolled_back_without_javascript(app: &TestApp) {
    let ada = Person::sign_in(app, "ada").await;
    new_project(&ada.user, "shop", "static").await;
    let first = deploy(&ada.user, "shop", &json!({"message": "one"})).await;
    deploy(&ada.user, "shop", &json!({"message": "two"})).await;
    let list = ada
        .get("/panel/projects/shop/releases")
        .await
        .assert(200)
        .text();
    for shown in [
        "one",
        "two",
        "Current",
        "Roll back to v1?",
        "ada of Example",
    ] {
        assert!(list.contains(shown), "{shown}: {list}");
    }
    let path = format!("/panel/projects/shop/releases/{first}/rollback");
    let question = ada.get(&path).await.assert(200).text();
    assert!(question.contains("Roll back to v1?"), "{question}");
    let done = ada.post(&path, &[]).await.assert(303);
    let new = done
        .header("location")
        .rsplit('/')
        .next()
        .unwrap()
        .to_owned();
    wait_ready(&ada.user, &new).await;
    let list = ada
        .get("/panel/projects/shop/releases")
        .await
        .assert(200)
        .text();
    assert!(
        list.contains("Roll back to v1") && list.contains("v3"),
        "{list}"
    );
    // The one that serves cannot be rolled back to, and a release that has ended not be canceled.
    let again = format!("/panel/projects/shop/releases/{new}/rollback");
    ada.post(&again, &[]).await.assert(409);
    let cancel = format!("/panel/projects/shop/releases/{new}/cancel");
    ada.post(&cancel, &[]).await.assert(409);
}

async fn what_clients_say_of_a_release_is_inert(app: &TestApp) {
    const PAYLOAD: &str =
        "\"><script>alert(1)</script><img src=x onerror=alert(2)>\u{1b}[31m\u{202e}";
    let ada = Person::sign_in(app, "ada").await;
    new_project(&ada.user, "shop", "static").await;
    let git = json!({"commit": PAYLOAD, "branch": PAYLOAD, "message": PAYLOAD, PAYLOAD: PAYLOAD});
    let body =
        json!({"files": [{"path": "index.html", "data": "x"}], "message": PAYLOAD, "gitInfo": git});
    let call = ada.user.post("/v2/projects/shop/releases", &body);
    let client = "\"><script>alert(3)</script>";
    let made = call.header("user-agent", client).await.assert(201);
    let release = made.field("/releaseID");
    wait_ready(&ada.user, &release).await;
    for page in [
        "/panel/projects/shop".to_owned(),
        "/panel/projects/shop/releases".to_owned(),
        format!("/panel/projects/shop/releases/{release}"),
    ] {
        let text = ada.get(&page).await.assert(200).text();
        assert!(
            !text.contains("<script>alert") && !text.contains("<img"),
            "{page}: {text}"
        );
        assert!(
            !text.contains('\u{1b}') && !text.contains('\u{202e}'),
            "{page}"
        );
        assert!(text.contains("alert(1)"), "{page}: it is shown as text");
    }
}

async fn a_build_log_is_shown_streamed_and_downloaded(app: &TestApp) {
    let ada = Person::sign_in(app, "ada").await;
    new_project(&ada.user, "shop", "static").await;
    // Sources that are deployed as a site: the log warns of that.
    let sources = ["index.html", "package.json", "vite.config.js"];
    let files = sources.map(|path| json!({"path": path, "data": "x"}));
    let release = deploy(&ada.user, "shop", &json!({ "files": files })).await;
    let path = format!("/panel/projects/shop/releases/{release}");
    let text = ada.get(&format!("{path}/log.txt")).await.assert(200);
    assert_eq!(text.header("content-type"), "text/plain; charset=utf-8");
    assert_eq!(text.header("x-content-type-options"), "nosniff");
    let line = text.text().lines().next().unwrap().to_owned();
    assert!(line.starts_with("Warning: "), "{line}");
    let page = ada.get(&path).await.assert(200).text();
    assert!(
        page.contains("Build log") && page.contains("Warning: "),
        "{page}"
    );
    // A release that has ended: every line, then the end.
    let stream = ada.get(&format!("{path}/log")).await.assert(200);
    assert_eq!(stream.header("content-type"), "text/event-stream");
    let events = stream.text();
    assert!(
        events.contains("event: line") && events.contains("event: end\ndata: over\n"),
        "{events}"
    );
    // Sibling sites are foreign.
    for site in ["same-site", "cross-site"] {
        let call = ada.unsigned(http::Method::GET, &format!("{path}/log"));
        call.header("sec-fetch-site", site).await.assert(403);
    }
    let source = ada.get(&format!("{path}/source")).await.assert(200);
    assert_eq!(
        source.header("content-disposition"),
        "attachment; filename=\"shop-v1.tar.gz\""
    );
}

async fn a_release_belongs_to_its_project(app: &TestApp) {
    let ada = Person::sign_in(app, "ada").await;
    new_project(&ada.user, "shop", "static").await;
    new_project(&ada.user, "blog", "static").await;
    let release = deploy(&ada.user, "shop", &json!({})).await;
    for rest in ["", "/log", "/log.txt", "/source", "/rollback"] {
        let path = format!("/panel/projects/blog/releases/{release}{rest}");
        ada.get(&path).await.assert(404);
    }
    let path = format!("/panel/projects/blog/releases/{release}/rollback");
    ada.post(&path, &[]).await.assert(404);
}
