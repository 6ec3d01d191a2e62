//! Certificates from an ACME server, which checks hosts at the edge itself.

use crate::deploy;
use crate::edge_client::{Page, plain, secure};
use crate::pebble::Pebble;
use estrade_service::platform::certificates::{AcmeSettings, Challenge};
use estrade_testkit::{
    Backend, Setup, TestApp, eventually, eventually_or, free_port, on_both_backends,
};
use serde_json::json;
use std::cell::RefCell;
use std::time::{Duration, Instant};

on_both_backends! {
    a_project_gets_its_certificate_from_its_first_visitor
    a_custom_domain_gets_its_certificate_by_itself
    certificates_are_renewed_in_time
    failures_are_not_repeated_at_once
    no_more_orders_than_allowed
}

async fn start(backend: Backend, settings: AcmeSettings) -> TestApp {
    let setup = Setup::with(|setup| {
        setup.acme = Some(settings);
        setup.settings.domains.verify = false;
    });
    TestApp::start_with(backend, setup).await
}

/// An app with its ACME server.
async fn with_pebble(backend: Backend, challenges: &[Challenge]) -> (TestApp, Pebble, String) {
    let mut pebble = Pebble::new();
    let app = start(backend, pebble.settings(challenges)).await;
    let ports = (app.edge().port(), app.edge_tls().port());
    pebble.start(&app, ports.0, ports.1).await;
    let root = pebble.root().await;
    (app, pebble, root)
}

/// Visits until it works, for what happens in the background.
async fn visit_until(app: &TestApp, host: &str, root: &str, good: impl Fn(&Page) -> bool) -> Page {
    let seen = RefCell::new(None);
    eventually_or(
        || format!("{host} can be visited: {:?}\n{}", seen.borrow(), app.log()),
        || async {
            let page = secure(app.edge_tls(), host, "/", root).await;
            let is_good = page.as_ref().is_ok_and(&good);
            seen.replace(Some(page));
            is_good
        },
    )
    .await;
    seen.into_inner().unwrap().unwrap()
}

async fn count(app: &TestApp, sql: &'static str) -> i64 {
    app.core().db.read(sql).fetch_one().await.unwrap()
}

const ORDERED: &str = "SELECT COUNT(*) FROM certificates";

async fn a_project_gets_its_certificate_from_its_first_visitor(backend: &Backend) {
    let (app, pebble, root) = with_pebble(*backend, &[Challenge::Http01]).await;
    let ada = app.new_account("ada").await;
    deploy(&ada, "shop").await;
    let before = plain(app.edge(), "shop.localhost", "/").await;
    assert_eq!(
        before.status, 200,
        "without a certificate nobody is sent away"
    );

    // Several first visitors at once: one order, and all of them are served.
    let visit = || secure(app.edge_tls(), "shop.localhost", "/", &root);
    let (one, two, three) = tokio::join!(visit(), visit(), visit());
    for page in [one, two, three] {
        assert_eq!(page.unwrap().body, "I am shop", "{}", pebble.log());
    }
    let page = secure(app.edge_tls(), "SHOP.localhost", "/", &root).await;
    assert_eq!(page.unwrap().status, 200);
    assert_eq!(pebble.issued(), 1);
    let after = plain(app.edge(), "shop.localhost:8080", "/x").await;
    let target = format!("https://shop.localhost:{}/x", app.edge_tls().port());
    assert_eq!(after.header("location"), Some(target.as_str()));

    // Only hosts that are ours: nothing is ordered because a stranger asks.
    for host in [
        "nobody.localhost",
        "a.shop.localhost",
        "localhost",
        "evil.example",
    ] {
        let refused = secure(app.edge_tls(), host, "/", &root).await;
        assert!(refused.is_err(), "{host}: {refused:?}");
    }
    assert_eq!(count(&app, ORDERED).await, 1);
    assert_eq!(count(&app, "SELECT COUNT(*) FROM acme_challenges").await, 0);
    // What the account and the key are is sealed.
    assert!(!app.holds("key_pkcs8").await);
    app.finish().await;
}

async fn a_custom_domain_gets_its_certificate_by_itself(backend: &Backend) {
    let (app, pebble, root) = with_pebble(*backend, &[Challenge::TlsAlpn01]).await;
    let ada = app.new_account("ada").await;
    deploy(&ada, "shop").await;
    let new = json!({"name": "www.example.com", "project": "shop"});
    ada.post("/v1/domains", &new).await.assert(201);
    eventually_or(
        || format!("a certificate is issued\n{}\n{}", pebble.log(), app.log()),
        || async { pebble.issued() > 0 },
    )
    .await;
    let page = visit_until(&app, "www.example.com", &root, |_| true).await;
    assert_eq!(page.body, "I am shop");
    assert_eq!(pebble.issued(), 1);
    assert_eq!(
        count(&app, ORDERED).await,
        1,
        "not for the project, which nobody visited"
    );
    app.finish().await;
}

