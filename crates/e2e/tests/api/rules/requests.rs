//! Request ids, trailing slashes, and the forms that a request may have.

use crate::rules::routes::operations;
use crate::support::{assert_id, new_project, site};
use estrade_testkit::{Api, TestApp, on_both_backends};
use http::Method;
use serde_json::Value;

on_both_backends! {
    every_response_has_a_request_id;
    a_trailing_slash_is_accepted_on_every_route;
    head_responds_like_get_without_a_body;
    odd_requests_get_a_response;
    a_long_response_is_compressed_for_those_who_can_read_it;
    http_2_works_also_for_get_with_a_body;
}

async fn every_response_has_a_request_id(app: &TestApp) {
    let ada = app.new_account("ada").await;
    for (api, path) in [
        (Api::Platform, "/v1/projects"),
        (Api::Platform, "/v1/projects/unknown"),
        (Api::Platform, "/nowhere"),
        (Api::Platform, "/healthz"),
        (Api::Platform, "/docs"),
        (Api::Ai, "/v1/keys"),
        (Api::Ai, "/v1/keys/x"),
        (Api::Ai, "/v1/keys/authorize"),
        (Api::Ai, "/nowhere"),
    ] {
        let user = ada.on(api);
        let given = user.get(path).header("x-request-id", "build-7:a.b_c").await;
        assert_eq!(given.header("x-request-id"), "build-7:a.b_c");
        let (one, two) = (user.get(path).await, user.get(path).await);
        assert_ne!(one.header("x-request-id"), two.header("x-request-id"));
        for bad in ["", "a b", "a\"b", "é", &"x".repeat(129)] {
            let response = user.get(path).header("x-request-id", bad).await;
            let id = response.header("x-request-id");
            assert!(
                id.len() == 24 && id.bytes().all(|b| b.is_ascii_hexdigit()),
                "{id}"
            );
        }
    }
    let call = ada
        .get("/v1/projects")
        .header("x-request-id", "find-me-in-the-log-1");
    call.await.assert(200);
    assert!(app.log().contains("find-me-in-the-log-1"));
}

async fn a_trailing_slash_is_accepted_on_every_route(app: &TestApp) {
    let ada = app.new_account("ada").await;
    new_project(&ada, "shop").await;
    for operation in operations() {
        let path = operation
            .path
            .replace("{project_id}", "unknown")
            .replace("{keyID}", "0123456789abcdef01234567")
            .replace("{releaseID}", "0123456789abcdef01234567")
            .replace("{memberID}", "0123456789abcdef01234567")
            .replace("{id}", "0123456789abcdef01234567");
        let call = |path: &str| ada.on(operation.api).call(operation.method.clone(), path);
        // Each call of these makes something else.
        if ["/v1/api-token", "/v1/device/code"].contains(&path.as_str()) {
            continue;
        }
        let (plain, slash) = (call(&path).await, call(&format!("{path}/?a=b")).await);
        assert_eq!(plain.status(), slash.status(), "{}", operation.name());
        assert_ne!(slash.header("x-error-code"), "method_not_allowed");
        if !slash.text().contains("uptime") {
            assert_eq!(plain.text(), slash.text(), "{}", operation.name());
        }
    }
    ada.get("/v1/projects//").await.refused(404, "not_found");
}

async fn head_responds_like_get_without_a_body(app: &TestApp) {
    let ada = app.new_account("ada").await;
    new_project(&ada, "shop").await;
    for (api, path) in [
        (Api::Platform, "/v1/projects"),
        (Api::Platform, "/v1/projects/shop"),
        (Api::Platform, "/v1/projects/other"),
        (Api::Ai, "/v1/keys"),
        (Api::Ai, "/v1/keys/0123456789abcdef01234567"),
    ] {
        let head = ada.on(api).call(Method::HEAD, path).await;
        let get = ada.on(api).get(path).await;
        assert_eq!(head.status(), get.status());
        assert_eq!(head.header("content-length"), get.header("content-length"));
        assert_eq!(head.body(), b"");
    }
}

