//! Domains: their records, their check, and each state of a certificate.

use super::support::{ada_with_shop, new_project};
use estrade_model::Timestamp;
use estrade_model::domain::HostName;
use estrade_store::certificates::{self, CertificateRow};
use estrade_testkit::{PanelClient, Setup, TestApp, on_both_backends};
use std::time::Duration;

on_both_backends! {
    a_domain_shows_its_records_and_is_checked_and_deleted;
    a_domain_of_another_project_is_not_found;
    a_domain_that_serves_shows_its_certificate with private;
    each_state_of_a_certificate_is_on_its_pages with private_tls;
}

fn private() -> Setup {
    Setup::with(|setup| setup.settings.domains.verify = false)
}

async fn add_domain(panel: &mut PanelClient, project: &str, host: &str) -> String {
    let path = format!("/panel/projects/{project}/domains");
    let added = panel.post(&path, &[("host", host)]).await.assert(303);
    added.header("location").to_owned()
}

fn private_tls() -> Setup {
    Setup::with(|setup| {
        setup.settings.domains.verify = false;
        setup.settings.edge_scheme = "https".into();
    })
}

/// Leases the order for a host's certificate as a node does before it asks the CA.
async fn claim_order(app: &TestApp, host: &HostName, now: Timestamp, until: Timestamp) {
    let host = host.clone();
    let claimed = app.core().db.transact(move |tx| {
        let host = host.clone();
        Box::pin(async move { certificates::claim_order(tx, &host, now, until).await })
    });
    assert!(claimed.await.expect("a lease").is_some());
}

async fn keep_certificate(app: &TestApp, host: &HostName, end: Timestamp, renew_at: Timestamp) {
    let row = CertificateRow {
        host: host.clone(),
        chain: "a chain".into(),
        sealed: vec![1],
        not_after: end,
    };
    let kept = app.core().db.transact(move |tx| {
        let row = row.clone();
        Box::pin(async move { certificates::set_certificate(tx, &row, renew_at).await })
    });
    kept.await.expect("a certificate");
}

async fn note_failure(app: &TestApp, host: &HostName, order_at: Timestamp) {
    let host = host.clone();
    let noted = app.core().db.transact(move |tx| {
        let host = host.clone();
        let why = "the CA <b>refused</b>";
        Box::pin(async move { certificates::set_failure(tx, &host, why, order_at).await })
    });
    noted.await.expect("a failure");
}

async fn a_domain_shows_its_records_and_is_checked_and_deleted(app: &TestApp) {
    let (ada, mut panel) = ada_with_shop(app).await;
    let list = "/panel/projects/shop/domains";
    let page = panel.get(list).await.assert(200).text();
    assert!(page.contains("No domain of its own yet"));
    let path = add_domain(&mut panel, "shop", " WWW.Example.com ").await;
    let page = panel.get(&path).await.assert(200).text();
    for text in [
        "www.example.com",
        "_estrade.www.example.com",
        "shop.localhost",
        "Waiting for DNS",
        "data-refresh",
    ] {
        assert!(page.contains(text), "{text}");
    }
    panel
        .post(list, &[("host", "www.example.com")])
        .await
        .assert(409);
    panel
        .post(list, &[("host", "not a host")])
        .await
        .assert(400);
    let check = format!("{path}/check");
    panel.post(&check, &[]).await.assert(303);
    let page = panel.get(&path).await.assert(200).text();
    assert!(page.contains("is not verified yet") && page.contains("there is no TXT record"));
    app.dns().add_cname("www.example.com", "shop.localhost");
    app.core().clock.advance(Duration::from_secs(4));
    panel.post(&check, &[]).await.assert(303);
    let page = panel.get(&path).await.assert(200).text();
    assert!(page.contains("It serves this project at") && !page.contains("data-refresh"));
    let page = panel.get(list).await.assert(200).text();
    assert!(page.contains("www.example.com") && page.contains("Active"));
    let delete = format!("{path}/delete");
    let page = panel.get(&delete).await.assert(200).text();
    assert!(page.contains("Delete www.example.com?"));
    let gone = panel.post(&delete, &[]).await.assert(303);
    assert_eq!(gone.header("location"), list);
    panel.get(&path).await.assert(404);
    assert_eq!(ada.get("/v1/domains").await.json()["total"], 0);
}

