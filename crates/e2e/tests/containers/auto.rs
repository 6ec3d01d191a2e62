//! Platform `auto`: a release is what its sources are, whatever the one before was.

use crate::sources::{as_archive, as_json, files};
use crate::support::{ContainerFixture, ended, eventually};
use serde_json::{Value, json};

fn page(text: &str) -> Value {
    as_json(&[("index.html".to_owned(), text.to_owned())])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_site_a_server_and_plain_files_follow_each_other() {
    let fixture = ContainerFixture::new().await;
    fixture.create("any", "auto").await;
    assert_eq!(fixture.project("any").await["type"], "auto");

    let built = fixture
        .deploy("any", &as_json(&files("react", "one")))
        .await;
    let log = fixture.build_log(&built).await;
    let why = "platform auto: this is a front end, because of the script `build`";
    assert!(log.contains(why), "{log}");
    assert!(fixture.text("any", "/").await.contains("<p>one"));
    assert_eq!(fixture.docker.running().len(), 0, "nothing has to run");

    let release = fixture.deploy("any", &as_json(&files("node", "two"))).await;
    let log = fixture.build_log(&release).await;
    assert!(log.contains("platform auto: this is Node.js"), "{log}");
    assert!(fixture.text("any", "/").await.starts_with("two - "));
    assert_eq!(fixture.docker.running().len(), 1);

    let release = fixture.deploy("any", &page("three")).await;
    let log = fixture.build_log(&release).await;
    assert!(log.contains("served as they are"), "{log}");
    assert_eq!(fixture.text("any", "/").await, "three");
    let gone = "the instance of the release before goes";
    eventually(gone, || async { fixture.docker.running().is_empty() }).await;

    let path = format!("/v1/releases/{built}/rollback");
    let back = fixture.ada.post_empty(&path).await.assert(200);
    let back = ended(&fixture.ada, &back.field("/releaseID")).await;
    assert_eq!(back["state"], "READY", "{back:#}");
    assert!(fixture.text("any", "/").await.contains("<p>one"));
    assert_eq!(fixture.project("any").await["type"], "auto");

    let archive = as_archive(&files("flask", "four"));
    let source = fixture.upload("any", &archive).await;
    fixture.deploy("any", &json!({ "sourceID": source })).await;
    assert!(fixture.text("any", "/").await.contains("four"));
    fixture.delete("any").await;
    fixture.nothing_left().await;
    fixture.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_needs_another_host_says_what_to_install() {
    let fixture = ContainerFixture::new().await;
    fixture.create("kit", "auto").await;
    let package = json!({
        "scripts": {"build": "vite build"},
        "devDependencies": {"@sveltejs/kit": "2", "@sveltejs/adapter-auto": "7"},
    });
    let sources = as_json(&[("package.json".to_owned(), package.to_string())]);
    let release = fixture.release("kit", &sources).await;
    let release = ended(&fixture.ada, &release).await;
    assert_eq!(release["failReason"], "build_refused", "{release:#}");
    let message = release["failMessage"].as_str().unwrap();
    assert!(
        message.contains("install @sveltejs/adapter-node"),
        "{message}"
    );
    fixture.end().await;
}
