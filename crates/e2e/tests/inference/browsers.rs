//! Calls of web pages: only from the configured origins, only to inference, and never with credentials of the browser.

use crate::support::{ECHO, key};
use estrade_server::ai::cors::Cors;
use estrade_testkit::{ApiResponse, Backend, Setup, TestApp, User};
use http::Method;
use serde_json::json;

const PAGE: &str = "https://app.example.com";
const ALLOWED: &str = "access-control-allow-origin";

async fn start(origins: &[&str]) -> (TestApp, User, String) {
    let mut setup = Setup::default();
    setup.inference.cors = Cors::new(origins.iter().copied());
    let app = TestApp::start_with(Backend::Sqlite, setup).await;
    let ada = app.new_account("ada").await.ai();
    let (_, key) = key(&ada, "page").await;
    (app, ada, key)
}

/// What a page sends: a short request goes the fast way, a long one through hyper.
async fn chat(app: &TestApp, key: &str, origin: &str, length: usize) -> ApiResponse {
    let said = "x".repeat(length);
    let body = json!({"model": ECHO, "messages": [{"role": "user", "content": said}]});
    let stranger = app.stranger().ai();
    let call = stranger.post("/v1/chat/completions", &body).bearer(key);
    call.header("origin", origin).await
}

async fn preflight(app: &TestApp, path: &str, origin: &str, method: &str) -> ApiResponse {
    let stranger = app.stranger().ai();
    let call = stranger.call(Method::OPTIONS, path);
    let call = call.header("origin", origin);
    let call = call.header("access-control-request-method", method);
    let names = "authorization,content-type,x-stainless-os";
    call.header("access-control-request-headers", names).await
}

#[track_caller]
fn assert_open(response: &ApiResponse, status: u16) {
    assert_eq!(response.status(), status, "{}", response.describe());
    assert_eq!(response.header(ALLOWED), PAGE);
    assert!(
        response
            .header("vary")
            .to_ascii_lowercase()
            .contains("origin")
    );
    assert_eq!(response.header("access-control-allow-credentials"), "");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_page_of_a_configured_origin_calls_models() {
    let (app, ada, key) = start(&["http://localhost:5173", PAGE]).await;
    let list = ada.get("/v1/workspaces").await.assert(200);
    let workspace = list.field("/workspaces/0/_id");
    for length in [1, 100_000] {
        let response = chat(&app, &key, PAGE, length).await;
        assert_open(&response, 200);
        let exposed = response.header("access-control-expose-headers");
        for name in [
            "x-estrade-call",
            "x-estrade-upstream-model",
            "x-ratelimit-reset-tokens",
        ] {
            assert!(exposed.contains(name), "{exposed}");
        }
        // A script has to see why it was refused.
        assert_open(&chat(&app, "wrong", PAGE, length).await, 401);
    }
    for path in [
        format!("/api/{workspace}/v1/models"),
        format!("/api/v1/{workspace}/models/{ECHO}"),
        "/v1/models".to_owned(),
        "/v1/models/estrade%2Fecho".to_owned(),
    ] {
        let stranger = app.stranger().ai();
        let call = stranger.get(&path).bearer(&key);
        assert_open(&call.header("origin", PAGE).await, 200);
        assert_open(&preflight(&app, &path, PAGE, "GET").await, 204);
    }
    for path in [
        format!("/api/{workspace}/v1/chat/completions"),
        "/v1/embeddings".to_owned(),
    ] {
        let response = preflight(&app, &path, PAGE, "POST").await;
        assert_open(&response, 204);
        assert_eq!(response.header("access-control-allow-methods"), "POST");
        let names = response.header("access-control-allow-headers");
        assert!(names.contains("authorization") && names.contains("x-stainless-os"));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_other_page_does_and_nothing_else_is_open() {
    let (app, _, key) = start(&[PAGE]).await;
    for other in ["https://evil.test", "http://app.example.com", "null"] {
        let response = chat(&app, &key, other, 1).await.assert(200);
        assert_eq!(response.header(ALLOWED), "", "{other}");
        assert!(response.header("vary").contains("origin"), "{other}");
        // A page that may not ask is not even told that there is something.
        let response = preflight(&app, "/v1/chat/completions", other, "POST").await;
        assert_eq!((response.status(), response.header(ALLOWED)), (401, ""));
    }
    // Management, and methods that the path does not take.
    for (path, method) in [
        ("/v1/keys", "GET"),
        ("/v1/keys/authorize", "GET"),
        ("/v1/workspaces", "POST"),
        ("/metrics", "GET"),
        ("/v1/chat/completions", "DELETE"),
        ("/v1/models", "POST"),
    ] {
        let response = preflight(&app, path, PAGE, method).await;
        assert!(
            response.status() >= 400 || response.status() == 200,
            "{path}"
        );
        assert_eq!(
            response.header("access-control-allow-methods"),
            "",
            "{path}"
        );
    }
    let stranger = app.stranger().ai();
    let listed = stranger.get("/v1/keys").header("origin", PAGE).await;
    assert_eq!((listed.status(), listed.header(ALLOWED)), (401, ""));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_origins_it_is_off() {
    let (app, _, key) = start(&[]).await;
    for length in [1, 100_000] {
        let response = chat(&app, &key, PAGE, length).await.assert(200);
        assert_eq!(
            (response.header(ALLOWED), response.header("vary")),
            ("", "")
        );
    }
    let response = preflight(&app, "/v1/chat/completions", PAGE, "POST").await;
    assert_eq!((response.status(), response.header(ALLOWED)), (401, ""));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_model_is_read_without_a_workspace_by_both_credentials() {
    let (app, ada, key) = start(&[]).await;
    let listed = ada.get("/v1/models").await.assert(200).json();
    for path in ["/v1/models/estrade/echo", "/v1/models/estrade%2Fecho"] {
        for call in [ada.get(path), app.stranger().ai().get(path).bearer(&key)] {
            let model = call.await.assert(200).json();
            assert_eq!(model, listed["data"][0], "{path}");
        }
        app.stranger().ai().get(path).await.assert(401);
    }
    for unknown in ["/v1/models/estrade", "/v1/models/estrade/echo/2"] {
        ada.get(unknown).await.assert_empty(404);
    }
}
