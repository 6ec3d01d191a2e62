//! `/v1/projects/{project_id}/{zero-downtime,default-subdomain,read-only,fixed-ip}/{enable,disable}`

use crate::support::{column, new_project};
use estrade_testkit::{Setup, TestApp, on_both_backends};
use serde_json::json;
use std::time::Duration;

on_both_backends! {
    a_switch_is_on_or_off;
    the_url_is_one_that_serves with without_verification;
    a_fixed_address_is_not_offered;
    the_current_figures_of_a_site;
}

async fn a_switch_is_on_or_off(app: &TestApp) {
    let ada = app.new_account("ada").await;
    new_project(&ada, "shop").await;
    for (switch, field, default) in [
        ("zero-downtime", "zeroDowntime", true),
        ("default-subdomain", "defaultSubdomain", true),
        ("read-only", "readOnlyRootFilesystem", false),
    ] {
        let read = || async { ada.get("/v1/projects/shop").await.json()["project"][field].clone() };
        assert_eq!(read().await, default, "{switch}");
        for (action, on) in [("disable", false), ("enable", true), ("disable", false)] {
            let path = format!("/v1/projects/shop/{switch}/{action}");
            ada.post_empty(&path).await.assert_empty(200);
            assert_eq!(read().await, on, "{switch}");
        }
        for path in [
            format!("/v1/projects/shop/{switch}/toggle"),
            format!("/v1/projects/other/{switch}/enable"),
        ] {
            ada.post_empty(&path).await.refused(404, "not_found");
        }
    }
    let events = ada.get("/v1/projects/shop/events").await.json();
    assert_eq!(
        column(&events["data"], "action")[..3],
        ["read_only", "read_only", "read_only"]
    );
    assert_eq!(
        column(&events["data"], "status")[..2],
        ["DISABLED", "ENABLED"]
    );
    // A viewer changes nothing.
    let (team, bob) = (
        app.new_team(&ada, "Shop").await,
        app.new_account("bob").await,
    );
    app.join(&team, &ada, &bob, "viewer").await;
    new_project(&ada.in_team(&team), "theirs").await;
    for switch in [
        "zero-downtime",
        "default-subdomain",
        "read-only",
        "fixed-ip",
    ] {
        let path = format!("/v1/projects/theirs/{switch}/disable");
        let refused = bob.in_team(&team).post_empty(&path).await;
        refused.refused(403, "no_permission");
    }
}

fn without_verification() -> Setup {
    Setup::with(|setup| setup.settings.domains.verify = false)
}

async fn the_url_is_one_that_serves(app: &TestApp) {
    let ada = &app.new_account("ada").await;
    new_project(ada, "shop").await;
    let url = || async {
        let read = ada.get("/v1/projects/shop").await.json()["project"]["url"].clone();
        let listed = ada.get("/v1/projects").await.json()["projects"][0]["url"].clone();
        assert_eq!(read, listed);
        read.as_str().expect("a text").to_owned()
    };
    let switch = |action: &'static str| {
        let path = format!("/v1/projects/shop/default-subdomain/{action}");
        async move { ada.post_empty(&path).await.assert_empty(200) }
    };
    let default = url().await;
    assert!(default.contains("://shop."), "{default}");
    switch("disable").await;
    assert_eq!(url().await, "");
    for name in ["b.example.com", "a.example.com"] {
        let new = json!({ "name": name, "project": "shop" });
        ada.post("/v1/domains", &new).await.assert(201);
    }
    let custom = default.replace("shop.localhost", "b.example.com");
    assert_eq!(url().await, custom);
    switch("enable").await;
    assert_eq!(url().await, default);
}

async fn a_fixed_address_is_not_offered(app: &TestApp) {
    let ada = app.new_account("ada").await;
    new_project(&ada, "shop").await;
    for action in ["enable", "disable"] {
        let path = format!("/v1/projects/shop/fixed-ip/{action}");
        let refused = ada.post_empty(&path).await;
        refused
            .refused(400, "not_offered")
            .naming("fixed IP address is not offered");
    }
    ada.post_empty("/v1/projects/other/fixed-ip/enable")
        .await
        .refused(404, "not_found");
}

async fn the_current_figures_of_a_site(app: &TestApp) {
    let ada = app.new_account("ada").await;
    new_project(&ada, "shop").await;
    crate::support::deploy_site(&ada, "shop").await;
    let path = "/v1/projects/shop/metrics/summary";
    let before = ada.get(path).await.assert(200).json();
    let expected = json!({
        "timestamp": null,
        "instances": 0,
        "cpu": {"used": 0.0, "limit": 1},
        "memory": {"used": 0, "limit": 512 << 20},
        "disk": {"limit": 2_u64 << 30},
        "network": {"in": 0, "out": 0},
        "requests": {"total": 0, "byStatus": {"1xx": 0, "2xx": 0, "3xx": 0, "4xx": 0, "5xx": 0}, "bytes": 0},
    });
    assert_eq!(before, expected);
    let mut visitor = estrade_testkit::EdgeClient::connect(app.edge(), "shop.localhost").await;
    let page = visitor.get("/").await;
    assert_eq!(page.status, 200);
    assert_eq!(visitor.get("/missing").await.status, 404);
    // A request is counted when its response is out, which its visitor may see first.
    let mut after = json!(null);
    for _ in 0..250 {
        after = ada.get(path).await.assert(200).json()["requests"].clone();
        if after["total"] == 2 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(after["total"], 2);
    assert_eq!(after["byStatus"]["2xx"], 1);
    assert_eq!(after["byStatus"]["4xx"], 1);
    assert!(after["bytes"].as_u64().unwrap() >= page.text().len() as u64);
}
