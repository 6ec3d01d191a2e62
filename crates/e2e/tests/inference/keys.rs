//! Keys that end: in force for the next request, whoever else is calling.

use crate::support::{ECHO, code, key, key_with, say, talk};
use estrade_testkit::{TestApp, on_both_backends};
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;
use tokio::task::JoinSet;

on_both_backends! {
    what_was_acknowledged_is_in_force_for_the_next_request;
    keys_end_by_rotation_deletion_and_time;
    a_key_opens_its_workspaces_and_models_only;
}

/// Callers that go on until they are stopped. Whoever begins after `off` was set must be refused.
struct Crowd {
    off: Arc<AtomicBool>,
    stop: Arc<AtomicBool>,
    refused: Arc<AtomicUsize>,
    /// Callers whose call has to be refused.
    wary: Arc<AtomicUsize>,
    callers: JoinSet<()>,
}

impl Crowd {
    fn of(count: usize, app: &TestApp, key: &str) -> Self {
        let mut crowd = Self {
            off: Arc::default(),
            stop: Arc::default(),
            refused: Arc::default(),
            wary: Arc::default(),
            callers: JoinSet::new(),
        };
        for _ in 0..count {
            let (off, stop) = (Arc::clone(&crowd.off), Arc::clone(&crowd.stop));
            let (refused, key) = (Arc::clone(&crowd.refused), key.to_owned());
            let wary = Arc::clone(&crowd.wary);
            let stranger = app.stranger().ai();
            crowd.callers.spawn(async move {
                while !stop.load(Ordering::SeqCst) {
                    wary.fetch_add(1, Ordering::SeqCst);
                    let was_off = off.load(Ordering::SeqCst);
                    if !was_off {
                        wary.fetch_sub(1, Ordering::SeqCst);
                    }
                    let status = talk(&stranger, &key).await.status();
                    if was_off {
                        assert_eq!(status, 403, "it was switched off before this call began");
                        refused.fetch_add(1, Ordering::SeqCst);
                        wary.fetch_sub(1, Ordering::SeqCst);
                    } else {
                        assert!(matches!(status, 200 | 403), "{status}");
                    }
                }
            });
        }
        crowd
    }

    /// Waits until nobody is on the way who began while it was off.
    async fn settle(&self) {
        while self.wary.load(Ordering::SeqCst) > 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    async fn end(mut self) {
        self.stop.store(true, Ordering::SeqCst);
        while let Some(ended) = self.callers.join_next().await {
            ended.unwrap();
        }
    }
}

async fn what_was_acknowledged_is_in_force_for_the_next_request(app: &TestApp) {
    let ada = app.new_account("ada").await.ai();
    let (id, key) = key(&ada, "ci-bot").await;
    let path = format!("/v1/keys/{id}");
    say(app, &key).await.assert(200);
    for count in [0, 64] {
        let crowd = Crowd::of(count, app, &key);
        tokio::time::sleep(Duration::from_millis(50)).await;
        for round in 0..3 {
            ada.put(&path, &json!({"enabled": false})).await.assert(200);
            crowd.off.store(true, Ordering::SeqCst);
            let refused = say(app, &key).await.assert(403);
            assert_eq!(code(&refused), "disabled", "{round}");
            if count > 0 && round == 1 {
                tokio::time::sleep(Duration::from_millis(150)).await;
            }
            crowd.off.store(false, Ordering::SeqCst);
            crowd.settle().await;
            ada.put(&path, &json!({"enabled": true})).await.assert(200);
            say(app, &key).await.assert(200);
        }
        let seen = crowd.refused.load(Ordering::SeqCst);
        crowd.end().await;
        assert!(
            count == 0 || seen > 0,
            "nobody met a key that was switched off"
        );
    }
}

async fn keys_end_by_rotation_deletion_and_time(app: &TestApp) {
    let ada = app.new_account("ada").await.ai();
    let (id, first) = key(&ada, "rotated").await;
    say(app, &first).await.assert(200);
    let rotate = format!("/v1/keys/{id}/rotate");
    let second = ada
        .post(&rotate, &json!({}))
        .await
        .assert(200)
        .field("/key");
    let refused = say(app, &first).await.assert(401);
    assert_eq!(refused.header("www-authenticate"), "Bearer");
    say(app, &second).await.assert(200);
    let third = ada
        .post(&rotate, &json!({"grace": 60}))
        .await
        .assert(200)
        .field("/key");
    for key in [&second, &third] {
        say(app, key).await.assert(200);
    }
    app.core().clock.advance(Duration::from_secs(61));
    say(app, &second).await.assert(401);
    say(app, &third).await.assert(200);
    ada.delete(&format!("/v1/keys/{id}")).await.assert(204);
    say(app, &third).await.assert(401);

    let soon = app.core().now().after(Duration::from_secs(30)).to_string();
    let (_, short) = key_with(&ada, "short", json!({"expiresAt": soon})).await;
    say(app, &short).await.assert(200);
    app.core().clock.advance(Duration::from_secs(31));
    say(app, &short).await.assert(401);
}

async fn a_key_opens_its_workspaces_and_models_only(app: &TestApp) {
    let ada = app.new_account("ada").await.ai();
    let (_, narrow) = key_with(&ada, "narrow", json!({"models": ["acme/other"]})).await;
    assert_eq!(
        code(&say(app, &narrow).await.assert(403)),
        "model_not_allowed"
    );
    let both = json!({"workspaces": ["main", "other"]});
    let (id, wide) = key_with(&ada, "wide", both).await;
    assert_eq!(
        code(&say(app, &wide).await.assert(400)),
        "workspace_required"
    );
    let body = json!({"model": ECHO, "messages": [{"role": "user", "content": "hi"}]});
    let all = ada.get("/v1/workspaces").await.json();
    for workspace in all["workspaces"].as_array().unwrap() {
        let workspace = workspace["_id"].as_str().unwrap();
        for base in [
            format!("/api/{workspace}/v1"),
            format!("/api/v1/{workspace}"),
        ] {
            let path = format!("{base}/chat/completions");
            ada.post(&path, &body).bearer(&wide).await.assert(200);
        }
    }
    // Taken away, it is closed for the next request.
    let one = json!({"workspaces": ["other"]});
    ada.put(&format!("/v1/keys/{id}"), &one).await.assert(200);
    say(app, &wide).await.assert(200);
    let named = |name: &str| {
        let list = all["workspaces"].as_array().unwrap();
        let found = list.iter().find(|workspace| workspace["name"] == name);
        found.unwrap()["_id"].as_str().unwrap().to_owned()
    };
    let path = format!("/api/{}/v1/chat/completions", named("main"));
    ada.post(&path, &body).bearer(&wide).await.assert(403);
    // Others' keys and account tokens open nothing here.
    let bob = app.new_account("bob").await.ai();
    let (_, foreign) = crate::support::key(&bob, "foreign").await;
    ada.post(&path, &body).bearer(&foreign).await.assert(403);
    ada.post(&path, &body).await.assert(401);
    ada.post(&path, &body).anonymous().await.assert(401);
}
