//! Incremental deploys: files named by their digests, and contents sent ahead.

use crate::support::{deploy, ended, fields, new_project, site};
use estrade_blobs::Digest;
use estrade_testkit::{ApiResponse, Setup, TestApp, User, on_both_backends};
use http::Method;
use serde_json::{Value, json};

on_both_backends! {
    only_what_changed_is_sent;
    all_that_is_missing_is_listed_once;
    contents_of_others_do_not_exist;
    a_wrong_size_is_named;
    digest_and_data_must_agree;
    a_blob_is_checked_and_kept_once;
    a_bad_blob_leaves_nothing_behind with small_caps;
    a_large_blob_comes_in_pieces;
    a_missing_file_is_no_final_response;
    ten_thousand_files_can_be_missing;
    what_was_marked_is_kept_again;
    many_contents_come_at_once;
}

const PATH: &str = "/v2/projects/shop/releases";

fn small_caps() -> Setup {
    Setup::with(|setup| setup.settings.max_release_bytes = 2000)
}

fn named(path: &str, content: &str) -> Value {
    json!({"path": path, "digest": Digest::of(content.as_bytes()), "size": content.len()})
}

async fn put(user: &User, project: &str, digest: &str, content: &[u8]) -> ApiResponse {
    let path = format!("/v2/projects/{project}/blobs/{digest}");
    user.call(Method::PUT, &path).bytes(content).await
}

async fn put_content(user: &User, project: &str, content: &str) -> ApiResponse {
    let digest = Digest::of(content.as_bytes()).to_string();
    put(user, project, &digest, content.as_bytes()).await
}

async fn only_what_changed_is_sent(app: &TestApp) {
    let ada = app.new_account("ada").await;
    new_project(&ada, "shop").await;
    let content = |number: usize| format!("page {number}");
    let all: Vec<_> = (0..200)
        .map(|number| json!({"path": format!("{number}.html"), "data": content(number)}))
        .collect();
    let first = deploy(&ada, "shop", &json!({"files": all})).await;
    assert_eq!(ended(&ada, &first).await["state"], "READY");
    let mut files: Vec<_> = (0..200)
        .map(|number| named(&format!("{number}.html"), &content(number)))
        .collect();
    files[7] = named("7.html", "changed");
    files.push(json!({"path": "mixed.html", "data": "came along"}));
    let body = json!({"files": files});
    let refused = ada.post(PATH, &body).await.refused(409, "missing_files");
    let missing = &refused.json()["data"]["files"];
    let digest = Digest::of(b"changed").to_string();
    assert_eq!(*missing, json!([{"path": "7.html", "digest": digest}]));
    put(&ada, "shop", &digest, b"changed").await.assert(201);
    let second = deploy(&ada, "shop", &body).await;
    assert_eq!(ended(&ada, &second).await["state"], "READY");
    // The release is the one that would have been made from data.
    let mut sent = all;
    sent[7] = json!({"path": "7.html", "data": "changed"});
    sent.push(json!({"path": "mixed.html", "data": "came along"}));
    let third = deploy(&ada, "shop", &json!({"files": sent})).await;
    let source = async |id: &str| {
        let path = format!("/v2/releases/{id}/source");
        ada.get(&path).await.assert(200).body().to_vec()
    };
    assert_eq!(source(&second).await, source(&third).await);
    // What came with an older release, or was sent ahead, is still known.
    let files = json!([named("a", &content(7)), named("b", "changed")]);
    deploy(&ada, "shop", &json!({ "files": files })).await;
}

async fn all_that_is_missing_is_listed_once(app: &TestApp) {
    let ada = app.new_account("ada").await;
    new_project(&ada, "shop").await;
    let files = json!([
        named("a", "one"), named("b", "two"), named("c", "one"),
        {"path": "d", "data": "three"}, named("e", "three"),
    ]);
    let before = app.blobs();
    let response = ada.post(PATH, &json!({ "files": files })).await;
    let response = response.refused(409, "missing_files").naming("2 of");
    let data = &response.json()["data"];
    assert_eq!(fields(data), ["code", "files"]);
    let expected = json!([
        {"path": "a", "digest": Digest::of(b"one")},
        {"path": "b", "digest": Digest::of(b"two")},
    ]);
    assert_eq!(data["files"], expected);
    assert_eq!(app.blobs(), before, "nothing is left of a refused release");
    let list = ada.get("/v1/projects/shop/releases").await.json();
    assert_eq!(list["total"], 0);
}