async fn odd_requests_get_a_response(app: &TestApp) {
    let ada = app.new_account("ada").await;
    let token = ada.token();
    let with = |head: &str| {
        format!("{head}\r\nhost: x\r\nauthorization: Bearer {token}\r\nconnection: close\r\n\r\n")
    };
    // Two credentials are none.
    let twice = format!(
        "GET /v1/projects HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {token}\r\nAuthorization: Bearer x\r\n\r\n"
    );
    app.raw(Api::Platform, twice)
        .await
        .refused(401, "unauthenticated");
    // The absolute form, as proxies send it.
    app.raw(Api::Platform, with("GET http://x/v1/projects HTTP/1.1"))
        .await
        .assert(200);
    app.raw(Api::Platform, with("GET /v1/projects HTTP/1.0"))
        .await
        .assert(200);
    app.raw(Api::Platform, with("BREW /v1/projects HTTP/1.1"))
        .await
        .refused(405, "method_not_allowed");
    app.raw(
        Api::Platform,
        with("GET /v1/projects/..%2f..%2fetc HTTP/1.1"),
    )
    .await
    .refused(404, "not_found");
    app.raw(Api::Ai, with("OPTIONS /v1/keys HTTP/1.1"))
        .await
        .refused(405, "method_not_allowed");
    // A body where none belongs is left alone.
    let body = "GET /v1/projects HTTP/1.1\r\nhost: x\r\ncontent-length: 3\r\n";
    let request = format!("{body}authorization: Bearer {token}\r\n\r\nabc");
    app.raw(Api::Platform, request).await.assert(200);
}

async fn a_long_response_is_compressed_for_those_who_can_read_it(app: &TestApp) {
    use std::io::Read;
    let ada = app.new_account("ada").await;
    for i in 0..30 {
        new_project(&ada, &format!("project-{i}")).await;
    }
    let plain = ada.get("/v1/projects").await.assert(200);
    assert!(!plain.has_header("content-encoding"));
    let call = ada.get("/v1/projects").header("accept-encoding", "gzip");
    let packed = call.await.assert(200);
    assert_eq!(packed.header("content-encoding"), "gzip");
    assert!(packed.body().len() < plain.body().len() / 2);
    let mut text = String::new();
    let mut reader = flate2::read::GzDecoder::new(packed.body());
    reader.read_to_string(&mut text).unwrap();
    assert_eq!(text, plain.text());
    // What is short stays as it is, and so does what is empty.
    let call = ada.get("/v1/networks").header("accept-encoding", "gzip");
    call.await.assert(200);
    let call = ada
        .ai()
        .get("/v1/keys/x")
        .header("accept-encoding", "gzip, zstd");
    call.await.assert_empty(400);
}

async fn http_2_works_also_for_get_with_a_body(app: &TestApp) {
    let ada = app.new_account("ada").await;
    new_project(&ada, "shop").await;
    let client = reqwest::Client::builder()
        .http2_prior_knowledge()
        .no_proxy()
        .build()
        .unwrap();
    let url = format!(
        "http://{}/v2/projects/shop/releases",
        app.address(Api::Platform)
    );
    let get = || client.get(&url).bearer_auth(ada.token());
    let made = get().body(site().to_string()).send().await.unwrap();
    assert_eq!(
        (made.status().as_u16(), made.version()),
        (200, http::Version::HTTP_2)
    );
    let made: Value = serde_json::from_slice(&made.bytes().await.unwrap()).unwrap();
    assert_id(&made["releaseID"]);
    let list = get().send().await.unwrap();
    let list: Value = serde_json::from_slice(&list.bytes().await.unwrap()).unwrap();
    assert_eq!(list["releases"][0]["_id"], made["releaseID"]);
}
