//! Bodies that are not what they should be: 400 that says what is wrong, never 500.

use crate::support::new_key;
use estrade_testkit::{Api, TestApp, User, on_both_backends};
use http::Method;
use serde_json::json;

on_both_backends! {
    what_is_wrong_with_a_body_is_named;
    a_body_that_stops_halfway_is_no_request;
    unknown_fields_are_ignored;
}

/// Fields of an object, and the text that the error must name.
fn bad_bodies() -> Vec<(Vec<u8>, &'static str)> {
    let deep = format!(
        r#"{{"name":"abc","x":{}1{}}}"#,
        "[".repeat(100),
        "]".repeat(100)
    );
    let very_deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    let text = |text: &str| text.as_bytes().to_vec();
    vec![
        (text(""), "empty"),
        (text(" \n"), "empty"),
        (text("{"), "not JSON"),
        (text("nonsense"), "not JSON"),
        (text(r#"{"name":"abc"} x"#), "not JSON"),
        (text(r#"{"name":"abc",}"#), "not JSON"),
        (text("{'name':'abc'}"), "not JSON"),
        (text("\u{feff}{}"), "not JSON"),
        (text(r#"{"name":"abc","name":"abd"}"#), "name"),
        (
            text(r#"{"name":"abc","x":{"deep":[{"twice":1,"twice":2}]}}"#),
            "twice",
        ),
        (text(&deep), "levels deep"),
        (text(&very_deep), "deep"),
        (text(r#"{"name":"a\u0000b"}"#), "name"),
        (text(r#"{"na\u0000me":"abc"}"#), "NUL"),
        (text(r#"{"name":"abc","x":[{"y":"\u0000"}]}"#), "x[0].y"),
        (text("{\"name\":\"a\u{0}b\"}"), "JSON"),
        (text(r#"{"name":"\ud800"}"#), "JSON"),
        (b"{\"name\":\"\xff\xfe\"}".to_vec(), "UTF-8"),
        (text(r#"{"name":1e999}"#), "JSON"),
        (text("[]"), ""),
        (text("null"), ""),
        (text("\"text\""), ""),
        (text("1"), ""),
    ]
}

async fn refuses(user: &User, method: Method, path: &str) {
    for (body, named) in bad_bodies() {
        let call = || user.call(method.clone(), path).bytes(body.clone());
        let response = call().await;
        assert_eq!(response.status(), 400, "{}", response.describe());
        response.refused(400, "invalid").naming(named);
        // The same through the middleware that reads bodies first.
        call()
            .header("idempotency-key", "k")
            .await
            .refused(400, "invalid");
    }
}

async fn what_is_wrong_with_a_body_is_named(app: &TestApp) {
    let ada = app.new_account("ada").await;
    crate::support::new_project(&ada, "shop").await;
    let (id, _) = new_key(&ada, "ci-bot").await;
    refuses(&ada, Method::POST, "/v1/projects").await;
    refuses(&ada, Method::POST, "/v1/projects/update-envs").await;
    refuses(&ada, Method::POST, "/v2/teams").await;
    refuses(&ada.ai(), Method::POST, "/v1/keys").await;
    refuses(&ada.ai(), Method::PUT, &format!("/v1/keys/{id}")).await;
    refuses(&ada.ai(), Method::POST, "/v1/workspaces").await;
    // A release is read by a reader of its own.
    for (body, _) in bad_bodies() {
        let path = "/v2/projects/shop/releases";
        let call = ada.call(Method::POST, path).bytes(body);
        call.await.refused(400, "invalid");
    }
}

async fn a_body_that_stops_halfway_is_no_request(app: &TestApp) {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let ada = app.new_account("ada").await;
    let address = app.address(Api::Ai);
    let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let body = r#"{"name":"ci-bot","workspaces":["main"]}"#;
    let request = format!(
        "POST /v1/keys HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\ncontent-length: {}\r\n\r\n{body}",
        ada.token(),
        body.len() + 1,
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    stream.shutdown().await.unwrap();
    let mut response = Vec::new();
    let _ = stream.read_to_end(&mut response).await;
    let response = String::from_utf8(response).unwrap();
    assert!(
        response.is_empty() || response.starts_with("HTTP/1.1 400"),
        "{response}"
    );
    assert_eq!(ada.ai().get("/v1/keys").await.json(), json!([]));
}

async fn unknown_fields_are_ignored(app: &TestApp) {
    let ada = app.new_account("ada").await;
    let extra = json!({"deep": [[{"a": null, "b": [1.5, -3, "x", true]}]]});
    let new = json!({"name": "shop", "platform": "static", "planID": "nano", "extra": extra});
    ada.on(Api::Platform)
        .post("/v1/projects", &new)
        .await
        .assert(200);
    let new =
        json!({"name": "ci-bot", "workspaces": ["main"], "extra": extra, "key": "x", "_id": "y"});
    ada.ai().post("/v1/keys", &new).await.assert(201);
}
