//! Custom domains at the edge: they serve from the moment they are active to the moment they are not.

use crate::deploy;
use crate::edge_client::plain;
use estrade_testkit::{Setup, TestApp, User, on_both_backends};
use serde_json::json;

on_both_backends! {
    a_domain_serves_its_project_at_once_and_until_it_is_deleted with private;
    a_domain_moves_from_one_project_to_another with private;
    a_pending_domain_serves_nothing;
    a_domain_that_is_proved_serves;
}

fn private() -> Setup {
    Setup::with(|setup| setup.settings.domains.verify = false)
}

async fn add(user: &User, project: &str, name: &str) -> String {
    let new = json!({"name": name, "project": project});
    let made = user.post("/v1/domains", &new).await.assert(201);
    format!("/v1/domains/{}", made.field("/domain/_id"))
}

/// What a visitor of a host is shown.
async fn see(app: &TestApp, host: &str) -> String {
    let page = plain(app.edge(), host, "/").await;
    match page.status {
        200 => page.body,
        status => status.to_string(),
    }
}

async fn a_domain_serves_its_project_at_once_and_until_it_is_deleted(app: &TestApp) {
    let ada = app.new_account("ada").await;
    deploy(&ada, "shop").await;
    assert_eq!(see(app, "www.example.com").await, "404");
    let first = add(&ada, "shop", "www.example.com").await;
    let second = add(&ada, "shop", "example.com").await;
    for host in ["www.example.com", "WWW.example.com.:8080", "example.com"] {
        assert_eq!(see(app, host).await, "I am shop", "{host}");
    }
    assert_eq!(see(app, "x.example.com").await, "404");
    ada.delete(&first).await.assert(204);
    assert_eq!(see(app, "www.example.com").await, "404");
    assert_eq!(see(app, "example.com").await, "I am shop");
    ada.delete(&second).await.assert(204);
    add(&ada, "shop", "www.example.com").await;
    assert_eq!(see(app, "example.com").await, "404");
    assert_eq!(see(app, "www.example.com").await, "I am shop");
    ada.delete("/v1/projects/shop").await.assert(200);
    assert_eq!(see(app, "www.example.com").await, "404");
}

async fn a_domain_moves_from_one_project_to_another(app: &TestApp) {
    let ada = app.new_account("ada").await;
    deploy(&ada, "one").await;
    deploy(&ada, "two").await;
    let mut domain = add(&ada, "one", "www.example.com").await;
    for project in ["two", "one", "two", "one"] {
        ada.delete(&domain).await.assert(204);
        domain = add(&ada, project, "www.example.com").await;
        let shown = see(app, "www.example.com").await;
        assert_eq!(shown, format!("I am {project}"));
    }
}

async fn a_pending_domain_serves_nothing(app: &TestApp) {
    let ada = app.new_account("ada").await;
    deploy(&ada, "shop").await;
    add(&ada, "shop", "www.example.com").await;
    assert_eq!(see(app, "www.example.com").await, "404");
}

async fn a_domain_that_is_proved_serves(app: &TestApp) {
    let ada = app.new_account("ada").await;
    deploy(&ada, "shop").await;
    let domain = add(&ada, "shop", "www.example.com").await;
    app.dns().add_cname("www.example.com", "shop.localhost");
    let checked = ada.get(&format!("{domain}/check")).await.assert(200);
    assert_eq!(checked.field("/domain/status"), "ACTIVE");
    assert_eq!(see(app, "www.example.com").await, "I am shop");
}
