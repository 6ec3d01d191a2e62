//! What must not be seen: arguments of builds in logs, variables in images.

use crate::sources::{as_json, files};
use crate::support::ContainerFixture;
use estrade_testkit::Docker;
use serde_json::json;

const ARGUMENT: &str = "tok-9f8e7d6c5b4a-argument";
const VARIABLE: &str = "tok-1a2b3c4d5e6f-variable";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn arguments_of_a_build_are_not_in_its_log() {
    let fixture = ContainerFixture::new().await;
    fixture.create("shop", "docker").await;
    let base = Docker::BASE;
    let dockerfile = format!(
        "FROM {base} AS build\nARG TOKEN\nRUN echo \"the token is $TOKEN\" && echo \"$TOKEN\" | cut -c1-3\n\
         FROM {base}\nCOPY server.py version.txt /srv/\nWORKDIR /srv\nCMD [\"python3\", \"server.py\"]\n"
    );
    let mut sources = files("docker", "one");
    sources.retain(|(path, _)| path != "Dockerfile");
    sources.push(("Dockerfile".into(), dockerfile));
    let mut body = as_json(&sources);
    body["build"] = json!({"args": {"TOKEN": ARGUMENT}});
    let release = fixture.deploy("shop", &body).await;
    let log = fixture.build_log(&release).await;
    assert!(log.contains("the token is "), "{log}");
    assert!(log.contains("tok\n"), "the step had the real one: {log}");
    assert!(!log.contains(ARGUMENT), "{log}");
    assert!(!fixture.app.log().contains(ARGUMENT));
    let image = fixture.docker.image(&fixture.docker.images()[0]);
    assert!(!image.contains(ARGUMENT), "{image}");
    fixture.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn variables_are_in_no_image_and_nowhere_on_disk() {
    let fixture = ContainerFixture::new().await;
    fixture.create("shop", "node").await;
    let envs = json!({"project": "shop", "variables": [{"key": "WORD", "value": VARIABLE}]});
    fixture
        .ada
        .post("/v1/projects/update-envs", &envs)
        .await
        .assert(201);
    let mut body = as_json(&files("node", "one"));
    body["envs"] = json!([{"key": "OTHER", "value": format!("{VARIABLE}-other")}]);
    let release = fixture.deploy("shop", &body).await;
    // The app has it, and nobody else.
    assert_eq!(fixture.reply("shop").await.word, VARIABLE);
    assert!(!fixture.build_log(&release).await.contains(VARIABLE));
    let images = fixture.docker.images();
    assert_eq!(images.len(), 1);
    let image = fixture.docker.image(&images[0]);
    assert!(!image.contains(VARIABLE), "{image}");
    assert!(!fixture.app.holds(VARIABLE).await);
    fixture.end().await;
}
