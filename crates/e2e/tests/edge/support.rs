//! Steps that many tests take.

use estrade_testkit::EdgeClient;
use estrade_testkit::{TestApp, User};
use serde_json::{Value, json};

/// Makes a static project.
pub(crate) async fn new_project(user: &User, name: &str) {
    let new = json!({"name": name, "platform": "static", "planID": "nano"});
    user.post("/v1/projects", &new).await.assert(200);
}

/// Deploys files and waits until they are live; returns the release.
pub(crate) async fn deploy(user: &User, project: &str, files: &[(&str, &str)]) -> String {
    let file = |(path, data): &(&str, &str)| json!({"path": path, "data": data});
    let files: Vec<Value> = files.iter().map(file).collect();
    deploy_body(user, project, &json!({ "files": files })).await
}

/// The same with a whole body.
pub(crate) async fn deploy_body(user: &User, project: &str, body: &Value) -> String {
    let path = format!("/v2/projects/{project}/releases");
    let release = user.post(&path, body).await.assert(201).field("/releaseID");
    wait_ready(user, &release).await;
    release
}

/// Rolls back and waits until the release is live again.
pub(crate) async fn roll_back(user: &User, release: &str) {
    let path = format!("/v1/releases/{release}/rollback");
    let new = user.post_empty(&path).await.assert(200).field("/releaseID");
    wait_ready(user, &new).await;
}

pub(crate) async fn wait_ready(user: &User, release: &str) {
    let path = format!("/v1/releases/{release}?wait=READY&timeout=60");
    let state = user.get(&path).await.assert(200).field("/release/state");
    assert_eq!(state, "READY");
}

/// A project with these files, and a visitor of it.
pub(crate) async fn site(app: &TestApp, name: &str, files: &[(&str, &str)]) -> (User, EdgeClient) {
    let user = app.new_account("ada").await;
    new_project(&user, name).await;
    deploy(&user, name, files).await;
    let visitor = EdgeClient::connect(app.edge(), &format!("{name}.localhost")).await;
    (user, visitor)
}
