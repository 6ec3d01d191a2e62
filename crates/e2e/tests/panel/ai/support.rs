//! Steps that tests of the AI pages take.

use estrade_testkit::{ApiResponse, PanelClient, TestApp, User};
use serde_json::json;

const PASSWORD: &str = "correct horse battery";
pub(crate) const ECHO: &str = "estrade/echo";

pub(crate) async fn person(app: &TestApp, name: &str) -> (User, PanelClient) {
    let user = app.new_account_with(name, PASSWORD).await;
    let mut panel = app.panel();
    panel.sign_in(&user.email, PASSWORD).await;
    (user, panel)
}

/// What stands between two texts.
#[track_caller]
pub(crate) fn between(text: &str, before: &str, after: &str) -> String {
    assert!(text.contains(before), "{before} is not in {text}");
    let (_, rest) = text.split_once(before).expect("it is there");
    rest.split_once(after).expect("an end").0.to_owned()
}

pub(crate) fn secret(page: &ApiResponse) -> String {
    between(&page.text(), "id=\"key-secret\">", "<")
}

/// Makes a key in the workspace `main` with the form; its id and its secret.
pub(crate) async fn new_key(
    panel: &mut PanelClient,
    name: &str,
    more: &[(&str, &str)],
) -> (String, String) {
    new_key_at(panel, "/panel/keys/new", name, more).await
}

/// The same in the scope that the form's address names.
pub(crate) async fn new_key_at(
    panel: &mut PanelClient,
    address: &str,
    name: &str,
    more: &[(&str, &str)],
) -> (String, String) {
    let mut form = vec![("name", name), ("more_workspaces", "main")];
    form.extend(more);
    let page = panel.post(address, &form).await.assert(200);
    let query = between(&page.text(), "/panel/playground?key=", "\"");
    // The team may follow.
    let id = query.split('&').next().unwrap_or_default().to_owned();
    (id, secret(&page))
}

pub(crate) async fn workspace_of(user: &User, key: &str) -> String {
    let read = user.ai().get(&format!("/v1/keys/{key}")).await.assert(200);
    read.field("/workspaces/0/_id")
}

pub(crate) async fn say(app: &TestApp, secret: &str, model: &str) -> ApiResponse {
    let body = json!({"model": model, "messages": [{"role": "user", "content": "hi"}]});
    let call = app.stranger().ai().post("/v1/chat/completions", &body);
    call.bearer(secret).await
}

/// Sends the form of the playground.
pub(crate) async fn play(
    panel: &mut PanelClient,
    target: &str,
    model: &str,
    prompt: &str,
) -> ApiResponse {
    let form = [("target", target), ("model", model), ("prompt", prompt)];
    panel.post("/panel/playground", &form).await
}
