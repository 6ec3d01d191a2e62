//! Steps that these tests take.

use estrade_mock_upstream::MockUpstream;
use estrade_testkit::{ApiResponse, Call, TestApp, User};
use serde_json::{Value, json};

/// The built-in model.
pub(crate) const ECHO: &str = "estrade/echo";
/// The model of [`provide`]; each token of a response costs 0.001, the prompt nothing.
pub(crate) const MODEL: &str = "acme/large";
/// The upstream's key.
pub(crate) const SECRET: &str = "sk-upstream-77e1d0c4a5b69382";

/// Makes a key for the workspace `main` with these limits; its id and itself.
pub(crate) async fn key_with(user: &User, name: &str, limits: Value) -> (String, String) {
    let mut new = json!({"name": name, "workspaces": ["main"]});
    for (field, value) in limits.as_object().unwrap() {
        new[field] = value.clone();
    }
    let made = user.ai().post("/v1/keys", &new).await.assert(201);
    (made.field("/_id"), made.field("/key"))
}

pub(crate) async fn key(user: &User, name: &str) -> (String, String) {
    key_with(user, name, json!({})).await
}

/// The path of the user's workspace.
pub(crate) async fn workspace(user: &User) -> String {
    let list = user.ai().get("/v1/workspaces").await.assert(200);
    format!("/v1/workspaces/{}", list.field("/workspaces/0/_id"))
}

/// A chat request.
pub(crate) fn chat(app: &TestApp, key: &str, model: &str, more: &Value) -> Call {
    let mut body = json!({"model": model, "messages": [{"role": "user", "content": "hi"}]});
    for (field, value) in more.as_object().unwrap() {
        body[field] = value.clone();
    }
    let stranger = app.stranger().ai();
    stranger.post("/v1/chat/completions", &body).bearer(key)
}

/// The same of somebody who needs no app.
pub(crate) fn talk(stranger: &User, key: &str) -> Call {
    let body = json!({"model": ECHO, "messages": [{"role": "user", "content": "hi"}]});
    stranger.post("/v1/chat/completions", &body).bearer(key)
}

/// Says something to the built-in model.
pub(crate) async fn say(app: &TestApp, key: &str) -> ApiResponse {
    chat(app, key, ECHO, &json!({})).await
}

/// The code of an inference error, after a look at its shape.
#[track_caller]
pub(crate) fn code(response: &ApiResponse) -> String {
    let body = response.json();
    let error = &body["error"];
    assert!(
        error["message"].as_str().is_some_and(|it| !it.is_empty()),
        "{body}"
    );
    assert!(
        error["type"].is_string() && error.get("param").is_some(),
        "{body}"
    );
    error["code"].as_str().unwrap().to_owned()
}

/// Adds the upstream as a provider, as an administrator does.
pub(crate) async fn provide(app: &TestApp, upstream: &MockUpstream) -> String {
    let new = json!({
        "name": "acme", "baseURL": format!("http://{}/v1", upstream.address), "apiKey": SECRET, "retries": 0,
        "models": [{"id": MODEL, "price": {"prompt": "0", "completion": "1000"}}],
    });
    let admin = app.admin().await.ai();
    let made = admin.post("/v1/providers", &new).await.assert(201);
    format!("/v1/providers/{}", made.field("/provider/_id"))
}

/// A chat response with so many tokens.
pub(crate) fn chat_response(completion: u64) -> String {
    json!({
        "id": "c1", "object": "chat.completion", "model": MODEL,
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "Hello"}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 3, "completion_tokens": completion, "total_tokens": 3 + completion},
    })
    .to_string()
}