async fn contents_of_others_do_not_exist(app: &TestApp) {
    let (ada, eve) = (app.new_account("ada").await, app.new_account("eve").await);
    new_project(&ada, "shop").await;
    new_project(&ada, "second").await;
    new_project(&eve, "other").await;
    let secret = "a content that only one project has";
    let body = json!({"files": [{"path": "secret.html", "data": secret}]});
    deploy(&ada, "shop", &body).await;
    put_content(&ada, "shop", "sent ahead").await.assert(201);
    let told = async |user: &User, project: &str, content: &str| {
        let path = format!("/v2/projects/{project}/releases");
        let response = user
            .post(&path, &json!({"files": [named("x", content)]}))
            .await;
        let response = response.refused(409, "missing_files");
        let digest = Digest::of(content.as_bytes()).to_string();
        response.text().replace(&digest, "")
    };
    let nothing = told(&eve, "other", "nobody has this").await;
    for content in [secret, "sent ahead"] {
        assert_eq!(told(&eve, "other", content).await, nothing);
        // Not even the same owner's other project, which may have other members one day.
        assert_eq!(told(&ada, "second", content).await, nothing);
        // A wrong size tells no more.
        let digest = Digest::of(content.as_bytes());
        let files = json!([{"path": "x", "digest": digest, "size": 1}]);
        let response = eve
            .post("/v2/projects/other/releases", &json!({ "files": files }))
            .await;
        response.refused(409, "missing_files");
    }
    // A project that has the content may send it, and then has it.
    put_content(&eve, "other", secret).await.assert(201);
    deploy(&eve, "other", &json!({"files": [named("x", secret)]})).await;
    // A viewer sends nothing, a stranger sees no project.
    put_content(&eve, "shop", secret)
        .await
        .refused(404, "not_found");
}

async fn a_wrong_size_is_named(app: &TestApp) {
    let ada = app.new_account("ada").await;
    new_project(&ada, "shop").await;
    deploy(&ada, "shop", &site()).await;
    let digest = Digest::of(b"<h1>Hello</h1>");
    for size in [0, 13, 15] {
        let files = json!([{"path": "page.html", "digest": digest, "size": size}]);
        let response = ada.post(PATH, &json!({ "files": files })).await;
        response.refused(400, "invalid").naming("page.html");
    }
    for (digest, size) in [
        (json!("AB"), json!(1)),
        (json!(digest.to_string().to_uppercase()), json!(14)),
        (json!(1), json!(14)),
        (json!(digest), json!(-1)),
        (json!(digest), json!("14")),
        (json!(digest), Value::Null),
    ] {
        let files = json!([{"path": "page.html", "digest": digest, "size": size}]);
        let response = ada.post(PATH, &json!({ "files": files })).await;
        response.refused(400, "invalid").naming("files");
    }
}

async fn digest_and_data_must_agree(app: &TestApp) {
    let ada = app.new_account("ada").await;
    new_project(&ada, "shop").await;
    let mut file = named("a", "one");
    file["data"] = json!("one");
    deploy(&ada, "shop", &json!({ "files": [file] })).await;
    for wrong in [
        json!({"path": "a", "data": "two", "digest": Digest::of(b"one")}),
        json!({"path": "a", "data": "two", "size": 4}),
        json!({"path": "a", "size": 4}),
        json!({"path": "a"}),
    ] {
        let response = ada.post(PATH, &json!({ "files": [wrong] })).await;
        response.refused(400, "invalid").naming("`a`");
    }
}

async fn a_blob_is_checked_and_kept_once(app: &TestApp) {
    let ada = app.new_account("ada").await;
    new_project(&ada, "shop").await;
    let content = "a content that is easy to find on disk";
    let response = put_content(&ada, "shop", content).await.assert(201);
    let digest = Digest::of(content.as_bytes());
    assert_eq!(
        response.json(),
        json!({"digest": digest, "size": content.len()})
    );
    assert_eq!(app.blobs().holding(content.as_bytes()).len(), 1);
    put_content(&ada, "shop", content).await.assert(200);
    assert_eq!(app.blobs().holding(content.as_bytes()).len(), 1);
    put_content(&ada, "shop", "").await.assert(201);
    // Any type, and the length need not be known.
    let path = format!("/v2/projects/shop/blobs/{digest}");
    let call = ada.call(Method::PUT, &path).bytes(content);
    call.header("content-type", "image/png").await.assert(200);
}

async fn a_bad_blob_leaves_nothing_behind(app: &TestApp) {
    let ada = app.new_account("ada").await;
    new_project(&ada, "shop").await;
    let before = app.blobs();
    let digest = Digest::of(b"what was announced").to_string();
    put(&ada, "shop", &digest, b"something else")
        .await
        .refused(400, "digest_mismatch");
    for bad in ["abc", &digest.to_uppercase(), "..%2F..%2Fetc"] {
        put(&ada, "shop", bad, b"x")
            .await
            .refused(400, "invalid")
            .naming("digest");
    }
    let large = "x".repeat(2001);
    put_content(&ada, "shop", &large)
        .await
        .refused(413, "too_large");
    put_content(&ada, "nothing", "x")
        .await
        .refused(404, "not_found");
    assert_eq!(app.blobs(), before);
    let files = json!([{"path": "a", "digest": digest, "size": 18}]);
    let response = ada.post(PATH, &json!({ "files": files })).await;
    response.refused(409, "missing_files");
    // A release's caps count what is only named.
    let files = json!([{"path": "a", "digest": digest, "size": 2001}]);
    let response = ada.post(PATH, &json!({ "files": files })).await;
    response.refused(413, "too_large");
}

