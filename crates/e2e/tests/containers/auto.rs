//! Platform `auto`: a release is what its sources are, whatever the one before was.

use crate::sources::{as_archive, as_json, files};
use crate::support::{World, ended, eventually};
use serde_json::{Value, json};

fn page(text: &str) -> Value {
    as_json(&[("index.html".to_owned(), text.to_owned())])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_site_a_server_and_plain_files_follow_each_other() {
    let world = World::new().await;
    world.create("any", "auto").await;
    assert_eq!(world.project("any").await["type"], "auto");

    let built = world.deploy("any", &as_json(&files("react", "one"))).await;
    let log = world.build_log(&built).await;
    let why = "platform auto: this is a front end, because of the script `build`";
    assert!(log.contains(why), "{log}");
    assert!(world.text("any", "/").await.contains("<p>one"));
    assert_eq!(world.docker.running().len(), 0, "nothing has to run");

    let release = world.deploy("any", &as_json(&files("node", "two"))).await;
    let log = world.build_log(&release).await;
    assert!(log.contains("platform auto: this is Node.js"), "{log}");
    assert!(world.text("any", "/").await.starts_with("two - "));
    assert_eq!(world.docker.running().len(), 1);

    let release = world.deploy("any", &page("three")).await;
    let log = world.build_log(&release).await;
    assert!(log.contains("served as they are"), "{log}");
    assert_eq!(world.text("any", "/").await, "three");
    let gone = "the instance of the release before goes";
    eventually(gone, || async { world.docker.running().is_empty() }).await;

    let path = format!("/v1/releases/{built}/rollback");
    let back = world.ada.post_empty(&path).await.assert(200);
    let back = ended(&world.ada, &back.field("/releaseID")).await;
    assert_eq!(back["state"], "READY", "{back:#}");
    assert!(world.text("any", "/").await.contains("<p>one"));
    assert_eq!(world.project("any").await["type"], "auto");

    let archive = as_archive(&files("flask", "four"));
    let source = world.upload("any", &archive).await;
    world.deploy("any", &json!({ "sourceID": source })).await;
    assert!(world.text("any", "/").await.contains("four"));
    world.delete("any").await;
    world.nothing_left().await;
    world.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_needs_another_host_says_what_to_install() {
    let world = World::new().await;
    world.create("kit", "auto").await;
    let package = json!({
        "scripts": {"build": "vite build"},
        "devDependencies": {"@sveltejs/kit": "2", "@sveltejs/adapter-auto": "7"},
    });
    let sources = as_json(&[("package.json".to_owned(), package.to_string())]);
    let release = world.release("kit", &sources).await;
    let release = ended(&world.ada, &release).await;
    assert_eq!(release["failReason"], "build_refused", "{release:#}");
    let message = release["failMessage"].as_str().unwrap();
    assert!(
        message.contains("install @sveltejs/adapter-node"),
        "{message}"
    );
    world.end().await;
}
