//! `/healthz`, `/readyz`, `/metrics`

use crate::support::{authorize, deploy_site, new_key, new_project};
use estrade_server::app::MetricsAccess;
use estrade_testkit::{Api, Backend, EdgeClient, Setup, TestApp, User, on_both_backends};
use serde_json::json;
use std::collections::HashSet;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

on_both_backends! {
    health_and_readiness_are_public;
    a_stranger_learns_where_the_other_listeners_are;
    metrics_count_routes_and_not_names;
    no_number_is_shown_by_two_listeners;
    metrics_come_in_the_format_that_is_asked_for;
    metrics_for_this_machine_only with local_metrics;
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

async fn a_stranger_learns_where_the_other_listeners_are(app: &TestApp) {
    let stranger = app.stranger();
    let info = stranger.get("/.well-known/estrade.json").await.assert(200);
    assert_eq!(info.header("cache-control"), "no-store");
    let settings = &app.core().settings;
    assert_eq!(
        info.json(),
        json!({
            "name": "estrade",
            "version": env!("CARGO_PKG_VERSION"),
            "ai": {"url": format!("http://{}", app.address(Api::Ai))},
            "edge": {"url": "http://{project}.localhost:8080"},
            "login": {"device": true},
            "limits": {
                "releaseBytes": settings.max_release_bytes,
                "releaseFiles": settings.max_files,
                "scale": settings.max_instances,
            },
        })
    );
    let port = app.address(Api::Ai).port();
    for (host, url) in [
        ("cloud.test:3000", "http://cloud.test"),
        ("[::1]", "http://[::1]"),
    ] {
        let info = stranger
            .get("/.well-known/estrade.json")
            .header("host", host)
            .await;
        assert_eq!(
            info.assert(200).json()["ai"]["url"],
            format!("{url}:{port}")
        );
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
    let of_platform = ["/v1/projects/{project_id}"];
    let of_ai = ["/v1/keys/{keyID}", "/v1/keys/authorize"];
    for (api, routes) in [(Api::Platform, &of_platform[..]), (Api::Ai, &of_ai)] {
        let response = app.stranger().on(api).get("/metrics").await.assert(200);
        let text = response.text();
        for line in text.lines() {
            assert!(
                line.starts_with('#') || line.rsplit_once(' ').is_some(),
                "{line}"
            );
        }
        for route in routes {
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

/// The series of one listener: names with labels.
async fn series(app: &TestApp, api: Api) -> HashSet<String> {
    let response = app.stranger().on(api).get("/metrics").await.assert(200);
    let text = response.text();
    let samples = text.lines().filter(|line| !line.starts_with('#'));
    let names = samples.map(|line| line.rsplit_once(' ').unwrap().0.to_owned());
    names.collect()
}

async fn no_number_is_shown_by_two_listeners(app: &TestApp) {
    let ada = app.new_account("ada").await;
    let (_, key) = new_key(&ada, "ci-bot").await;
    let body = json!({"model": "estrade/echo", "messages": [{"role": "user", "content": "hi"}]});
    let call = app.stranger().ai().post("/v1/chat/completions", &body);
    call.bearer(&key).await.assert(200);
    new_project(&ada, "shop").await;
    deploy_site(&ada, "shop").await;
    let mut visitor = EdgeClient::connect(app.edge(), "shop.localhost").await;
    assert_eq!(visitor.get("/").await.status, 200);
    let has = |all: &HashSet<String>, name: &str| all.iter().any(|one| one.starts_with(name));
    let visits = "estrade_edge_requests_total{project=\"shop\"";
    let mut platform = series(app, Api::Platform).await;
    // A request is counted when its response is out, which its visitor may see first.
    for _ in 0..250 {
        if has(&platform, visits) {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
        platform = series(app, Api::Platform).await;
    }
    let ai = series(app, Api::Ai).await;
    let both: Vec<_> = platform.intersection(&ai).collect();
    assert!(both.is_empty(), "{both:?}");
    for (name, of_platform) in [
        ("process_cpu_seconds_total", true),
        (visits, true),
        ("estrade_gen_ai_calls_total{", false),
        ("estrade_ledger_unwritten", false),
    ] {
        assert_eq!(
            (has(&platform, name), has(&ai, name)),
            (of_platform, !of_platform),
            "{name}"
        );
    }
}

async fn metrics_come_in_the_format_that_is_asked_for(app: &TestApp) {
    for api in [Api::Platform, Api::Ai] {
        let get = || app.stranger().on(api).get("/metrics");
        app.stranger().on(api).get("/healthz").await.assert(200);
        let plain = get().await.assert(200);
        assert_eq!(
            plain.header("content-type"),
            "text/plain; version=0.0.4; charset=utf-8"
        );
        assert!(
            plain
                .text()
                .contains("# TYPE http_requests_total counter\n")
        );
        assert!(!plain.text().contains("# EOF") && !plain.text().contains("# UNIT"));
        let open = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;q=0.3";
        let open = get().header("accept", open).await.assert(200);
        assert!(
            open.header("content-type")
                .starts_with("application/openmetrics-text")
        );
        assert!(open.text().contains("# TYPE http_requests counter\n"));
        assert!(open.text().ends_with("# EOF\n"));
    }
}

fn local_metrics() -> Setup {
    Setup::with(|setup| setup.metrics = MetricsAccess::Local)
}

async fn metrics_for_this_machine_only(app: &TestApp) {
    let (admin, ada) = (app.admin().await, app.new_account("ada").await);
    for api in [Api::Platform, Api::Ai] {
        app.stranger().on(api).get("/metrics").await.assert(200);
        for name in [
            "x-forwarded-for",
            "x-forwarded-host",
            "x-forwarded-proto",
            "forwarded",
            "via",
            "x-real-ip",
            "cf-connecting-ip",
        ] {
            let forwarded = |user: &User| user.on(api).get("/metrics").header(name, "127.0.0.1");
            let stranger = forwarded(&app.stranger()).await;
            stranger.refused(401, "unauthenticated");
            forwarded(&ada).await.refused(403, "no_permission");
            forwarded(&admin).await.assert(200);
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
    let mut app = TestApp::start(Backend::Postgres).await;
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
    let app = TestApp::start(Backend::Postgres).await;
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