async fn a_large_blob_comes_in_pieces(app: &TestApp) {
    let ada = app.new_account("ada").await;
    new_project(&ada, "shop").await;
    let large = "0123456789abcdef\n".repeat(200_000);
    put_content(&ada, "shop", &large).await.assert(201);
    let release = deploy(
        &ada,
        "shop",
        &json!({"files": [named("large.txt", &large)]}),
    )
    .await;
    assert_eq!(ended(&ada, &release).await["state"], "READY");
    let path = format!("/v2/releases/{release}/source");
    let archive = ada.get(&path).await.assert(200);
    let files = super::sources::unpack(archive.body());
    assert!(files["large.txt"] == large.as_bytes());
}

async fn a_missing_file_is_no_final_response(app: &TestApp) {
    let ada = app.new_account("ada").await;
    new_project(&ada, "shop").await;
    let body = json!({"files": [named("a", "one")]});
    let send = async || {
        ada.post(PATH, &body)
            .header("idempotency-key", "once")
            .await
    };
    for _ in 0..2 {
        let response = send().await.refused(409, "missing_files");
        assert!(!response.has_header("idempotency-replayed"));
    }
    put_content(&ada, "shop", "one").await.assert(201);
    let made = send().await.assert(201);
    let again = send().await.assert(201);
    assert_eq!(again.header("idempotency-replayed"), "true");
    assert_eq!(again.json(), made.json());
}

async fn ten_thousand_files_can_be_missing(app: &TestApp) {
    let ada = app.new_account("ada").await;
    new_project(&ada, "shop").await;
    let folder = "a-folder-with-a-long-name/".repeat(10);
    let files: Vec<_> = (0..10_000)
        .map(|number| named(&format!("{folder}{number}"), &number.to_string()))
        .collect();
    let body = json!({ "files": files });
    let call = ada.post(PATH, &body).header("idempotency-key", "large");
    let response = call.await.refused(409, "missing_files");
    let missing = response.json()["data"]["files"].as_array().unwrap().len();
    assert_eq!(missing, 10_000);
}

async fn what_was_marked_is_kept_again(app: &TestApp) {
    let ada = app.new_account("ada").await;
    new_project(&ada, "shop").await;
    deploy(&ada, "shop", &site()).await;
    put_content(&ada, "shop", "ahead").await.assert(201);
    let mark = async || {
        let marked = app.core().db.transact(|tx| {
            Box::pin(async move {
                let all = tx.query("UPDATE blobs SET condemned_at = 1");
                all.execute().await
            })
        });
        assert_eq!(marked.await.unwrap(), 3);
    };
    let left = async || -> i64 {
        let sql = "SELECT count(*) FROM blobs WHERE condemned_at IS NOT NULL";
        app.core().db.read(sql).fetch_one().await.unwrap()
    };
    mark().await;
    put_content(&ada, "shop", "ahead").await.assert(200);
    assert_eq!(left().await, 2);
    mark().await;
    deploy(&ada, "shop", &site()).await;
    assert_eq!(left().await, 1);
    mark().await;
    let files = json!([named("a", "ahead"), named("b", "<h1>Hello</h1>")]);
    deploy(&ada, "shop", &json!({ "files": files })).await;
    // Of these two the newest release has one: a mark on that changes nothing.
    assert_eq!(left().await, 2);
}

async fn many_contents_come_at_once(app: &TestApp) {
    let ada = app.new_account("ada").await;
    new_project(&ada, "shop").await;
    let contents: Vec<_> = (0..100).map(|number| format!("content {number}")).collect();
    let mut sending = tokio::task::JoinSet::new();
    // Each of them twice, so that pairs meet.
    for content in contents.iter().chain(&contents) {
        let (ada, content) = (ada.clone(), content.clone());
        sending.spawn(async move { put_content(&ada, "shop", &content).await.status() });
    }
    let answers = sending.join_all().await;
    let made = answers.iter().filter(|status| **status == 201).count();
    assert_eq!((made, answers.len()), (100, 200), "{answers:?}");
    let files: Vec<_> = contents
        .iter()
        .map(|content| named(content, content))
        .collect();
    let body = json!({ "files": files });
    let release = deploy(&ada, "shop", &body).await;
    assert_eq!(ended(&ada, &release).await["state"], "READY");
}
