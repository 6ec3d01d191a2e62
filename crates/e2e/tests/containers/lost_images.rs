//! An engine that has lost its images, as after a restore onto another machine.

use crate::sources::{as_archive, as_json, files, server};
use crate::support::{World, eventually};
use estrade_model::ReleaseId;
use serde_json::{Value, json};
use std::time::Duration;

async fn serves(world: &World, project: &str) {
    eventually(&format!("{project} serves again"), || async {
        world.page(project, "/").await.status == 200
    })
    .await;
}

/// An image that nobody has.
const GONE: &str = "estrade-test/gone:1";

/// Lets a release be made of another image.
async fn set_image(world: &World, release: &Value, image: &'static str) {
    let release: ReleaseId = release.as_str().unwrap().parse().unwrap();
    let set = world.app.core().db.transact(move |tx| {
        Box::pin(async move {
            let sql = "UPDATE releases SET image = $1 WHERE id = $2";
            tx.query(sql).bind(image).bind(release).execute().await
        })
    });
    assert_eq!(set.await.unwrap(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_built_or_fetched_is_made_again() {
    let world = World::new().await;
    world.create("fetched", "docker").await;
    world.deploy("fetched", &server("one")).await;
    world.create("built", "node").await;
    let sources = files("node", "one");
    world.deploy("built", &as_json(&sources)).await;
    world.create("uploaded", "node").await;
    let source = world.upload("uploaded", &as_archive(&sources)).await;
    world
        .deploy("uploaded", &json!({ "sourceID": source }))
        .await;

    world.docker.lose_images();
    for project in ["fetched", "built", "uploaded"] {
        serves(&world, project).await;
        assert_eq!(world.says(project).await.version, "one");
        let releases = world.releases(project).await;
        assert_eq!(releases.len(), 2, "{releases:#?}");
        assert_eq!(releases[0]["state"], "READY", "{releases:#?}");
        let message = releases[0]["message"].as_str().unwrap();
        assert!(message.contains("did not have its image"), "{message}");
        assert_ne!(world.project(project).await["status"], "CRASH_LOOP");
    }
    world.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_acts_or_says_why_not() {
    let world = World::new().await;
    world.create("shop", "docker").await;
    let restart = "/v1/projects/shop/actions/restart";
    let refused = world.ada.post_empty(restart).await;
    refused.refused(409, "not_deployed").naming("deploy");
    world.deploy("shop", &server("one")).await;
    world.scale("shop", 0).await;
    let refused = world.ada.post_empty(restart).await;
    refused.refused(409, "switched_off").naming("scale");
    world.scale("shop", 1).await;
    serves(&world, "shop").await;

    // An image that cannot be made again: the project says so, and a restart tries at once.
    let release = world.releases("shop").await[0]["_id"].clone();
    let set = |image| set_image(&world, &release, image);
    set(GONE).await;
    world.docker.lose_images();
    let failed = || async {
        let releases = world.releases("shop").await;
        releases.len() == 2 && releases[0]["state"] == "FAILED"
    };
    eventually("it cannot be fetched", failed).await;
    set(estrade_testkit::Docker::BASE).await;
    world.ada.post_empty(restart).await.assert(200);
    serves(&world, "shop").await;
    let newest = world.releases("shop").await[0].clone();
    assert_eq!(newest["state"], "READY", "{newest:#}");
    world.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn attempts_end_and_the_project_says_so() {
    let world = World::with(|setup| {
        setup.settings.containers.rebuild_delay = Duration::from_millis(10);
    })
    .await;
    world.serve("shop").await;
    let release = world.releases("shop").await[0]["_id"].clone();
    set_image(&world, &release, GONE).await;
    world.docker.lose_images();
    let given_up = || async {
        let project = world.project("shop").await;
        let reason = project["failReason"].as_str().unwrap_or_default();
        project["status"] == "CRASH_LOOP" && reason.contains("It is not tried again")
    };
    eventually("it gives up", given_up).await;
    let told = world.told("shop").await;
    assert!(told.contains("rebuild_given_up"), "{told}");
    let count = world.releases("shop").await.len();
    assert!((3..20).contains(&count), "{count}");
    // Nothing more is tried, whatever wakes the reconciler. It looks at every project before another one serves.
    for name in ["one", "two"] {
        world.serve(name).await;
    }
    assert_eq!(world.releases("shop").await.len(), count);

    set_image(&world, &release, estrade_testkit::Docker::BASE).await;
    let restart = "/v1/projects/shop/actions/restart";
    world.ada.post_empty(restart).await.assert(200);
    serves(&world, "shop").await;
    eventually("it has recovered", || async {
        world.project("shop").await["status"] == "ACTIVE"
    })
    .await;
    world.end().await;
}
