//! Releases replace each other under load: nobody notices but for the content.

use crate::support::{deploy, new_project, roll_back};
use estrade_testkit::EdgeClient;
use estrade_testkit::{TestApp, User, on_both_backends};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tokio::task::JoinSet;

/// Clients that read all the time.
const CLIENTS: usize = 64;
/// Between two visits of one client: the releases must get their share of a small machine.
const PAUSE: Duration = Duration::from_millis(5);
/// Releases and roll-backs meanwhile.
const SWITCHES: usize = 50;
/// Characters of a page: enough to need several reads.
const LENGTH: usize = 20_000;

on_both_backends! {
    fifty_switches_under_load_drop_nothing;
    whoever_sees_ready_sees_the_release;
}

fn marker(release: usize) -> String {
    format!("{release:08x}")
}

/// A page that names its asset; both repeat the number of their release to the end.
fn files(release: usize) -> Vec<(String, String)> {
    let (name, fill) = (marker(release), marker(release).repeat(LENGTH / 8));
    let page = format!("<script src=/app.{name}a1.js></script>{fill}");
    vec![
        ("index.html".into(), page),
        (format!("app.{name}a1.js"), fill),
    ]
}

async fn deploy_number(user: &User, number: usize) -> String {
    let files = files(number);
    let files: Vec<_> = files
        .iter()
        .map(|(path, data)| (&**path, &**data))
        .collect();
    deploy(user, "busy", &files).await
}

async fn fifty_switches_under_load_drop_nothing(app: &TestApp) {
    let ada = app.new_account("ada").await;
    new_project(&ada, "busy").await;
    let mut releases = vec![deploy_number(&ada, 0).await];
    let (stop, pages) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicU64::new(0)),
    );
    let mut clients = JoinSet::new();
    for _ in 0..CLIENTS {
        let (stop, pages) = (Arc::clone(&stop), Arc::clone(&pages));
        let mut visitor = EdgeClient::connect(app.edge(), "busy.localhost").await;
        clients.spawn(async move {
            while !stop.load(Ordering::Relaxed) {
                request(&mut visitor).await;
                pages.fetch_add(1, Ordering::Relaxed);
                tokio::time::sleep(PAUSE).await;
            }
        });
    }
    for number in 1..=SWITCHES {
        match number % 3 {
            // The one before the last: the last is the current one.
            0 => roll_back(&ada, &releases[releases.len() - 2]).await,
            _ => releases.push(deploy_number(&ada, number).await),
        }
    }
    stop.store(true, Ordering::Relaxed);
    while let Some(client) = clients.join_next().await {
        client.expect("a client that saw nothing wrong");
    }
    assert!(pages.load(Ordering::Relaxed) > SWITCHES as u64);
}

/// Reads the page and the asset it names, on one connection, and checks both to the last byte.
async fn request(visitor: &mut EdgeClient) {
    let page = visitor.get("/").await;
    assert_eq!(page.status, 200);
    let text = page.text();
    let (head, fill) = text.split_once("</script>").expect("a whole page");
    let name = head.strip_prefix("<script src=/app.").expect("a page");
    let marker = &name[..8];
    assert!(fill == marker.repeat(LENGTH / 8), "a torn page");
    let asset = visitor.get(&format!("/app.{marker}a1.js")).await;
    assert_eq!(asset.status, 200, "the asset of the page is gone");
    assert!(asset.text() == fill, "the asset of another release");
}

async fn whoever_sees_ready_sees_the_release(app: &TestApp) {
    let ada = app.new_account("ada").await;
    new_project(&ada, "busy").await;
    let mut visitor = EdgeClient::connect(app.edge(), "busy.localhost").await;
    for number in 0..30 {
        let text = number.to_string();
        deploy(&ada, "busy", &[("index.html", &text)]).await;
        assert_eq!(visitor.get("/").await.text(), text);
    }
}
