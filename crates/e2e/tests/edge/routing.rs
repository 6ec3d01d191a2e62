//! Which project a host leads to, and what there is when there is nothing to serve.

use crate::support::{deploy, new_project, site};
use estrade_testkit::EdgeClient;
use estrade_testkit::{Setup, TestApp, on_both_backends};
use serde_json::json;

on_both_backends! {
    a_project_is_reached_by_its_name;
    every_edge_domain_leads_to_it with two_domains;
    an_unknown_host_has_no_site;
    a_project_waits_for_its_first_release;
    scale_zero_switches_it_off_and_one_on_again;
    a_deleted_project_is_gone_and_its_name_can_lead_to_another;
    a_failed_release_leaves_the_live_one_alone;
    sources_that_are_a_site_need_no_engine;
    the_url_of_a_project_leads_to_it;
    probes_get_responses_for_unknown_hosts;
    a_project_that_cannot_be_read_does_not_hide_others;
    without_its_default_subdomain_only_custom_domains_lead_to_it with private;
}

fn private() -> Setup {
    Setup::with(|setup| setup.settings.domains.verify = false)
}

fn two_domains() -> Setup {
    Setup::with(|setup| {
        setup.settings.domains.edge = vec!["apps.localhost".into(), "example.test".into()];
    })
}

async fn a_project_is_reached_by_its_name(app: &TestApp) {
    let (_, mut visitor) = site(app, "my-site", &[("index.html", "<h1>Hello</h1>")]).await;
    let page = visitor.get("/").await;
    assert_eq!((page.status, page.text()), (200, "<h1>Hello</h1>"));
    for host in [
        "MY-SITE.LocalHost",
        "my-site.localhost.",
        "my-site.localhost:1234",
    ] {
        let mut other = EdgeClient::connect(app.edge(), host).await;
        assert_eq!(other.get("/").await.status, 200, "{host}");
    }
}

async fn every_edge_domain_leads_to_it(app: &TestApp) {
    site(app, "my-site", &[("index.html", "x")]).await;
    for (host, status) in [
        ("my-site.apps.localhost", 200),
        ("my-site.example.test", 200),
        ("my-site.localhost", 404),
        ("deep.my-site.example.test", 404),
        ("example.test", 404),
    ] {
        let mut visitor = EdgeClient::connect(app.edge(), host).await;
        assert_eq!(visitor.get("/").await.status, status, "{host}");
    }
}

async fn an_unknown_host_has_no_site(app: &TestApp) {
    for host in [
        "nobody.localhost",
        "127.0.0.1",
        "[::1]:8080",
        "",
        "..",
        "a b",
    ] {
        let mut visitor = EdgeClient::connect(app.edge(), host).await;
        let page = visitor.get("/").await;
        assert_eq!(page.status, 404, "{host}");
        assert!(page.text().contains("There is no site here"), "{host}");
        assert_eq!(page.header("cache-control"), Some("no-store"));
    }
}

async fn a_project_waits_for_its_first_release(app: &TestApp) {
    let ada = app.new_account("ada").await;
    let mut visitor = EdgeClient::connect(app.edge(), "soon.localhost").await;
    assert!(
        visitor
            .get("/")
            .await
            .text()
            .contains("There is no site here")
    );
    new_project(&ada, "soon").await;
    let page = visitor.get("/").await;
    assert_eq!(page.status, 404);
    assert!(page.text().contains("Nothing deployed yet"));
    deploy(&ada, "soon", &[("index.html", "here")]).await;
    assert_eq!(visitor.get("/").await.text(), "here");
}

async fn scale_zero_switches_it_off_and_one_on_again(app: &TestApp) {
    let (ada, mut visitor) = site(app, "my-site", &[("index.html", "on")]).await;
    assert_eq!(visitor.get("/").await.text(), "on");
    let scale = "/v1/projects/my-site/actions/scale";
    ada.post(scale, &json!({"scale": 0})).await.assert(200);
    let page = visitor.get("/").await;
    assert_eq!(page.status, 503);
    assert!(
        page.header("retry-after")
            .is_some_and(|text| text.parse::<u32>().is_ok())
    );
    ada.post(scale, &json!({"scale": 1})).await.assert(200);
    assert_eq!(visitor.get("/").await.text(), "on");
}

async fn sources_that_are_a_site_need_no_engine(app: &TestApp) {
    let ada = app.new_account("ada").await;
    let new = json!({"name": "plain", "platform": "auto", "planID": "nano"});
    let made = ada.post("/v1/projects", &new).await.assert(200);
    assert_eq!(made.json()["project"]["type"], "auto");
    let netlify = ("netlify.toml", "[build]\npublish = \"public\"\n");
    let page = ("public/index.html", "<h1>Hello</h1>");
    let release = deploy(&ada, "plain", &[netlify, page]).await;
    let mut visitor = EdgeClient::connect(app.edge(), "plain.localhost").await;
    assert_eq!(visitor.get("/").await.text(), "<h1>Hello</h1>");
    let log = ada.get(&format!("/v2/releases/{release}/build-logs")).await;
    let log = log.assert(200).json()["buildOutput"].to_string();
    assert!(
        log.contains("platform auto: nothing here is built"),
        "{log}"
    );
    assert!(log.contains("Successfully tagged"), "{log}");
    // What would have to be built says that it cannot be.
    let hugo =
        json!({"files": [{"path": "netlify.toml", "data": "[build]\ncommand = \"hugo\"\n"}]});
    let path = "/v2/projects/plain/releases";
    let release = ada.post(path, &hugo).await.assert(201).field("/releaseID");
    let path = format!("/v1/releases/{release}?wait=READY&timeout=60");
    let release = ada.get(&path).await.assert(200).json();
    let message = release["release"]["failMessage"].as_str().unwrap();
    assert!(
        message.starts_with("netlify.toml: builds with `hugo`"),
        "{message}"
    );
    assert_eq!(visitor.get("/").await.text(), "<h1>Hello</h1>");
}

