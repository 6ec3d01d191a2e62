//! Builds take turns, and nobody waits for those of another.

use crate::support::{ContainerFixture, create, ended};
use estrade_testkit::User;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// More than there are turns and slots for.
const MANY: usize = 24;

/// A build that takes so many seconds. What it makes runs nothing: it is only about the build.
fn slow(seconds: u32, name: &str) -> Value {
    let base = estrade_testkit::Docker::BASE;
    let dockerfile = format!("FROM {base}\nRUN echo {name}; sleep {seconds}; exit 1\n");
    json!({"type": "docker", "port": 8000, "files": [{"path": "Dockerfile", "data": dockerfile}]})
}

async fn release(user: &User, project: &str, body: &Value) -> String {
    let path = format!("/v2/projects/{project}/releases");
    user.post(&path, body).await.assert(201).field("/releaseID")
}

async fn read(user: &User, release: &str) -> Value {
    let read = user.get(&format!("/v1/releases/{release}")).await;
    read.assert(200).json()["release"].clone()
}

/// Waits until a release is in that state, or has ended.
async fn reached(user: &User, release: &str, state: &str) -> Value {
    let path = format!("/v1/releases/{release}?wait={state}&timeout=55");
    user.get(&path).await.assert(200).json()["release"].clone()
}

/// How many of these were ever begun.
async fn begun(user: &User, releases: &[String]) -> usize {
    let mut count = 0;
    for release in releases {
        count += usize::from(read(user, release).await["state"] != "PENDING");
    }
    count
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_owners_builds_hold_up_nobody_else() {
    let fixture = ContainerFixture::new().await;
    let (ada, bob) = (&fixture.ada, fixture.app.new_account("bob").await);
    let carol = fixture.app.new_account("carol").await;
    let mut queued = Vec::new();
    for number in 0..MANY {
        let name = format!("slow-{number}");
        create(ada, &name, "docker").await;
        queued.push(release(ada, &name, &slow(6, &name)).await);
    }
    // Four have turns; the others wait where they hold nothing, and say how many of their owner come first.
    let first = reached(ada, &queued[3], "BUILDING").await;
    assert_eq!(first["state"], "BUILDING", "{first:#}");
    let last = read(ada, &queued[MANY - 1]).await;
    assert_eq!(last["state"], "PENDING", "{last:#}");
    let before = last["queue"].as_u64().unwrap();
    assert!(
        (MANY as u64 - 10..MANY as u64).contains(&before),
        "{last:#}"
    );

    create(&bob, "site", "static").await;
    create(&bob, "app", "docker").await;
    let site = json!({"files": [{"path": "index.html", "data": "hello"}]});
    let began = Instant::now();
    let site = release(&bob, "site", &site).await;
    let site = ended(&bob, &site).await;
    let took = began.elapsed();
    assert_eq!(site["state"], "READY", "{site:#}");
    eprintln!("a static release beside {MANY} builds of another owner: {took:?}");
    assert!(took < Duration::from_secs(3), "{took:?}");

    // Two other owners: each gets a turn before the first one gets four more.
    create(&carol, "app-of-carol", "docker").await;
    let builds = [
        (&bob, release(&bob, "app", &slow(1, "bob")).await),
        (
            &carol,
            release(&carol, "app-of-carol", &slow(1, "carol")).await,
        ),
    ];
    for (user, build) in &builds {
        let alone = read(user, build).await;
        // What others have queued is not this owner's business.
        assert!(alone["queue"].is_null() || alone["queue"] == 0, "{alone:#}");
        reached(user, build, "BUILDING").await;
    }
    let overtaken = begun(ada, &queued).await;
    eprintln!("of {MANY} builds {overtaken} had begun when both others had");
    assert!(overtaken <= 8, "{overtaken} builds of one owner were first");
    for (user, build) in &builds {
        let build = ended(user, build).await;
        assert_eq!(build["failReason"], "build_failed", "{build:#}");
    }
    for build in &queued {
        // Those that have ended meanwhile refuse.
        let path = format!("/v2/releases/{build}/cancel");
        ada.post_empty(&path).await;
    }
    for build in &queued {
        let state = ended(ada, build).await["state"].clone();
        assert!(state == "CANCELED" || state == "FAILED", "{state}");
    }
    fixture.end().await;
}
