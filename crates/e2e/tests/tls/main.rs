//! Host names and their certificates: custom domains, certificates from files, and from a real ACME
//! server (Pebble).

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a failed step is a failed test"
)]

mod acme;
mod domains;
mod edge_client;
mod files;
mod pebble;

use estrade_testkit::User;
use serde_json::json;

/// Makes a project with one page that says its name, and waits until it is served.
pub(crate) async fn deploy(user: &User, project: &str) {
    let new = json!({"name": project, "platform": "static", "planID": "nano"});
    user.post("/v1/projects", &new).await.assert(200);
    let release = json!({"files": [{"path": "index.html", "data": format!("I am {project}")}]});
    let path = format!("/v2/projects/{project}/releases");
    let made = user.post(&path, &release).await.assert(201);
    let path = format!(
        "/v1/releases/{}?wait=READY&timeout=60",
        made.field("/releaseID")
    );
    let done = user.get(&path).await.assert(200);
    assert_eq!(done.field("/release/state"), "READY");
}
