//! Releases replace each other while visitors are there.

use crate::backend::{App, always, ok, whole};
use crate::stage::Stage;
use crate::visitor::Modern;
use estrade_fixtures::eventually;
use estrade_mock_upstream::Action;
use http::Response;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::Notify;
use tokio::task::JoinSet;

const CLIENTS: usize = 32;
const SWITCHES: usize = 50;
const LIMIT: Duration = Duration::from_secs(30);

#[tokio::test]
async fn what_is_in_flight_ends_where_it_began_and_is_waited_for() {
    let stage = Stage::start().await;
    let go = Arc::new(Notify::new());
    let old = always(vec![Action::Wait(Arc::clone(&go)), ok("old")]).await;
    let new = App::saying("new").await;
    let before = stage.serve(&[old.address]).await;
    let mut waiting = JoinSet::new();
    for method in ["GET", "POST"] {
        let mut visitor = stage.visitor().await;
        waiting.spawn(async move { visitor.request(method, "/", &[], b"").await.unwrap() });
    }
    eventually("both are asked", || async { old.count() == 2 }).await;
    stage.serve(&[new.address]).await;
    let leaving = stage.publish(before, &[]);
    let mut visitor = stage.visitor().await;
    for _ in 0..10 {
        assert_eq!(visitor.get("/").await.text(), "new");
    }
    assert_eq!((leaving.in_flight(), old.count()), (2, 2));
    let began = Instant::now();
    assert!(!leaving.drained(Duration::from_millis(200)).await);
    assert!(began.elapsed() >= Duration::from_millis(200));
    let ends = async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        go.notify_waiters();
    };
    let (drained, ()) = tokio::join!(leaving.drained(LIMIT), ends);
    assert!(drained);
    assert_eq!(leaving.in_flight(), 0);
    for page in waiting.join_all().await {
        assert_eq!((page.status, page.text()), (200, "old"));
    }
    stage.finish().await;
}

#[tokio::test]
async fn instances_come_and_go_within_a_release() {
    let stage = Stage::start().await;
    let apps = [
        App::saying("a").await,
        App::saying("b").await,
        App::saying("c").await,
    ];
    let [a, b, c] = apps.each_ref().map(|app| app.address);
    let release = stage.serve(&[a]).await;
    let mut visitor = stage.visitor().await;
    assert_eq!(visitor.get("/").await.text(), "a");
    assert!(stage.publish(release, &[a, b, c]).is_empty());
    let mut seen = Vec::new();
    for _ in 0..9 {
        seen.push(visitor.get("/").await.text().to_owned());
    }
    seen.sort_unstable();
    assert_eq!(seen.concat(), "aaabbbccc");
    let leaving = stage.publish(release, &[b]);
    assert_eq!(leaving.addresses().collect::<Vec<_>>(), [a, c]);
    assert!(leaving.drained(LIMIT).await);
    assert_eq!(visitor.get("/").await.text(), "b");
    // One that stays keeps its connections.
    assert_eq!(apps[1].connections(), 1);
    stage.finish().await;
}

#[tokio::test]
async fn published_is_not_yet_live() {
    let stage = Stage::start().await;
    let (old, new) = (App::saying("old").await, App::saying("new").await);
    stage.serve(&[old.address]).await;
    let mut visitor = stage.visitor().await;
    assert_eq!(visitor.get("/").await.text(), "old");
    let next = stage.new_release().await;
    stage.publish(next, &[new.address]);
    for _ in 0..5 {
        assert_eq!(visitor.get("/").await.text(), "old");
    }
    stage.go_live(next).await;
    assert_eq!(visitor.get("/").await.text(), "new");
    stage.finish().await;
}

/// An application that takes a moment, and says which one it is.
async fn numbered(number: usize) -> App {
    App::start(move |_| async move {
        tokio::time::sleep(Duration::from_millis(3)).await;
        Response::new(whole(number.to_string()))
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fifty_switches_under_load_fail_no_request() {
    let stage = Arc::new(Stage::start_workers(2, |_| {}).await);
    let (done, asked) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicUsize::new(0)),
    );
    let mut live = (vec![numbered(0).await, numbered(0).await], None);
    let addresses = |apps: &[App]| apps.iter().map(|app| app.address).collect::<Vec<_>>();
    live.1 = Some(stage.serve(&addresses(&live.0)).await);
    let mut clients = JoinSet::new();
    for client in 0..CLIENTS {
        let (stage, done, asked) = (Arc::clone(&stage), Arc::clone(&done), Arc::clone(&asked));
        clients.spawn(async move {
            let mut visitor = stage.visitor().await;
            let modern = Modern::new(stage.address);
            let mut last = 0;
            while !done.load(Ordering::Relaxed) {
                let text = match client % 4 {
                    0 => {
                        let page = visitor.request("POST", "/", &[], b"x").await.unwrap();
                        assert_eq!(page.status, 200);
                        page.text().to_owned()
                    }
                    1 => {
                        let response = modern.request(reqwest::Method::GET, "/").send().await;
                        let response = response.unwrap().error_for_status().unwrap();
                        response.text().await.unwrap()
                    }
                    _ => {
                        let page = visitor.get("/").await;
                        assert_eq!(page.status, 200);
                        page.text().to_owned()
                    }
                };
                // No client is ever sent back to a release that was replaced.
                let number: usize = text.parse().unwrap();
                assert!(number >= last, "{number} after {last}");
                last = number;
                asked.fetch_add(1, Ordering::Relaxed);
            }
        });
    }
    for number in 1..=SWITCHES {
        let next = vec![numbered(number).await, numbered(number).await];
        let release = stage.serve(&addresses(&next)).await;
        let (old, before) = std::mem::replace(&mut live, (next, Some(release)));
        let leaving = stage.publish(before.unwrap(), &[]);
        assert!(leaving.drained(LIMIT).await);
        // From here on whoever is still sent there fails.
        drop(old);
        let so_far = asked.load(Ordering::Relaxed);
        eventually("visitors go on", || async {
            asked.load(Ordering::Relaxed) > so_far + 20
        })
        .await;
    }
    done.store(true, Ordering::Relaxed);
    clients.join_all().await;
    let asked = asked.load(Ordering::Relaxed);
    assert!(asked > SWITCHES * 20, "{asked}");
    Arc::into_inner(stage).unwrap().finish().await;
}
