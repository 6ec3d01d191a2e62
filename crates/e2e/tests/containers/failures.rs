//! What goes wrong is said, and never hurts what is live.

use crate::crowd::Crowd;
use crate::sources::{as_json, files, odd_server, server};
use crate::support::{ContainerFixture, ended, eventually};
use estrade_runtime::EngineHost;
use estrade_testkit::Docker;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// A fixture in which nobody waits for long.
async fn impatient() -> ContainerFixture {
    let limit = Duration::from_secs(4);
    ContainerFixture::with(|setup| setup.settings.containers.health_limit = limit).await
}

fn text<'v>(value: &'v Value, field: &str) -> &'v str {
    value[field].as_str().unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unhealthy_release_leaves_the_old_one_alone() {
    let fixture = impatient().await;
    let live = fixture.serve("shop").await;
    let crowd = Crowd::gather(&fixture, "shop", 4).await;

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
        let release = fixture.release("shop", &body).await;
        let release = ended(&fixture.ada, &release).await;
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
        assert_eq!(
            fixture.project("shop").await["currentRelease"],
            live.as_str()
        );
        assert_eq!(fixture.reply("shop").await.version, "one");
        eventually("what it left is gone", || async {
            fixture.docker.containers().len() == 1
        })
        .await;
    }
    let mut well = server("two");
    well["healthCheck"] = json!({"path": "/"});
    fixture.deploy("shop", &well).await;
    let seen = crowd.leave().await;
    assert_eq!(
        seen.versions.into_iter().collect::<Vec<_>>(),
        ["one", "two"]
    );
    fixture.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_project_that_keeps_dying_is_in_a_crash_loop() {
    let fixture = ContainerFixture::new().await;
    fixture.create("weak", "docker").await;
    let release = fixture
        .release("weak", &odd_server("one", &["dies", "1.5"]))
        .await;
    let release = ended(&fixture.ada, &release).await;
    assert_eq!(release["state"], "READY", "it listened: {release:#}");
    eventually("the project is in a crash loop", || async {
        fixture.project("weak").await["status"] == "CRASH_LOOP"
    })
    .await;
    let project = fixture.project("weak").await;
    let reason = project["failReason"].to_string();
    assert!(reason.contains("boom: there is no database"), "{project:#}");
    assert!(
        fixture.docker.containers().len() <= 1,
        "{:?}",
        fixture.docker.instances()
    );
    // A good release ends it.
    fixture.deploy("weak", &server("two")).await;
    eventually("it is well again", || async {
        fixture.project("weak").await["status"] == "ACTIVE"
    })
    .await;
    assert_eq!(fixture.reply("weak").await.version, "two");
    fixture.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_that_keeps_dying_after_its_switch_is_rolled_back() {
    let fixture = ContainerFixture::new().await;
    let good = fixture.serve("shop").await;
    let bad = fixture
        .release("shop", &odd_server("two", &["dies", "1.5"]))
        .await;
    assert_eq!(ended(&fixture.ada, &bad).await["state"], "READY");
    eventually("somebody rolls back", || async {
        let newest = &fixture.releases("shop").await[0];
        newest["type"] == "AUTO_ROLLBACK" && newest["state"] == "READY"
    })
    .await;
    assert_eq!(fixture.reply("shop").await.version, "one");
    eventually("the project is well", || async {
        fixture.project("shop").await["status"] == "ACTIVE"
    })
    .await;
    let releases = fixture.releases("shop").await;
    let ids: Vec<_> = releases[1..]
        .iter()
        .map(|release| text(release, "_id"))
        .collect();
    assert_eq!(ids, [&bad, &good]);
    fixture.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancel_really_stops_the_build() {
    let fixture = ContainerFixture::new().await;
    let live = fixture.serve("shop").await;
    let base = Docker::BASE;
    // The number of seconds is how the step can be found among all processes of this machine.
    let seconds = 100_000 + std::process::id();
    let dockerfile = format!("FROM {base}\nRUN echo begun && sleep {seconds}\nRUN echo never\n");
    let body = as_json(&[("Dockerfile".to_owned(), dockerfile)]);
    let release = fixture.release("shop", &body).await;
    eventually("the build has begun", || async {
        fixture.build_log(&release).await.contains("begun\n")
    })
    .await;
    assert!(is_running(seconds));
    let path = format!("/v2/releases/{release}/cancel");
    let began = Instant::now();
    fixture.ada.post_empty(&path).await.assert(200);
    let ended = ended(&fixture.ada, &release).await;
    assert_eq!(ended["state"], "CANCELED");
    eventually("the step has ended", || async { !is_running(seconds) }).await;
    assert!(
        began.elapsed() < Duration::from_secs(10),
        "{:?}",
        began.elapsed()
    );
    assert!(!fixture.build_log(&release).await.contains("never"));
    assert_eq!(
        fixture.project("shop").await["currentRelease"],
        live.as_str()
    );
    assert_eq!(fixture.docker.images().len(), 1, "no image of it is left");
    // The queue goes on.
    fixture.deploy("shop", &server("two")).await;
    fixture.end().await;
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
    let fixture = ContainerFixture::new().await;
    fixture.create("shop", "node").await;
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
    let release = fixture.release("shop", &as_json(&sources)).await;
    let ended = ended(&fixture.ada, &release).await;
    assert_eq!(ended["state"], "FAILED", "{ended:#}");
    assert_eq!(ended["failReason"], "build_failed", "{ended:#}");
    let message = text(&ended, "failMessage");
    let cause = "`npm run build` failed with exit code 1: Error: a typo in line 7; correct that";
    assert!(message.starts_with(cause), "{message}");
    let (sentence, place) = message.split_once('\n').unwrap();
    assert!(place.starts_with("Step "), "{message}");
    let log = fixture.build_log(&release).await;
    assert!(log.contains("a typo in line 7"), "{log}");
    assert!(log.contains(&format!("\nFailed: {sentence}\n")), "{log}");
    assert_eq!(fixture.page("shop", "/").await.status, 404);
    assert_eq!(fixture.docker.images(), [] as [&str; 0]);
    fixture.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_an_engine_static_sites_work_and_others_say_what_to_install() {
    let fixture = ContainerFixture::with(|setup| {
        let nowhere = "/nonexistent/docker.sock".into();
        setup.settings.containers.host = EngineHost::Unix(nowhere);
    })
    .await;
    for (name, body) in [
        ("image", server("one")),
        ("node", as_json(&files("node", "one"))),
    ] {
        let platform = if name == "image" { "docker" } else { name };
        fixture.create(name, platform).await;
        let release = fixture.release(name, &body).await;
        let ended = ended(&fixture.ada, &release).await;
        assert_eq!(ended["state"], "FAILED", "{ended:#}");
        assert_eq!(ended["failReason"], "container_runtime_unavailable");
        let message = text(&ended, "failMessage");
        assert!(
            message.contains("docker.io") || message.contains("Docker Engine"),
            "{message}"
        );
        assert!(message.contains("/nonexistent/docker.sock"), "{message}");
        // What cannot run can still be tidied up.
        fixture.scale(name, 2).await;
        fixture.delete(name).await;
    }
    fixture.create("site", "static").await;
    let page = [("index.html".to_owned(), "<p>here</p>".to_owned())];
    fixture.deploy("site", &as_json(&page)).await;
    assert_eq!(fixture.text("site", "/").await, "<p>here</p>");
    fixture.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_build_does_not_fill_the_disk() {
    // As if nearly nothing were free.
    let fixture =
        ContainerFixture::with(|setup| setup.settings.containers.free_disk = u64::MAX).await;
    fixture.create("big", "docker").await;
    let dockerfile = format!("FROM {}\nRUN sleep 60\n", Docker::BASE);
    let body = json!({"type": "docker", "files": [{"path": "Dockerfile", "data": dockerfile}]});
    let release = fixture.release("big", &body).await;
    let release = ended(&fixture.ada, &release).await;
    assert_eq!(release["state"], "FAILED", "{release:#}");
    assert_eq!(release["failReason"], "disk_full", "{release:#}");
    fixture.end().await;
}
