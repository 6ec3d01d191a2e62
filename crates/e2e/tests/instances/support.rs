//! Projects that run.

use estrade_model::ProjectId;
use estrade_runtime::{EngineHost, Instance, InstanceState};
pub(crate) use estrade_testkit::eventually;
use estrade_testkit::{Setup, TestApp, User};
use serde_json::json;
use std::time::Duration;

/// Listens, and does nothing else.
pub(crate) const CALM: &str =
    "import http.server as h; h.test(h.SimpleHTTPRequestHandler, port=8000)";

/// An app that uses the engine of the tests.
pub(crate) fn engine() -> Setup {
    let socket = std::env::var("ESTRADE_TEST_DOCKER").expect(
        "ESTRADE_TEST_DOCKER is not set: run `./test tests`, which starts a Docker Engine, or set it to the socket \
         of an engine that has the image of tests/docker/base-image as estrade-test/base:2",
    );
    Setup::with(|setup| {
        let containers = &mut setup.settings.containers;
        containers.host = EngineHost::Unix(socket.into());
        // The machine's firewall is not this test's.
        containers.firewall = false;
    })
}

pub(crate) async fn new_project(user: &User, name: &str) -> ProjectId {
    let new = json!({"name": name, "platform": "docker", "planID": "nano"});
    let made = user.post("/v1/projects", &new).await.assert(200);
    made.field("/projectID").parse().unwrap()
}

/// Deploys a program in Python, and waits until it runs; the id of its release.
pub(crate) async fn deploy(user: &User, project: &str, program: &str) -> String {
    let args = ["python3", "-u", "-c", program];
    let release = json!({"image": "estrade-test/base:2", "port": 8000, "args": args});
    let path = format!("/v2/projects/{project}/releases");
    let id = user
        .post(&path, &release)
        .await
        .assert(201)
        .field("/releaseID");
    let path = format!("/v1/releases/{id}?wait=READY&timeout=60");
    let ended = user.get(&path).await.assert(200);
    assert_eq!(
        ended.json()["release"]["state"],
        "READY",
        "{}",
        ended.text()
    );
    id
}

/// Makes a project that runs; its instance.
pub(crate) async fn new_live(app: &TestApp, user: &User, name: &str) -> Instance {
    let project = new_project(user, name).await;
    deploy(user, name, CALM).await;
    running(app, project, 1).await.remove(0)
}

/// The instances of a project, once so many run.
pub(crate) async fn running(app: &TestApp, project: ProjectId, count: usize) -> Vec<Instance> {
    for _ in 0..600 {
        let mut instances = app.core().runtime.instances().await.unwrap();
        instances.retain(|instance| {
            instance.key.project == project && instance.state == InstanceState::Running
        });
        if instances.len() == count {
            return instances;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("{count} instances do not run");
}

pub(crate) async fn scale(user: &User, project: &str, count: u32) {
    let path = format!("/v1/projects/{project}/actions/scale");
    user.post(&path, &json!({"scale": count})).await.assert(200);
}

/// Deletes every project of `user`, and what is left of them in the engine.
pub(crate) async fn clean(app: &TestApp, user: &User) {
    let list = user.get("/v1/projects").await.assert(200).json();
    for project in list["projects"].as_array().unwrap() {
        let path = format!("/v1/projects/{}", project["_id"].as_str().unwrap());
        user.delete(&path).await.assert(200);
    }
    let (runtime, builder) = (&app.core().runtime, &app.core().image_builder);
    for instance in runtime.instances().await.unwrap() {
        runtime.remove_instance(&instance.id).await.unwrap();
    }
    for owner in runtime.network_owners().await.unwrap() {
        runtime.remove_network(owner).await.unwrap();
    }
    for entry in builder.list_images().await.unwrap() {
        // A build that was called off may not have ended yet.
        eventually("the image is removed", || async {
            builder.remove_image(entry.image).await.is_ok()
        })
        .await;
    }
}
