//! Steps that tests of the settings of projects take.

use estrade_testkit::{ApiResponse, PanelClient, TestApp, User};
use serde_json::{Value, json};

const PASSWORD: &str = "correct horse battery";
pub(crate) const ENVIRONMENT: &str = "/panel/projects/shop/environment";
pub(crate) const REVIEW: &str = "/panel/projects/shop/environment/review";

pub(crate) async fn signed_in(app: &TestApp, name: &str) -> (User, PanelClient) {
    let user = app.new_account_with(name, PASSWORD).await;
    let mut panel = app.panel();
    panel.sign_in(&user.email, PASSWORD).await;
    (user, panel)
}

pub(crate) async fn new_project(user: &User, name: &str) {
    let new = json!({"name": name, "platform": "node", "planID": "micro"});
    user.post("/v1/projects", &new).await.assert(200);
}

pub(crate) async fn ada_with_shop(app: &TestApp) -> (User, PanelClient) {
    let (ada, panel) = signed_in(app, "ada").await;
    new_project(&ada, "shop").await;
    (ada, panel)
}

pub(crate) async fn set_envs(user: &User, envs: &[(&str, &str)]) {
    let variables: Vec<Value> = envs
        .iter()
        .map(|(key, value)| json!({"key": key, "value": value}))
        .collect();
    let body = json!({"project": "shop", "variables": variables});
    user.post("/v1/projects/update-envs", &body)
        .await
        .assert(201);
}

/// The value of a hidden field, as a browser reads it.
pub(crate) fn field(page: &str, name: &str) -> String {
    let start = format!("name=\"{name}\" value=\"");
    let (_, rest) = page.split_once(&start).expect("a field of this name");
    let value = rest.split('"').next().unwrap();
    let entities = [
        ("&#34;", "\""),
        ("&quot;", "\""),
        ("&#39;", "'"),
        ("&#60;", "<"),
        ("&lt;", "<"),
        ("&#62;", ">"),
        ("&gt;", ">"),
        ("&#38;", "&"),
        ("&amp;", "&"),
    ];
    let decode = |text: String, (entity, plain): (&str, &str)| text.replace(entity, plain);
    entities.into_iter().fold(value.to_owned(), decode)
}

/// Presses the button of the review page.
pub(crate) async fn save(panel: &mut PanelClient, review: &str) -> ApiResponse {
    let (changes, state) = (field(review, "changes"), field(review, "state"));
    let form = [("changes", changes.as_str()), ("state", &state)];
    panel.post(ENVIRONMENT, &form).await
}

pub(crate) async fn envs(user: &User) -> Vec<(String, String)> {
    let read = user.get("/v1/projects/shop").await.assert(200).json();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let list = read["project"]["envs"].as_array().unwrap().clone();
    list.iter()
        .map(|env| (text(&env["key"]), text(&env["value"])))
        .collect()
}

pub(crate) fn owned(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs
        .iter()
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
        .collect()
}
