//! Releases, restarts and resizes replace instances, and nobody notices.

use crate::crowd::Crowd;
use crate::sources::server;
use crate::support::{World, eventually, repeats};
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
    let world = World::new().await;
    world.serve("busy").await;
    let crowd = Crowd::gather(&world, "busy", CLIENTS).await;
    let releases = repeats(RELEASES);
    for number in 0..releases {
        world.deploy("busy", &server(&format!("v{number}"))).await;
    }
    // Whoever comes after READY gets the new one.
    assert_eq!(
        world.says("busy").await.version,
        format!("v{}", releases - 1)
    );
    let seen = crowd.leave().await;
    assert_eq!(seen.versions.len(), releases + 1, "{seen:?}");
    assert!(seen.pages > 10 * CLIENTS, "{seen:?}");
    world.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_in_flight_is_finished_by_the_old_release() {
    let world = World::new().await;
    world.serve("slow").await;
    let mut visitor = world.visitor("slow").await;
    let mut asking = JoinSet::new();
    asking.spawn(async move { visitor.get("/slow?seconds=10").await });
    tokio::time::sleep(Duration::from_millis(300)).await;
    world.deploy("slow", &server("two")).await;
    assert_eq!(world.says("slow").await.version, "two");
    assert!(
        asking.try_join_next().is_none(),
        "it is still in flight: the switch waits for nobody"
    );
    let page = asking.join_next().await.unwrap().unwrap();
    assert_eq!(page.status, 200);
    assert!(page.text().starts_with("one "), "{}", page.text());
    let gone = "with nothing left to do, the old instance goes";
    eventually(gone, || async { world.docker.containers().len() == 1 }).await;
    world.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_websocket_stays_with_its_release_until_it_closes_or_the_drain_limit() {
    let world = World::new().await;
    world.serve("chat").await;
    let mut socket = WebSocket::open(&world.app, "chat").await;
    assert_eq!(socket.echo("hello").await.unwrap(), "one hello");
    world.deploy("chat", &server("two")).await;
    for _ in 0..10 {
        assert_eq!(socket.echo("still there").await.unwrap(), "one still there");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(world.docker.containers().len(), 2);
    socket.close().await;
    let began = Instant::now();
    let gone = "an instance whose last visitor left goes";
    eventually(gone, || async { world.docker.containers().len() == 1 }).await;
    assert!(began.elapsed() < DRAIN / 2, "{:?}", began.elapsed());

    let mut stubborn = WebSocket::open(&world.app, "chat").await;
    world.deploy("chat", &server("three")).await;
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
    world.end().await;
}

/// The memory limits of the instances that run, in MiB.
fn memory(world: &World) -> Vec<u64> {
    let limit = |container: &Value| container["HostConfig"]["Memory"].as_u64().unwrap() >> 20;
    world.docker.running().iter().map(limit).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn restart_and_resize_are_rolling() {
    let world = World::new().await;
    world.serve("roll").await;
    world.scale("roll", 2).await;
    world.answered_by("roll", 2).await;
    let hosts = |world: &World| {
        let host = |container: &Value| container["Config"]["Hostname"].to_string();
        let hosts = world.docker.running();
        hosts.iter().map(host).collect::<Vec<_>>()
    };
    let crowd = Crowd::gather(&world, "roll", 8).await;
    let before = hosts(&world);
    let restart = "/v1/projects/roll/actions/restart";
    world.ada.post_empty(restart).await.assert(200);
    eventually("both instances are new", || async {
        let now = hosts(&world);
        now.len() == 2 && now.iter().all(|host| !before.contains(host))
    })
    .await;
    assert_eq!(memory(&world), [512, 512]);
    world
        .act("roll", "resize", &json!({"planID": "micro"}))
        .await;
    eventually("both instances have the new plan", || async {
        memory(&world) == [1024, 1024]
    })
    .await;
    world.scale("roll", 1).await;
    eventually("one is left", || async {
        world.docker.containers().len() == 1
    })
    .await;
    let seen = crowd.leave().await;
    assert!(
        seen.hosts.len() >= 6,
        "two, two restarted, two resized: {seen:?}"
    );
    assert_eq!(
        world.releases("roll").await.len(),
        1,
        "none of this is a release"
    );
    world.end().await;
}
