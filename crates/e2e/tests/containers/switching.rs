//! Releases, restarts and resizes replace instances, and nobody notices.

use crate::crowd::Crowd;
use crate::sources::server;
use crate::support::{ContainerFixture, eventually, repeats};
use crate::websocket::WebSocket;
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// Visitors who never stop.
const CLIENTS: usize = 32;
/// Releases meanwhile, in a full run.
const RELEASES: usize = 20;
/// How long an old instance may go on with what it has.
const DRAIN: Duration = Duration::from_secs(30);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn releases_under_load_drop_nothing() {
    let fixture = ContainerFixture::new().await;
    fixture.serve("busy").await;
    let crowd = Crowd::gather(&fixture, "busy", CLIENTS).await;
    let releases = repeats(RELEASES);
    for number in 0..releases {
        fixture.deploy("busy", &server(&format!("v{number}"))).await;
    }
    // A client that comes after READY gets the new one.
    assert_eq!(
        fixture.reply("busy").await.version,
        format!("v{}", releases - 1)
    );
    let seen = crowd.leave().await;
    assert_eq!(seen.versions.len(), releases + 1, "{seen:?}");
    assert!(seen.pages > 10 * CLIENTS, "{seen:?}");
    fixture.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_in_flight_is_finished_by_the_old_release() {
    let fixture = ContainerFixture::new().await;
    fixture.serve("slow").await;
    let mut visitor = fixture.visitor("slow").await;
    let mut asking = JoinSet::new();
    asking.spawn(async move { visitor.get("/slow?seconds=10").await });
    tokio::time::sleep(Duration::from_millis(300)).await;
    fixture.deploy("slow", &server("two")).await;
    assert_eq!(fixture.reply("slow").await.version, "two");
    assert!(
        asking.try_join_next().is_none(),
        "it is still in flight: the switch waits for nobody"
    );
    let page = asking.join_next().await.unwrap().unwrap();
    assert_eq!(page.status, 200);
    assert!(page.text().starts_with("one "), "{}", page.text());
    let gone = "with nothing left to do, the old instance goes";
    eventually(gone, || async { fixture.docker.containers().len() == 1 }).await;
    fixture.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_websocket_stays_with_its_release_until_it_closes_or_the_drain_limit() {
    let fixture = ContainerFixture::new().await;
    fixture.serve("chat").await;
    let mut socket = WebSocket::open(&fixture.app, "chat").await;
    assert_eq!(socket.echo("hello").await.unwrap(), "one hello");
    fixture.deploy("chat", &server("two")).await;
    for _ in 0..10 {
        assert_eq!(socket.echo("still there").await.unwrap(), "one still there");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(fixture.docker.containers().len(), 2);
    socket.close().await;
    let began = Instant::now();
    let gone = "an instance whose last visitor left goes";
    eventually(gone, || async { fixture.docker.containers().len() == 1 }).await;
    assert!(began.elapsed() < DRAIN / 2, "{:?}", began.elapsed());

    let mut stubborn = WebSocket::open(&fixture.app, "chat").await;
    fixture.deploy("chat", &server("three")).await;
    let began = Instant::now();
    while let Ok(text) = stubborn.echo("x").await {
        assert_eq!(text, "two x");
        assert!(began.elapsed() < DRAIN * 3 / 2, "it is never cut off");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let lasted = began.elapsed();
    assert!(
        lasted + Duration::from_secs(3) > DRAIN,
        "cut off after {lasted:?}"
    );
    fixture.end().await;
}

/// The memory limits of the instances that run, in MiB.
fn memory(fixture: &ContainerFixture) -> Vec<u64> {
    let limit = |container: &Value| container["HostConfig"]["Memory"].as_u64().unwrap() >> 20;
    fixture.docker.running().iter().map(limit).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn restart_and_resize_are_rolling() {
    let fixture = ContainerFixture::new().await;
    fixture.serve("roll").await;
    fixture.scale("roll", 2).await;
    fixture.answered_by("roll", 2).await;
    let hosts = |fixture: &ContainerFixture| {
        let host = |container: &Value| container["Config"]["Hostname"].to_string();
        let hosts = fixture.docker.running();
        hosts.iter().map(host).collect::<Vec<_>>()
    };
    let crowd = Crowd::gather(&fixture, "roll", 8).await;
    let before = hosts(&fixture);
    let restart = "/v1/projects/roll/actions/restart";
    fixture.ada.post_empty(restart).await.assert(200);
    eventually("both instances are new", || async {
        let now = hosts(&fixture);
        now.len() == 2 && now.iter().all(|host| !before.contains(host))
    })
    .await;
    assert_eq!(memory(&fixture), [512, 512]);
    fixture
        .act("roll", "resize", &json!({"planID": "micro"}))
        .await;
    eventually("both instances have the new plan", || async {
        memory(&fixture) == [1024, 1024]
    })
    .await;
    fixture.scale("roll", 1).await;
    eventually("one is left", || async {
        fixture.docker.containers().len() == 1
    })
    .await;
    let seen = crowd.leave().await;
    assert!(
        seen.hosts.len() >= 6,
        "two, two restarted, two resized: {seen:?}"
    );
    assert_eq!(
        fixture.releases("roll").await.len(),
        1,
        "none of this is a release"
    );
    fixture.end().await;
}