async fn a_deleted_project_is_gone_and_its_name_can_lead_to_another(app: &TestApp) {
    let (ada, mut visitor) = site(app, "my-site", &[("index.html", "old")]).await;
    assert_eq!(visitor.get("/").await.status, 200);
    ada.delete("/v1/projects/my-site?purge=true")
        .await
        .assert(200);
    assert!(
        visitor
            .get("/")
            .await
            .text()
            .contains("There is no site here")
    );
    let bob = app.new_account("bob").await;
    new_project(&bob, "my-site").await;
    assert!(
        visitor
            .get("/")
            .await
            .text()
            .contains("Nothing deployed yet")
    );
    deploy(&bob, "my-site", &[("index.html", "new")]).await;
    assert_eq!(visitor.get("/").await.text(), "new");
}

async fn a_failed_release_leaves_the_live_one_alone(app: &TestApp) {
    let (ada, mut visitor) = site(app, "my-site", &[("index.html", "good")]).await;
    let bad = json!({"type": "node", "files": [{"path": "index.js", "data": ""}]});
    let made = ada
        .post("/v2/projects/my-site/releases", &bad)
        .await
        .assert(201);
    let path = format!(
        "/v1/releases/{}?wait=READY&timeout=60",
        made.field("/releaseID")
    );
    assert_eq!(ada.get(&path).await.field("/release/state"), "FAILED");
    assert_eq!(visitor.get("/").await.text(), "good");
}

async fn the_url_of_a_project_leads_to_it(app: &TestApp) {
    let (ada, _) = site(app, "my-site", &[("index.html", "x")]).await;
    let url = ada
        .get("/v1/projects/my-site")
        .await
        .assert(200)
        .field("/project/url");
    let host = url.strip_prefix("http://").expect("http");
    let mut visitor = EdgeClient::connect(app.edge(), host).await;
    assert_eq!(visitor.get("/").await.status, 200, "{url}");
    let listed = ada.get("/v1/projects").await.assert(200);
    assert_eq!(listed.field("/projects/0/url"), url);
}

async fn probes_get_responses_for_unknown_hosts(app: &TestApp) {
    let mut visitor = EdgeClient::connect(app.edge(), &app.edge().to_string()).await;
    for path in ["/healthz", "/readyz"] {
        let page = visitor.get(path).await;
        assert_eq!(
            (page.status, page.header("content-type")),
            (200, Some("application/json"))
        );
    }
}

async fn a_project_that_cannot_be_read_does_not_hide_others(app: &TestApp) {
    let (ada, mut broken) = site(app, "broken", &[("index.html", "x")]).await;
    assert_eq!(broken.get("/").await.status, 200);
    let project = ada
        .get("/v1/projects/broken")
        .await
        .field("/project/_id")
        .parse::<estrade_model::ProjectId>()
        .unwrap();
    let (project, now) = (project, app.core().now());
    let damaged = app.core().db.transact(move |tx| {
        Box::pin(async move {
            let damage =
                tx.query("UPDATE releases SET platform = 'unheard-of' WHERE project_id = $1");
            damage.bind(project).execute().await?;
            tx.changed(estrade_store::ChangeKind::Route, project, now)
                .await
        })
    });
    damaged
        .await
        .map_err(|error: estrade_store::StoreError| error)
        .unwrap();
    for number in 0..5 {
        let name = format!("new-{number}");
        new_project(&ada, &name).await;
        let mut visitor = EdgeClient::connect(app.edge(), &format!("{name}.localhost")).await;
        let page = visitor.get("/").await;
        assert!(page.text().contains("Nothing deployed yet"), "{name}");
    }
    // As it was served last.
    assert_eq!(broken.get("/").await.status, 200);
}

async fn without_its_default_subdomain_only_custom_domains_lead_to_it(app: &TestApp) {
    let (ada, mut visitor) = site(app, "my-site", &[("index.html", "<h1>Hello</h1>")]).await;
    let domain = json!({"name": "www.example.test", "project": "my-site"});
    ada.post("/v1/domains", &domain).await.assert(201);
    let mut custom = EdgeClient::connect(app.edge(), "www.example.test").await;
    let mut shouted = EdgeClient::connect(app.edge(), "MY-SITE.LocalHost").await;
    // Twice: the second time it is answered from what was given lately.
    for _ in 0..2 {
        assert_eq!(visitor.get("/").await.status, 200);
    }
    ada.post_empty("/v1/projects/my-site/default-subdomain/disable")
        .await
        .assert(200);
    for _ in 0..2 {
        for hidden in [&mut visitor, &mut shouted] {
            let page = hidden.get("/").await;
            assert_eq!(page.status, 404);
            assert!(page.text().contains("There is no site here"));
        }
        assert_eq!(custom.get("/").await.text(), "<h1>Hello</h1>");
    }
    deploy(&ada, "my-site", &[("index.html", "new")]).await;
    assert_eq!(visitor.get("/").await.status, 404);
    assert_eq!(custom.get("/").await.text(), "new");
    ada.post_empty("/v1/projects/my-site/default-subdomain/enable")
        .await
        .assert(200);
    assert_eq!(visitor.get("/").await.text(), "new");
    assert_eq!(shouted.get("/").await.text(), "new");
}
