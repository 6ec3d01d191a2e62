//! `/v1/projects/{project_id}/metrics` and `metrics.svg`

use crate::support::{clean, engine, eventually, new_live, new_project};
use estrade_runtime::EngineHost;
use estrade_service::containers::usage::Measuring;
use estrade_testkit::{Engine, Setup, TestApp, on_both_engines};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use tokio::net::UnixListener;

on_both_engines! {
    what_instances_use_is_measured with engine;
    a_project_that_does_not_run_has_no_samples;
}

const METRICS: &str = "/v1/projects/shop/metrics";
const PICTURE: &str = "/v1/projects/shop/metrics.svg";

async fn what_instances_use_is_measured(app: &TestApp) {
    let ada = app.new_account("ada").await;
    let shop = new_live(app, &ada, &ada.account, "shop").await;
    let calm = new_live(app, &ada, &ada.account, "calm").await;
    for number in [1, 2] {
        shop.start(app, number, &["python3", "-c", "while True: pass"])
            .await;
    }
    calm.start(app, 1, &["sleep", "1000"]).await;
    let mut measuring = Measuring::default();
    app.meter().step(&mut measuring).await.unwrap();
    let none = ada.get(METRICS).await.assert(200).json();
    assert_eq!(none["samples"], json!([]), "one reading says nothing yet");
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
    // Each may use half a core, on a machine that may have other things to do.
    let cpu = sample["cpu"].as_f64().unwrap();
    assert!((0.1..1.2).contains(&cpu), "{cpu}");
    let memory = sample["memory"].as_u64().unwrap();
    assert!((4 << 20..256 << 20).contains(&memory), "{memory}");
    let calm = ada.get("/v1/projects/calm/metrics").await.json();
    let idle = calm["samples"].as_array().unwrap().last().unwrap()["cpu"].as_f64();
    assert!(idle.unwrap() < 0.1, "{calm}");

    let picture = ada.get(PICTURE).await.assert(200);
    assert_eq!(picture.header("content-type"), "image/svg+xml");
    assert!(
        picture
            .header("content-security-policy")
            .contains("default-src 'none'")
    );
    assert!(picture.text().contains("2 instances"), "{}", picture.text());
    clean(app).await;
    app.meter().step(&mut measuring).await.unwrap();
    // What was measured stays for an hour, and goes then.
    let kept = |metrics: Value| metrics["samples"].as_array().unwrap().len();
    assert!(kept(ada.get(METRICS).await.json()) >= 1);
    app.core().clock.advance(Duration::from_hours(1));
    let mut later = Measuring::default();
    app.meter().step(&mut later).await.unwrap();
    assert_eq!(kept(ada.get(METRICS).await.json()), 0);
}

async fn a_project_that_does_not_run_has_no_samples(app: &TestApp) {
    let ada = app.new_account("ada").await;
    let id = new_project(&ada, "shop").await;
    let expected = json!({"step": 10, "samples": [], "limits": {"memory": 512 << 20, "cpus": 1}});
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

/// An engine that nobody answers for is asked as seldom as one on which nothing runs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
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
    let setup = Setup::with(|setup| setup.settings.containers.host = EngineHost::Unix(path));
    let app = TestApp::start_with(Engine::Sqlite, setup).await;
    let ada = app.new_account("ada").await;
    let count = || asked.load(Ordering::Relaxed);
    let mut measuring = Measuring::default();
    for _ in 0..20 {
        app.meter().step(&mut measuring).await.unwrap();
    }
    assert_eq!(count(), 0, "no project has an image");

    new_live(&app, &ada, &ada.account, "shop").await;
    let mut measuring = Measuring::default();
    for round in 1..=3 {
        let before = count();
        assert!(app.meter().step(&mut measuring).await.is_err(), "{round}");
        eventually("the engine was asked", async || count() > before).await;
        let before = count();
        for _ in 0..5 {
            app.meter().step(&mut measuring).await.unwrap();
        }
        assert_eq!(count(), before, "once a minute");
    }
    app.finish().await;
}
