//! The whole life of a project, for each way to say what runs.

use crate::sources::{as_archive, as_json, files, server};
use crate::support::{ContainerFixture, ended, eventually};
use serde_json::{Value, json};

/// How one platform's release is asked for.
struct Sample {
    platform: &'static str,
    /// The folder of its sources; none: it is an image.
    app: Option<&'static str>,
}

impl Sample {
    /// The release of a version, from `files` or just an image.
    fn release(&self, version: &str) -> Value {
        match self.app {
            Some(app) => as_json(&files(app, version)),
            None => server(version),
        }
    }

    /// The same from an archive that was uploaded before; an image has none.
    async fn release_from_source(&self, fixture: &ContainerFixture, version: &str) -> Value {
        let Some(app) = self.app else {
            return server(version);
        };
        let source = fixture
            .upload("life", &as_archive(&files(app, version)))
            .await;
        json!({ "sourceID": source })
    }
}

async fn live(sample: &Sample) {
    let fixture = ContainerFixture::new().await;
    let (ada, docker) = (&fixture.ada, &fixture.docker);
    fixture.create("life", sample.platform).await;

    let first = fixture.deploy("life", &sample.release("one")).await;
    let said = fixture.reply("life").await;
    assert_eq!((&*said.version, &*said.word), ("one", "-"));

    let body = sample.release_from_source(&fixture, "two").await;
    fixture.deploy("life", &body).await;
    assert_eq!(fixture.reply("life").await.version, "two");

    let envs = json!({"project": "life", "variables": [{"key": "WORD", "value": "changed"}]});
    ada.post("/v1/projects/update-envs", &envs)
        .await
        .assert(201);
    let newest = fixture.releases("life").await[0].clone();
    assert_eq!(newest["type"], "ENV_UPDATE");
    let updated = ended(ada, newest["_id"].as_str().unwrap()).await;
    assert_eq!(updated["state"], "READY", "{updated}");
    let said = fixture.reply("life").await;
    assert_eq!((&*said.version, &*said.word), ("two", "changed"));

    fixture.scale("life", 3).await;
    fixture.answered_by("life", 3).await;

    let images = docker.images().len();
    let path = format!("/v1/releases/{first}/rollback");
    let back = ada.post_empty(&path).await.assert(200).field("/releaseID");
    let back = ended(ada, &back).await;
    assert_eq!(
        (&back["state"], &back["type"]),
        (&json!("READY"), &json!("ROLLBACK"))
    );
    assert_eq!(fixture.reply("life").await.version, "one");
    assert_eq!(docker.images().len(), images, "a rollback builds nothing");
    fixture.answered_by("life", 3).await;

    fixture.scale("life", 0).await;
    eventually("a project that is switched off answers 503", || async {
        fixture.page("life", "/").await.status == 503
    })
    .await;
    eventually("its instances are gone", || async {
        docker.running().is_empty()
    })
    .await;
    fixture.scale("life", 1).await;
    eventually("it is back", || async {
        fixture.page("life", "/").await.status == 200
    })
    .await;
    assert_eq!(fixture.reply("life").await.version, "one");

    fixture.delete("life").await;
    eventually("visitors are told that it is gone", || async {
        fixture.page("life", "/").await.status == 404
    })
    .await;
    fixture.nothing_left().await;
    // The name is still its owner's.
    fixture.create("life", sample.platform).await;
    fixture.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_a_node_app() {
    let (platform, app) = ("node", Some("node"));
    live(&Sample { platform, app }).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_a_django_app() {
    let (platform, app) = ("django", Some("django"));
    live(&Sample { platform, app }).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_a_flask_app() {
    let (platform, app) = ("flask", Some("flask"));
    live(&Sample { platform, app }).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_a_dockerfile() {
    let (platform, app) = ("docker", Some("docker"));
    live(&Sample { platform, app }).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_a_bare_image() {
    let (platform, app) = ("docker", None);
    live(&Sample { platform, app }).await;
}
