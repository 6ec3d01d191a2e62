//! `/v1/projects/{project_id}/metrics`, `metrics.svg` and `metrics/summary`

use crate::support::{clean, deploy, engine, eventually, new_live, new_project, running, scale};
use estrade_model::ProjectId;
use estrade_runtime::EngineHost;
use estrade_service::bootstrap::{self, ADMIN, InstallationPaths};
use estrade_service::platform::containers::usage::Measuring;
use estrade_service::{Core, Services, Settings, identity::accounts};
use estrade_store::Value as Cell;
use estrade_testkit::{TestApp, on_both_backends};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use tokio::net::UnixListener;

on_both_backends! {
    what_instances_use_is_measured with engine;
    a_project_that_does_not_run_has_no_samples;
}

/// Listens, and uses all the time it gets.
const BUSY: &str = "import socket; s = socket.create_server(('', 8000))\nwhile True: pass";
const METRICS: &str = "/v1/projects/shop/metrics";
const SUMMARY: &str = "/v1/projects/shop/metrics/summary";
const PICTURE: &str = "/v1/projects/shop/metrics.svg";

async fn what_instances_use_is_measured(app: &TestApp) {
    let ada = app.new_account("ada").await;
    new_live(app, &ada, "calm").await;
    let shop = new_project(&ada, "shop").await;
    deploy(&ada, "shop", BUSY).await;
    scale(&ada, "shop", 2).await;
    running(app, shop, 2).await;
    let mut measuring = Measuring::default();
    app.meter().step(&mut measuring).await.unwrap();
    // The CPU time between the two steps is measured: a longer span makes the error of its ends smaller.
    tokio::time::sleep(Duration::from_secs(3)).await;
    app.meter().step(&mut measuring).await.unwrap();

    let metrics = ada.get(METRICS).await.assert(200).json();
    assert_eq!(metrics["step"], 10);
    assert_eq!(metrics["limits"], json!({"memory": 512 << 20, "cpus": 1}));
    let sample = metrics["samples"].as_array().unwrap().last().unwrap();
    let mut names: Vec<_> = sample.as_object().unwrap().keys().collect();
    names.sort();
    assert_eq!(
        names,
        [
            "cpu",
            "instances",
            "memory",
            "networkIn",
            "networkOut",
            "timestamp"
        ]
    );
    assert_eq!(sample["instances"], 2);
    // Each may use a core, on a machine that may have other things to do.
    let cpu = sample["cpu"].as_f64().unwrap();
    assert!((0.1..2.2).contains(&cpu), "{cpu}");
    let memory = sample["memory"].as_u64().unwrap();
    assert!((4 << 20..512 << 20).contains(&memory), "{memory}");
    let calm = ada.get("/v1/projects/calm/metrics").await.json();
    let idle = calm["samples"].as_array().unwrap().last().unwrap()["cpu"].as_f64();
    assert!(idle.unwrap() < 0.1, "{calm}");

    let now = ada.get(SUMMARY).await.assert(200).json();
    assert_eq!(now["timestamp"], sample["timestamp"]);
    assert_eq!(
        (&now["instances"], &now["cpu"]["used"]),
        (&json!(2), &sample["cpu"])
    );
    // Both together.
    assert_eq!(now["cpu"]["limit"], 2);
    assert_eq!(
        now["memory"],
        json!({"used": memory, "limit": 1024_u64 << 20})
    );
    assert!(now["network"]["in"].is_u64(), "{now}");

    let picture = ada.get(PICTURE).await.assert(200);
    assert_eq!(picture.header("content-type"), "image/svg+xml");
    assert!(
        picture
            .header("content-security-policy")
            .contains("default-src 'none'")
    );
    assert!(picture.text().contains("2 instances"), "{}", picture.text());
    scale(&ada, "shop", 0).await;
    running(app, shop, 0).await;
    app.meter().step(&mut measuring).await.unwrap();
    // What was measured stays for an hour, and goes then.
    let kept = |metrics: Value| metrics["samples"].as_array().unwrap().len();
    assert!(kept(ada.get(METRICS).await.json()) >= 1);
    app.core().clock.advance(Duration::from_mins(1));
    let now = ada.get(SUMMARY).await.assert(200).json();
    assert_eq!(
        (&now["timestamp"], &now["instances"]),
        (&Value::Null, &json!(0))
    );
    app.core().clock.advance(Duration::from_hours(1));
    let mut later = Measuring::default();
    app.meter().step(&mut later).await.unwrap();
    assert_eq!(kept(ada.get(METRICS).await.json()), 0);
    clean(app, &ada).await;
}

