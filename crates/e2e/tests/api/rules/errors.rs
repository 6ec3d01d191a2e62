//! Errors that no handler makes, and what every error looks like.

use crate::support::new_project;
use estrade_testkit::{Api, Setup, TestApp, on_both_backends};
use http::Method;
use serde_json::json;

on_both_backends! {
    an_unknown_path_is_404;
    a_wrong_method_is_405_with_allow;
    a_large_body_is_413 with small_bodies;
    another_content_type_is_415;
    missing_or_wrong_authentication_is_401_on_both;
    a_bad_query_names_its_parameter;
    a_bad_path_names_its_parameter;
}

async fn an_unknown_path_is_404(app: &TestApp) {
    let ada = app.new_account("ada").await;
    for path in [
        "/",
        "/v1",
        "/v3/projects",
        "/v1/Projects",
        "/v1/keys/a/b/c",
        "/v1//keys",
        "/%00",
        "/%ff",
        "/.env",
    ] {
        for api in [Api::Platform, Api::Ai] {
            for user in [&ada, &app.stranger()] {
                user.on(api).get(path).await.refused(404, "not_found");
                user.on(api)
                    .post(path, &json!({}))
                    .await
                    .refused(404, "not_found");
            }
        }
    }
}

async fn a_wrong_method_is_405_with_allow(app: &TestApp) {
    let ada = app.new_account("ada").await;
    for (api, method, path, allow) in [
        (Api::Platform, "PUT", "/v1/projects", "GET,HEAD,POST"),
        (
            Api::Platform,
            "PATCH",
            "/v1/projects/shop",
            "DELETE,GET,HEAD",
        ),
        (Api::Platform, "GET", "/v1/projects/shop/resize", "POST"),
        (
            Api::Platform,
            "POST",
            "/v1/releases/0123456789abcdef01234567",
            "GET,HEAD",
        ),
        (Api::Platform, "DELETE", "/healthz", "GET,HEAD"),
        (Api::Platform, "POST", "/openapi.json", "GET,HEAD"),
        (Api::Ai, "DELETE", "/v1/keys", "GET,HEAD,POST"),
        (
            Api::Ai,
            "POST",
            "/v1/keys/0123456789abcdef01234567",
            "DELETE,GET,HEAD,PUT",
        ),
        (
            Api::Ai,
            "GET",
            "/v1/keys/0123456789abcdef01234567/rotate",
            "POST",
        ),
        (Api::Ai, "PUT", "/v1/workspaces", "GET,HEAD,POST"),
    ] {
        let method: Method = method.parse().unwrap();
        let response = ada.on(api).call(method, path).await;
        let response = response.refused(405, "method_not_allowed");
        let mut allowed: Vec<_> = response.header("allow").split(',').map(str::trim).collect();
        allowed.sort_unstable();
        assert_eq!(allowed.join(","), allow, "{path}");
    }
}

fn small_bodies() -> Setup {
    Setup::with(|setup| setup.body_bytes = 1000)
}

async fn a_large_body_is_413(app: &TestApp) {
    let ada = app.new_account("ada").await;
    let large = json!({"name": "shop", "padding": "x".repeat(1000)});
    for (api, path) in [
        (Api::Platform, "/v1/projects"),
        (Api::Ai, "/v1/keys"),
        (Api::Ai, "/v1/workspaces"),
    ] {
        ada.on(api)
            .post(path, &large)
            .await
            .refused(413, "too_large");
        let call = ada
            .on(api)
            .post(path, &large)
            .header("idempotency-key", "k");
        call.await.refused(413, "too_large");
        // Not announced, but noticed.
        let text = large.to_string();
        let request = format!(
            "POST {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\n\
             transfer-encoding: chunked\r\n\r\n{:x}\r\n{text}\r\n0\r\n\r\n",
            ada.token(),
            text.len(),
        );
        app.raw(api, request).await.refused(413, "too_large");
    }
    new_project(&ada, "shop").await;
}

async fn another_content_type_is_415(app: &TestApp) {
    let ada = app.new_account("ada").await;
    let project = json!({"name": "shop", "platform": "static", "planID": "nano"});
    let key = json!({"name": "ci-bot", "workspaces": ["main"]});
    for (api, path, body) in [
        (Api::Platform, "/v1/projects", project),
        (Api::Ai, "/v1/keys", key),
    ] {
        for bad in [
            "text/plain",
            "application/x-www-form-urlencoded",
            "multipart/form-data",
            "",
            "json",
        ] {
            let call = ada.on(api).post(path, &body).header("content-type", bad);
            call.await.refused(415, "unsupported_media_type");
        }
        // Without a type it is read as JSON.
        let call = ada.on(api).call(Method::POST, path).bytes(body.to_string());
        assert!(call.await.status() < 300);
    }
    let call = ada.post("/v1/networks", &json!({"name": "net"}));
    call.header("content-type", "application/json; charset=utf-8")
        .await
        .assert(200);
}

