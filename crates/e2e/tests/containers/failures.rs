//! What goes wrong is said, and never hurts what is live.

use crate::crowd::Crowd;
use crate::sources::{as_json, files, odd_server, server};
use crate::support::{World, ended, eventually};
use estrade_runtime::EngineHost;
use estrade_testkit::Docker;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// A world in which nobody waits for long.
async fn impatient() -> World {
    let limit = Duration::from_secs(4);
    World::with(|setup| setup.settings.containers.health_limit = limit).await
}

fn text<'v>(value: &'v Value, field: &str) -> &'v str {
    value[field].as_str().unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unhealthy_release_leaves_the_old_one_alone() {
    let world = impatient().await;
    let live = world.serve("shop").await;
    let crowd = Crowd::gather(&world, "shop", 4).await;

    // One that never listens, one that ends at once, one that is not well.
    let mut unwell = server("sick");
    unwell["healthCheck"] = json!({"path": "/missing"});
    for (body, words) in [
        (
            odd_server("mute", &["mute"]),
            "waiting for a database that never comes",
        ),
        (odd_server("short", &["ends"]), "boom: there is no database"),
        (unwell, "404"),
    ] {
        let release = world.release("shop", &body).await;
        let release = ended(&world.ada, &release).await;
        assert_eq!(release["state"], "UNHEALTHY", "{release:#}");
        assert_ne!(text(&release, "failReason"), "", "{release:#}");
        let message = text(&release, "failMessage");
        assert!(message.contains(words), "{release:#}");
        // Who is refused a connection is told where to listen.
        let refused = message.contains("refused");
        let advised = message.contains("listen on 0.0.0.0:$PORT");
        assert!(
            refused == advised && refused == words.contains("database that"),
            "{release:#}"
        );
        assert_eq!(world.project("shop").await["currentRelease"], live.as_str());
        assert_eq!(world.says("shop").await.version, "one");
        eventually("what it left is gone", || async {
            world.docker.containers().len() == 1
        })
        .await;
    }
    let mut well = server("two");
    well["healthCheck"] = json!({"path": "/"});
    world.deploy("shop", &well).await;
    let seen = crowd.leave().await;
    assert_eq!(
        seen.versions.into_iter().collect::<Vec<_>>(),
        ["one", "two"]
    );
    world.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_project_that_keeps_dying_is_in_a_crash_loop() {
    let world = World::new().await;
    world.create("weak", "docker").await;
    let release = world
        .release("weak", &odd_server("one", &["dies", "1.5"]))
        .await;
    let release = ended(&world.ada, &release).await;
    assert_eq!(release["state"], "READY", "it listened: {release:#}");
    eventually("the project is in a crash loop", || async {
        world.project("weak").await["status"] == "CRASH_LOOP"
    })
    .await;
    let project = world.project("weak").await;
    let reason = project["failReason"].to_string();
    assert!(reason.contains("boom: there is no database"), "{project:#}");
    assert!(
        world.docker.containers().len() <= 1,
        "{:?}",
        world.docker.instances()
    );
    // A good release ends it.
    world.deploy("weak", &server("two")).await;
    eventually("it is well again", || async {
        world.project("weak").await["status"] == "ACTIVE"
    })
    .await;
    assert_eq!(world.says("weak").await.version, "two");
    world.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_that_keeps_dying_after_its_switch_is_rolled_back() {
    let world = World::new().await;
    let good = world.serve("shop").await;
    let bad = world
        .release("shop", &odd_server("two", &["dies", "1.5"]))
        .await;
    assert_eq!(ended(&world.ada, &bad).await["state"], "READY");
    eventually("somebody rolls back", || async {
        let newest = &world.releases("shop").await[0];
        newest["type"] == "AUTO_ROLLBACK" && newest["state"] == "READY"
    })
    .await;
    assert_eq!(world.says("shop").await.version, "one");
    eventually("the project is well", || async {
        world.project("shop").await["status"] == "ACTIVE"
    })
    .await;
    let releases = world.releases("shop").await;
    let ids: Vec<_> = releases[1..]
        .iter()
        .map(|release| text(release, "_id"))
        .collect();
    assert_eq!(ids, [&bad, &good]);
    world.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancel_really_stops_the_build() {
    let world = World::new().await;
    let live = world.serve("shop").await;
    let base = Docker::BASE;
    // The number of seconds is how the step can be found among all processes of this machine.
    let seconds = 100_000 + std::process::id();
    let dockerfile = format!("FROM {base}\nRUN echo begun && sleep {seconds}\nRUN echo never\n");
    let body = as_json(&[("Dockerfile".to_owned(), dockerfile)]);
    let release = world.release("shop", &body).await;
    eventually("the build has begun", || async {
        world.build_log(&release).await.contains("begun\n")
    })
    .await;
    assert!(is_running(seconds));
    let path = format!("/v2/releases/{release}/cancel");
    let began = Instant::now();
    world.ada.post_empty(&path).await.assert(200);
    let ended = ended(&world.ada, &release).await;
    assert_eq!(ended["state"], "CANCELED");
    eventually("the step has ended", || async { !is_running(seconds) }).await;
    assert!(
        began.elapsed() < Duration::from_secs(10),
        "{:?}",
        began.elapsed()
    );
    assert!(!world.build_log(&release).await.contains("never"));
    assert_eq!(world.project("shop").await["currentRelease"], live.as_str());
    assert_eq!(world.docker.images().len(), 1, "no image of it is left");
    // The queue goes on.
    world.deploy("shop", &server("two")).await;
    world.end().await;
}

/// Whether a process with `sleep <seconds>` runs on this machine.
fn is_running(seconds: u32) -> bool {
    let wanted = format!("sleep\0{seconds}\0");
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let mut lines = processes.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok());
    lines.any(|line| line == wanted.as_bytes())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_build_that_fails_says_where() {
    let world = World::new().await;
    world.create("shop", "node").await;
    let mut sources = files("node", "one");
    let manifest = r#"{"scripts": {"start": "node server.js", "build": "node broken.js"}}"#;
    for (path, text) in &mut sources {
        if path == "package.json" {
            manifest.clone_into(text);
        }
    }
    sources.push((
        "broken.js".into(),
        "throw new Error('a typo in line 7')".into(),
    ));
    let release = world.release("shop", &as_json(&sources)).await;
    let ended = ended(&world.ada, &release).await;
    assert_eq!(ended["state"], "FAILED", "{ended:#}");
    assert_eq!(ended["failReason"], "build_failed", "{ended:#}");
    let message = text(&ended, "failMessage");
    let cause = "`npm run build` failed with exit code 1: Error: a typo in line 7\nStep ";
    assert!(message.starts_with(cause), "{message}");
    let log = world.build_log(&release).await;
    assert!(log.contains("a typo in line 7"), "{log}");
    assert_eq!(world.page("shop", "/").await.status, 404);
    assert_eq!(world.docker.images(), [] as [&str; 0]);
    world.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_an_engine_static_sites_work_and_others_say_what_to_install() {
    let world = World::with(|setup| {
        let nowhere = "/nonexistent/docker.sock".into();
        setup.settings.containers.host = EngineHost::Unix(nowhere);
    })
    .await;
    for (name, body) in [
        ("image", server("one")),
        ("node", as_json(&files("node", "one"))),
    ] {
        let platform = if name == "image" { "docker" } else { name };
        world.create(name, platform).await;
        let release = world.release(name, &body).await;
        let ended = ended(&world.ada, &release).await;
        assert_eq!(ended["state"], "FAILED", "{ended:#}");
        assert_eq!(ended["failReason"], "container_runtime_unavailable");
        let message = text(&ended, "failMessage");
        assert!(
            message.contains("docker.io") || message.contains("Docker Engine"),
            "{message}"
        );
        assert!(message.contains("/nonexistent/docker.sock"), "{message}");
        // What cannot run can still be tidied up.
        world.scale(name, 2).await;
        world.delete(name).await;
    }
    world.create("site", "static").await;
    let page = [("index.html".to_owned(), "<p>here</p>".to_owned())];
    world.deploy("site", &as_json(&page)).await;
    assert_eq!(world.text("site", "/").await, "<p>here</p>");
    world.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_build_does_not_fill_the_disk() {
    // As if nearly nothing were free.
    let world = World::with(|setup| setup.settings.containers.free_disk = u64::MAX).await;
    world.create("big", "docker").await;
    let dockerfile = format!("FROM {}\nRUN sleep 60\n", Docker::BASE);
    let body = json!({"type": "docker", "files": [{"path": "Dockerfile", "data": dockerfile}]});
    let release = world.release("big", &body).await;
    let release = ended(&world.ada, &release).await;
    assert_eq!(release["state"], "FAILED", "{release:#}");
    assert_eq!(release["failReason"], "disk_full", "{release:#}");
    world.end().await;
}