async fn a_project_that_does_not_run_has_no_samples(app: &TestApp) {
    let ada = app.new_account("ada").await;
    let id = new_project(&ada, "shop").await;
    let expected = json!({"step": 10, "samples": [], "limits": {"memory": 512 << 20, "cpus": 1}, "disk": {"limit": 2_u64 << 30}});
    for path in [METRICS, &format!("/v1/projects/{id}/metrics")] {
        assert_eq!(ada.get(path).await.assert(200).json(), expected);
    }
    let picture = ada.get(PICTURE).await.assert(200).text();
    assert!(
        picture.contains("Nothing ran in the last hour"),
        "{picture}"
    );
    ada.get("/v1/projects/nothing/metrics.svg")
        .await
        .refused(404, "not_found");
}

/// An installation that nobody serves, so that only the meter asks its engine.
async fn lonely(directory: &Path, engine: PathBuf) -> Arc<Core> {
    let mut settings = Settings::default();
    settings.containers.host = EngineHost::Unix(engine);
    let paths = InstallationPaths::inside(directory);
    bootstrap::open(&paths, settings).await.unwrap()
}

async fn add_image(core: &Core) {
    let email = ADMIN.parse().unwrap();
    let owner = accounts::find_account(core, &email).await.unwrap().id;
    let project = ProjectId::generate(core.now().millis(), 7);
    let added = core.db.transact(move |tx| {
        let (owner, project) = (Cell::from(owner), Cell::from(project));
        Box::pin(async move {
            let sql =
                "INSERT INTO projects (id, owner_id, name, platform, plan, bundle_plan, scale,
                status, read_only_root, releases, ready_releases, created_at, version)
                VALUES ($1, $2, 'shop', 'docker', 'nano', 'free', 1, 'ACTIVE', $3, 0, 0, 1, 1)";
            let row = vec![project.clone(), owner, Cell::from(false)];
            tx.execute_many(sql, vec![row]).await?;
            let sql =
                "INSERT INTO images (id, project_id, volumes, created_at) VALUES ($1, $1, '[]', 1)";
            tx.execute_many(sql, vec![vec![project]]).await
        })
    });
    added.await.unwrap();
}

/// An engine that nobody answers for is asked as seldom as one on which nothing runs.
#[tokio::test]
async fn without_instances_the_engine_is_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("docker.sock");
    let socket = UnixListener::bind(&path).unwrap();
    let asked = Arc::new(AtomicU32::new(0));
    let counter = Arc::clone(&asked);
    let mut listening = tokio::task::JoinSet::new();
    listening.spawn(async move {
        while socket.accept().await.is_ok() {
            counter.fetch_add(1, Ordering::Relaxed);
        }
    });
    let core = lonely(&directory.path().join("data"), path).await;
    let meter = Services::new(&core).unwrap().meter;
    let count = || asked.load(Ordering::Relaxed);
    let mut measuring = Measuring::default();
    for _ in 0..20 {
        meter.step(&mut measuring).await.unwrap();
    }
    assert_eq!(count(), 0, "no project has an image");

    add_image(&core).await;
    let mut measuring = Measuring::default();
    for round in 1..=3 {
        let before = count();
        assert!(meter.step(&mut measuring).await.is_err(), "{round}");
        eventually("the engine was asked", async || count() > before).await;
        let before = count();
        for _ in 0..5 {
            meter.step(&mut measuring).await.unwrap();
        }
        assert_eq!(count(), before, "once a minute");
    }
}
