//! `/healthz`, `/readyz`, `/metrics`

use crate::support::{authorize, new_key, new_project};
use estrade_server::app::MetricsAccess;
use estrade_testkit::{Api, Engine, Setup, TestApp, on_both_engines};
use serde_json::json;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

on_both_engines! {
    health_and_readiness_are_public;
    metrics_count_routes_and_not_names;
    metrics_for_administrators_only with metrics_for_admins;
    metrics_switched_off with no_metrics;
}

async fn health_and_readiness_are_public(app: &TestApp) {
    for api in [Api::Platform, Api::Ai] {
        let stranger = app.stranger().on(api);
        let health = stranger.get("/healthz").await.assert(200);
        assert_eq!(health.json(), json!({"status": "ok"}));
        let ready = stranger.get("/readyz").await.assert(200);
        assert_eq!(ready.json(), json!({"status": "ok", "database": "up"}));
    }
}

async fn metrics_count_routes_and_not_names(app: &TestApp) {
    let ada = app.new_account("ada").await;
    new_project(&ada, "find-me-not").await;
    let (id, key) = new_key(&ada, "ci-bot").await;
    authorize(&ada, &key).await.assert(200);
    ada.get("/v1/projects/find-me-not").await.assert(200);
    ada.ai().get(&format!("/v1/keys/{id}")).await.assert(200);
    ada.get("/no/such/find-me-not").await.assert(404);
    for api in [Api::Platform, Api::Ai] {
        let answer = app.stranger().on(api).get("/metrics").await.assert(200);
        let text = answer.text();
        for line in text.lines() {
            assert!(
                line.starts_with('#') || line.rsplit_once(' ').is_some(),
                "{line}"
            );
        }
        for route in [
            "/v1/projects/{project_id}",
            "/v1/keys/{keyID}",
            "/v1/keys/authorize",
        ] {
            assert!(
                text.contains(&format!("route=\"{route}\"")),
                "{route}: {text}"
            );
        }
        for secret in ["find-me-not", id.as_str(), ada.account.as_str()] {
            assert!(!text.contains(secret), "{secret}");
        }
    }
}

fn metrics_for_admins() -> Setup {
    Setup::with(|setup| setup.metrics = MetricsAccess::Admin)
}

async fn metrics_for_administrators_only(app: &TestApp) {
    let (admin, ada) = (app.admin().await, app.new_account("ada").await);
    for api in [Api::Platform, Api::Ai] {
        app.stranger()
            .on(api)
            .get("/metrics")
            .await
            .refused(401, "unauthenticated");
        ada.on(api)
            .get("/metrics")
            .await
            .refused(403, "no_permission");
        admin.on(api).get("/metrics").await.assert(200);
    }
}

fn no_metrics() -> Setup {
    Setup::with(|setup| setup.metrics = MetricsAccess::Off)
}

async fn metrics_switched_off(app: &TestApp) {
    for api in [Api::Platform, Api::Ai] {
        app.admin()
            .await
            .on(api)
            .get("/metrics")
            .await
            .refused(404, "not_found");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_its_database_the_platform_is_not_ready_but_keys_in_use_stay_good() {
    let mut app = TestApp::start(Engine::Postgres).await;
    let ada = app.new_account("ada").await;
    let (_, warm) = new_key(&ada, "warm").await;
    let (_, cold) = new_key(&ada, "cold").await;
    authorize(&ada, &warm).await.assert_empty(200);
    app.lose_database().await;
    let platform = app.stranger().get("/readyz").await.assert(503);
    assert_eq!(
        platform.json(),
        json!({"status": "unavailable", "database": "down"})
    );
    let ai = app.stranger().ai().get("/readyz").await.assert(200);
    assert_eq!(ai.json(), json!({"status": "ok", "database": "down"}));
    app.stranger().get("/healthz").await.assert(200);
    authorize(&ada, &warm).await.assert_empty(200);
    let unseen = authorize(&ada, &cold).await.assert_empty(503);
    assert_ne!(unseen.header("retry-after"), "");
    let refused = ada.get("/v1/projects").await.refused(503, "unavailable");
    assert_ne!(refused.header("retry-after"), "");
    ada.ai().get("/v1/keys").await.refused(503, "unavailable");
    app.abandon().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_silent_database_is_down_soon() {
    let app = TestApp::start(Engine::Postgres).await;
    let mut sleepers = JoinSet::new();
    // As many as there are connections.
    for _ in 0..16 {
        let db = app.core().db.clone();
        sleepers.spawn(async move {
            let slept = db.read("SELECT CAST(1 AS BIGINT) FROM pg_sleep(4)");
            slept.fetch_one::<i64>().await.unwrap()
        });
    }
    tokio::time::sleep(Duration::from_millis(500)).await;
    let asked = Instant::now();
    app.stranger().get("/readyz").await.assert(503);
    app.stranger().ai().get("/readyz").await.assert(200);
    assert!(
        asked.elapsed() < Duration::from_secs(2),
        "{:?}",
        asked.elapsed()
    );
    sleepers.join_all().await;
    app.stranger().get("/readyz").await.assert(200);
    app.finish().await;
}