async fn a_domain_of_another_project_is_not_found(app: &TestApp) {
    let (ada, mut panel) = ada_with_shop(app).await;
    new_project(&ada, "blog").await;
    let path = add_domain(&mut panel, "shop", "www.example.com").await;
    let other = path.replace("/shop/", "/blog/");
    panel.get(&other).await.assert(404);
    panel.post(&format!("{other}/check"), &[]).await.assert(404);
    panel
        .post(&format!("{other}/delete"), &[])
        .await
        .assert(404);
    panel.get(&path).await.assert(200);
    panel
        .get("/panel/projects/shop/domains/nonsense")
        .await
        .assert(404);
}

async fn a_domain_that_serves_shows_its_certificate(app: &TestApp) {
    let (_, mut panel) = ada_with_shop(app).await;
    let path = add_domain(&mut panel, "shop", "www.example.com").await;
    let page = panel.get(&path).await.assert(200).text();
    assert!(
        page.contains("Active") && page.contains("TLS is off"),
        "{page}"
    );
}

/// What an installation with ACME writes while it orders, renews and fails, one after the other.
async fn each_state_of_a_certificate_is_on_its_pages(app: &TestApp) {
    const DAY: Duration = Duration::from_hours(24);
    let (_, mut panel) = ada_with_shop(app).await;
    let path = add_domain(&mut panel, "shop", "www.example.com").await;
    let host: HostName = "www.example.com".parse().unwrap();
    let mut see = async |word: &str, text: &str, is_on_its_way: bool| {
        let page = panel.get(&path).await.assert(200).text();
        let (_, card) = page.split_once("id=\"certificate\"").unwrap();
        let card = card.split("</section>").next().unwrap();
        assert!(card.contains(&format!(">{word}</span>")), "{word}: {card}");
        assert!(card.contains(text), "{text}: {card}");
        assert_eq!(card.contains("data-refresh"), is_on_its_way, "{card}");
        assert!(!card.contains("<b>refused"), "{card}");
        let list = panel.get("/panel/projects/shop/domains").await;
        let list = list.assert(200).text();
        assert!(list.contains(&format!(">{word}</span>")), "{word}: {list}");
        list
    };
    let now = || app.core().now();
    let lease = Duration::from_mins(5);

    see("None of its own", "has not ordered one", false).await;
    claim_order(app, &host, now(), now().after(lease)).await;
    see("Being issued", "on its way", true).await;
    note_failure(app, &host, now().after(lease)).await;
    see("Failed", "the CA &#60;b&#62;refused", false).await;
    app.core().clock.advance(2 * lease);
    claim_order(app, &host, now(), now().after(lease)).await;
    see("Being issued", "The last order failed", true).await;

    // A new one is valid, and later it is renewed, which may fail for long.
    let end = now().after(90 * DAY);
    keep_certificate(app, &host, end, now().after(60 * DAY)).await;
    let exact = format!("datetime=\"{end}\"");
    let list = see("Valid", &exact, false).await;
    assert!(list.contains(&exact), "{list}");
    keep_certificate(app, &host, now().after(30 * DAY), now()).await;
    claim_order(app, &host, now(), now().after(lease)).await;
    see("Being renewed", "renewed by itself", true).await;
    note_failure(app, &host, now().after(lease)).await;
    see("Renewal fails", "The last order failed", false).await;
    keep_certificate(app, &host, now().after(DAY), now().before(2 * DAY)).await;
    see("Expires soon", "It ends", false).await;
    keep_certificate(app, &host, now(), now().before(30 * DAY)).await;
    let list = see("Expired", "browsers warn of it", false).await;
    assert!(list.contains("ended"), "{list}");
}
