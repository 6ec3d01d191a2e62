//! An engine that has lost its images, as after a restore onto another machine.

use crate::sources::{as_archive, as_json, files, server};
use crate::support::{ContainerFixture, eventually};
use estrade_model::ReleaseId;
use serde_json::{Value, json};
use std::time::Duration;

async fn serves(fixture: &ContainerFixture, project: &str) {
    eventually(&format!("{project} serves again"), || async {
        fixture.page(project, "/").await.status == 200
    })
    .await;
}

/// An image that nobody has.
const GONE: &str = "estrade-test/gone:1";

/// Lets a release be made of another image.
async fn set_image(fixture: &ContainerFixture, release: &Value, image: &'static str) {
    let release: ReleaseId = release.as_str().unwrap().parse().unwrap();
    let set = fixture.app.core().db.transact(move |tx| {
        Box::pin(async move {
            let sql = "UPDATE releases SET image = $1 WHERE id = $2";
            tx.query(sql).bind(image).bind(release).execute().await
        })
    });
    assert_eq!(set.await.unwrap(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_built_or_fetched_is_made_again() {
    let fixture = ContainerFixture::new().await;
    fixture.create("fetched", "docker").await;
    fixture.deploy("fetched", &server("one")).await;
    fixture.create("built", "node").await;
    let sources = files("node", "one");
    fixture.deploy("built", &as_json(&sources)).await;
    fixture.create("uploaded", "node").await;
    let source = fixture.upload("uploaded", &as_archive(&sources)).await;
    fixture
        .deploy("uploaded", &json!({ "sourceID": source }))
        .await;

    fixture.docker.lose_images();
    for project in ["fetched", "built", "uploaded"] {
        // Not by its page: an instance that began while its image was removed may answer for a moment.
        let made_again = || async {
            let releases = fixture.releases(project).await;
            releases.len() == 2 && releases[0]["state"] == "READY"
        };
        eventually(&format!("{project} has its image again"), made_again).await;
        assert_eq!(fixture.reply(project).await.version, "one");
        let releases = fixture.releases(project).await;
        assert_eq!(releases.len(), 2, "{releases:#?}");
        let message = releases[0]["message"].as_str().unwrap();
        assert!(message.contains("did not have its image"), "{message}");
        assert_ne!(fixture.project(project).await["status"], "CRASH_LOOP");
    }
    fixture.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_acts_or_says_why_not() {
    let fixture = ContainerFixture::new().await;
    fixture.create("shop", "docker").await;
    let restart = "/v1/projects/shop/actions/restart";
    let refused = fixture.ada.post_empty(restart).await;
    refused.refused(409, "not_deployed").naming("deploy");
    fixture.deploy("shop", &server("one")).await;
    fixture.scale("shop", 0).await;
    let refused = fixture.ada.post_empty(restart).await;
    refused.refused(409, "switched_off").naming("scale");
    fixture.scale("shop", 1).await;
    serves(&fixture, "shop").await;

    // An image that cannot be made again: the project says so, and a restart tries at once.
    let release = fixture.releases("shop").await[0]["_id"].clone();
    let set = |image| set_image(&fixture, &release, image);
    set(GONE).await;
    fixture.docker.lose_images();
    let failed = || async {
        let releases = fixture.releases("shop").await;
        releases.len() == 2 && releases[0]["state"] == "FAILED"
    };
    eventually("it cannot be fetched", failed).await;
    set(estrade_testkit::Docker::BASE).await;
    fixture.ada.post_empty(restart).await.assert(200);
    serves(&fixture, "shop").await;
    let newest = fixture.releases("shop").await[0].clone();
    assert_eq!(newest["state"], "READY", "{newest:#}");
    fixture.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn attempts_end_and_the_project_says_so() {
    let fixture = ContainerFixture::with(|setup| {
        setup.settings.containers.rebuild_delay = Duration::from_millis(10);
    })
    .await;
    fixture.serve("shop").await;
    let release = fixture.releases("shop").await[0]["_id"].clone();
    set_image(&fixture, &release, GONE).await;
    fixture.docker.lose_images();
    let given_up = || async {
        let project = fixture.project("shop").await;
        let reason = project["failReason"].as_str().unwrap_or_default();
        project["status"] == "CRASH_LOOP" && reason.contains("It is not tried again")
    };
    eventually("it gives up", given_up).await;
    let shown = fixture.shown("shop").await;
    assert!(shown.contains("rebuild_given_up"), "{shown}");
    let count = fixture.releases("shop").await.len();
    assert!((3..20).contains(&count), "{count}");
    // Nothing more is tried, whatever wakes the reconciler. It looks at every project before another one serves.
    for name in ["one", "two"] {
        fixture.serve(name).await;
    }
    assert_eq!(fixture.releases("shop").await.len(), count);

    set_image(&fixture, &release, estrade_testkit::Docker::BASE).await;
    let restart = "/v1/projects/shop/actions/restart";
    fixture.ada.post_empty(restart).await.assert(200);
    serves(&fixture, "shop").await;
    eventually("it has recovered", || async {
        fixture.project("shop").await["status"] == "ACTIVE"
    })
    .await;
    fixture.end().await;
}
