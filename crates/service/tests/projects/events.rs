//! Events: listed, read after one that was seen, followed.

use crate::acting::{RunningWorker, code, create, deploy, finished, owner};
use crate::support::{Installation, on_both_backends};
use estrade_model::event::Event;
use estrade_service::platform::events::{events_after, follow_events, list_events};
use estrade_service::platform::projects::{delete_project, scale_project};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;

on_both_backends! {
    events_tell_the_way_of_a_release
    ids_rise_in_the_order_of_commits
    a_follower_hears_of_everything_once
}

fn described(events: &[Event]) -> Vec<String> {
    events
        .iter()
        .map(|it| format!("{} {}", it.tag.as_deref().unwrap_or(&it.action), it.status))
        .collect()
}

async fn events_tell_the_way_of_a_release(at: &Installation) {
    let (core, ada) = (&at.core, owner(at, "ada").await);
    create(core, &ada, "shop").await;
    assert!(
        list_events(core, &ada, "shop", None, 10, 0)
            .await
            .unwrap()
            .is_empty()
    );
    let worker = RunningWorker::start(core);
    let release = deploy(core, &ada, "shop", &[("a", b"1")]).await;
    finished(core, &ada, release).await;
    worker.stop().await;
    let events = events_after(core, &ada, "shop", None, 10).await.unwrap();
    assert_eq!(
        described(&events),
        ["v1 PENDING", "v1 BUILDING", "v1 DEPLOYING", "v1 READY"]
    );
    assert!(
        events
            .iter()
            .all(|it| it.release == Some(release) && it.action == "release")
    );
    let rest = events_after(core, &ada, "shop", Some(events[1].id), 10)
        .await
        .unwrap();
    assert_eq!(described(&rest), ["v1 DEPLOYING", "v1 READY"]);
    let page = list_events(core, &ada, "shop", Some(events[3].id), 2, 1)
        .await
        .unwrap();
    assert_eq!(described(&page), ["v1 BUILDING", "v1 PENDING"]);
}

async fn ids_rise_in_the_order_of_commits(at: &Installation) {
    let (core, ada) = (&at.core, owner(at, "ada").await);
    create(core, &ada, "shop").await;
    let mut changes = JoinSet::new();
    for _ in 0..20 {
        let (core, ada) = (Arc::clone(core), ada.clone());
        changes.spawn(async move { scale_project(&core, &ada, "shop", 1).await.unwrap() });
    }
    // A client that always asks for what comes after the last one seen must miss none.
    let mut seen = Vec::new();
    while seen.len() < 20 {
        let after = seen.last().map(|event: &Event| event.id);
        seen.extend(events_after(core, &ada, "shop", after, 3).await.unwrap());
    }
    changes.join_all().await;
    let all = events_after(core, &ada, "shop", None, 100).await.unwrap();
    assert_eq!(seen.len(), all.len());
}

async fn a_follower_hears_of_everything_once(at: &Installation) {
    let (core, ada) = (&at.core, owner(at, "ada").await);
    create(core, &ada, "shop").await;
    scale_project(core, &ada, "shop", 2).await.unwrap();
    let mut follower = follow_events(core, &ada, "shop", None).await.unwrap();
    assert_eq!(
        described(&follower.next_events().await.unwrap()),
        ["scale 2"]
    );
    // Waiting that is given up loses nothing.
    let nothing = tokio::time::timeout(Duration::from_millis(50), follower.next_events()).await;
    assert!(nothing.is_err());
    let mut waiting = JoinSet::new();
    waiting.spawn(async move {
        let received = described(&follower.next_events().await.unwrap());
        (received, follower)
    });
    tokio::time::sleep(Duration::from_millis(20)).await;
    scale_project(core, &ada, "shop", 3).await.unwrap();
    let (received, mut follower) = waiting.join_next().await.unwrap().unwrap();
    assert_eq!(received, ["scale 3"]);
    delete_project(core, &ada, "shop", None).await.unwrap();
    assert_eq!(code(follower.next_events().await), "not_found");
}