async fn certificates_are_renewed_in_time(backend: &Backend) {
    let both = [Challenge::TlsAlpn01, Challenge::Http01];
    let (app, pebble, root) = with_pebble(*backend, &both).await;
    let ada = app.new_account("ada").await;
    deploy(&ada, "shop").await;
    let first = secure(app.edge_tls(), "shop.localhost", "/", &root)
        .await
        .unwrap();
    let due = "SELECT order_at FROM certificates";
    let (due, now) = (count(&app, due).await, app.core().now().millis());
    let end = count(&app, "SELECT not_after FROM certificates").await;
    let (left, share) = (end - now, (due - now) * 100 / (end - now));
    assert!(
        left > 0 && (65..68).contains(&share),
        "{share} % of {left} ms"
    );

    // Shortly before, nothing happens. A change of a route makes the worker look, and then it forgets a host that is
    // due and that nobody has.
    let wait = u64::try_from(due - now).unwrap();
    app.core()
        .clock
        .advance(Duration::from_millis(wait - 600_000));
    let stranger = app.core().db.transact(|tx| {
        let sql = "INSERT INTO certificates (host, order_at, ordered_at, failures, lease_until)
                   VALUES ('nobody.example', 0, 0, 0, 0)";
        Box::pin(tx.query(sql).execute())
    });
    assert_eq!(stranger.await.unwrap(), 1);
    let scale = json!({"scale": 2});
    ada.post("/v1/projects/shop/actions/scale", &scale)
        .await
        .assert(200);
    eventually("the worker looks", || async {
        count(&app, ORDERED).await == 1
    })
    .await;
    assert_eq!(pebble.issued(), 1);
    app.core().clock.advance(Duration::from_secs(700));
    ada.post("/v1/projects/shop/actions/scale", &scale)
        .await
        .assert(200);
    let second = visit_until(&app, "shop.localhost", &root, |page| {
        page.certificate != first.certificate
    });
    assert_eq!(second.await.body, "I am shop");
    assert_eq!(pebble.issued(), 2);
    let ordered_at = count(&app, "SELECT ordered_at FROM certificates").await;
    assert!(ordered_at >= due, "{ordered_at} is before {due}");

    // A project that is gone is not renewed, but forgotten.
    ada.delete("/v1/projects/shop").await.assert(200);
    app.core()
        .clock
        .advance(Duration::from_hours(10 * 365 * 24));
    deploy(&ada, "other").await;
    eventually("the certificate is forgotten", || async {
        count(&app, ORDERED).await == 0
    })
    .await;
    assert_eq!(pebble.issued(), 2);
    app.finish().await;
}

async fn failures_are_not_repeated_at_once(backend: &Backend) {
    let mut pebble = Pebble::new();
    let app = start(
        *backend,
        pebble.settings(&[Challenge::Http01, Challenge::TlsAlpn01]),
    )
    .await;
    // It looks for pages where nobody listens, but for certificates at the right place.
    pebble.start(&app, free_port(), app.edge_tls().port()).await;
    let root = pebble.root().await;
    let ada = app.new_account("ada").await;
    deploy(&ada, "shop").await;
    let visit = || secure(app.edge_tls(), "shop.localhost", "/", &root);
    assert!(visit().await.is_err());
    let failures = "SELECT COALESCE(MAX(failures), 0) FROM certificates";
    eventually_or(
        || format!("an order fails\n{}\n{}", pebble.log(), app.log()),
        || async { count(&app, failures).await > 0 },
    )
    .await;
    let ordered = "SELECT ordered_at FROM certificates";
    let first = count(&app, ordered).await;
    let started = Instant::now();
    for _ in 0..5 {
        assert!(visit().await.is_err());
    }
    assert!(
        // The behaviour itself: an order takes seconds, a refusal of one that failed takes none.
        started.elapsed() < Duration::from_secs(5),
        "requests wait although nothing is ordered"
    );
    assert_eq!(count(&app, ordered).await, first, "no new order");
    assert_eq!(count(&app, failures).await, 1);
    // Later it is tried again, the other way.
    app.core().clock.advance(Duration::from_mins(6));
    let page = visit_until(&app, "shop.localhost", &root, |_| true).await;
    assert_eq!(page.body, "I am shop");
    assert_eq!(count(&app, failures).await, 0);
    app.finish().await;
}

async fn no_more_orders_than_allowed(backend: &Backend) {
    let mut pebble = Pebble::new();
    let settings = AcmeSettings {
        orders_per_hour: 2,
        ..pebble.settings(&[Challenge::Http01])
    };
    let app = start(*backend, settings).await;
    pebble
        .start(&app, app.edge().port(), app.edge_tls().port())
        .await;
    let root = pebble.root().await;
    let ada = app.new_account("ada").await;
    for project in ["one", "two", "three"] {
        deploy(&ada, project).await;
    }
    for host in ["one.localhost", "two.localhost"] {
        secure(app.edge_tls(), host, "/", &root).await.unwrap();
    }
    assert!(
        secure(app.edge_tls(), "three.localhost", "/", &root)
            .await
            .is_err()
    );
    assert_eq!(pebble.issued(), 2);
    app.core().clock.advance(Duration::from_mins(61));
    secure(app.edge_tls(), "three.localhost", "/", &root)
        .await
        .unwrap();
    assert_eq!(pebble.issued(), 3);
    app.finish().await;
}