async fn missing_or_wrong_authentication_is_401_on_both(app: &TestApp) {
    let stranger = app.stranger();
    for (api, path) in [(Api::Platform, "/v1/projects"), (Api::Ai, "/v1/keys")] {
        for authorization in [None, Some("Bearer x"), Some("Basic eDp5"), Some("Bearer")] {
            let mut call = stranger.on(api).get(path);
            if let Some(value) = authorization {
                call = call.header("authorization", value);
            }
            let response = call.await.refused(401, "unauthenticated");
            assert_eq!(response.header("www-authenticate"), "Bearer");
        }
    }
}

const RELEASE: &str = "/v1/releases/0123456789abcdef01234567";

/// An API, a path (`logs` and `activity`: of a workspace), a query that is wrong, and what is said of it.
const BAD_QUERIES: &[(Api, &str, &str, &str)] = &[
    (
        Api::Platform,
        "/v1/projects",
        "page=x",
        "must be a whole number",
    ),
    (
        Api::Platform,
        "/v1/projects",
        "count=1&count=2",
        "is given twice",
    ),
    (
        Api::Platform,
        "/v1/domains",
        "project=a&project=b",
        "is given twice",
    ),
    (
        Api::Platform,
        RELEASE,
        "wait=ready",
        "must be one of PENDING, BUILDING",
    ),
    (
        Api::Platform,
        RELEASE,
        "timeout=soon",
        "must be a whole number",
    ),
    (
        Api::Platform,
        "/v1/projects/shop/logs",
        "since=yesterday",
        "must be seconds",
    ),
    (
        Api::Platform,
        "/v2/projects/shop/logs",
        "direction=up",
        "must be one of forward, backward",
    ),
    (
        Api::Platform,
        "/v2/projects/shop/logs",
        "follow=1",
        "must be true or false",
    ),
    (
        Api::Platform,
        "/v2/projects/shop/logs",
        "last_lines=all",
        "must be a number of lines",
    ),
    (
        Api::Platform,
        "/v1/exec",
        "project_id=a&project_id=b",
        "is given twice",
    ),
    (Api::Ai, "/v1/keys", "count=many", "must be a whole number"),
    (
        Api::Ai,
        "/v1/audit",
        "key=x",
        "must be 24 lowercase hexadecimal characters",
    ),
    (Api::Ai, "/v1/audit", "from=x", "must be"),
    (Api::Platform, "/v1/audit", "action=x", "is not an action"),
    (
        Api::Platform,
        "/v1/audit",
        "subject=x",
        "must be 24 lowercase hexadecimal characters",
    ),
    (Api::Ai, "logs", "status=70000", "is too large"),
    (
        Api::Ai,
        "activity",
        "filter=year",
        "must be one of hour, day, week, month",
    ),
];

/// In our words: a reader of the API knows nothing of the types behind it.
async fn a_bad_query_names_its_parameter(app: &TestApp) {
    let ada = app.new_account("ada").await;
    new_project(&ada, "shop").await;
    let space = json!({"name": "main-space"});
    let space = ada.ai().post("/v1/workspaces", &space).await.assert(200);
    let space = space.field("/workspace/_id");
    for (api, path, query, message) in BAD_QUERIES {
        let path = match *path {
            "logs" | "activity" => format!("/v1/workspaces/{space}/{path}"),
            path => path.to_owned(),
        };
        let refused = ada.on(*api).get(&format!("{path}?{query}")).await;
        let said = refused.refused(400, "invalid").message();
        let name = query.split('=').next().unwrap();
        assert!(
            said.starts_with(&format!("{name}: {message}")),
            "{path}?{query}: {said}"
        );
    }
    let refused = ada.call(Method::POST, "/v1/api-token?expiresIn=2d").await;
    let said = refused.refused(400, "invalid").message();
    assert!(
        said.starts_with("expiresIn: must be one of 1h, 1d"),
        "{said}"
    );
}

/// An id has 24 lowercase hexadecimal characters.
async fn a_bad_path_names_its_parameter(app: &TestApp) {
    let ada = app.new_account("ada").await;
    let space = json!({"name": "main-space"});
    let space = ada.ai().post("/v1/workspaces", &space).await.assert(200);
    let space = space.field("/workspace/_id");
    let call = format!("/v1/workspaces/{space}/logs/x");
    for (path, said) in [
        (
            "/v1/keys/x",
            "keyID: must be 24 lowercase hexadecimal characters",
        ),
        (
            "/v1/keys/0123456789ABCDEF01234567",
            "keyID: must be 24 lowercase hexadecimal characters",
        ),
        ("/v1/keys/%ff", "keyID: must be UTF-8"),
        (
            "/v1/workspaces/x/activity",
            "id: must be 24 lowercase hexadecimal characters",
        ),
        (
            &call,
            "id or callID: must be 24 lowercase hexadecimal characters",
        ),
        ("/v1/models/%ff", "id: must be UTF-8"),
        ("/v1/models/estrade/%ff", "name: must be UTF-8"),
    ] {
        let refused = ada.ai().get(path).await.refused(400, "invalid");
        assert_eq!(refused.message(), said, "{path}");
        let stranger = app.stranger().ai().get(path).await;
        stranger.refused(401, "unauthenticated");
    }
    // On the platform nothing has such an id.
    for path in ["/v1/releases/x", "/v1/releases/%ff", "/v1/projects/%ff"] {
        ada.get(path).await.refused(404, "not_found");
    }
}
