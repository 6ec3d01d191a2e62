//! `POST /v1/keys/{keyID}/rotate`

use crate::support::{authorize, fields, new_key};
use estrade_testkit::{TestApp, on_both_backends};
use serde_json::json;
use std::time::Duration;

on_both_backends! {
    the_old_secret_stops_at_once;
    the_old_secret_stays_good_for_the_grace;
    a_second_rotation_keeps_the_first_grace;
    grace_is_0_to_30_days;
}

async fn the_old_secret_stops_at_once(app: &TestApp) {
    let ada = app.new_account("ada").await;
    let (id, old) = new_key(&ada, "ci-bot").await;
    authorize(&ada, &old).await.assert_empty(200);
    let path = format!("/v1/keys/{id}/rotate");
    let response = ada.ai().post_empty(&path).await.assert(200);
    assert_eq!(fields(&response.json()), ["_id", "key"]);
    assert_eq!(response.field("/_id"), id);
    let new = response.field("/key");
    assert_ne!(new, old);
    authorize(&ada, &new).await.assert_empty(200);
    let refused = authorize(&ada, &old).await.assert_empty(401);
    assert_eq!(refused.header("x-error-code"), "rotated");
    // An empty object is the same as no body.
    ada.ai().post(&path, &json!({})).await.assert(200);
    authorize(&ada, &new).await.assert_empty(401);
}

async fn the_old_secret_stays_good_for_the_grace(app: &TestApp) {
    let ada = app.new_account("ada").await;
    let (id, old) = new_key(&ada, "ci-bot").await;
    let path = format!("/v1/keys/{id}/rotate");
    let new = ada
        .ai()
        .post(&path, &json!({"grace": 60}))
        .await
        .assert(200)
        .field("/key");
    for key in [&old, &new] {
        authorize(&ada, key).await.assert_empty(200);
    }
    app.core().clock.advance(Duration::from_secs(50));
    authorize(&ada, &old).await.assert_empty(200);
    app.core().clock.advance(Duration::from_secs(11));
    authorize(&ada, &old).await.assert_empty(401);
    authorize(&ada, &new).await.assert_empty(200);
}

async fn a_second_rotation_keeps_the_first_grace(app: &TestApp) {
    let ada = app.new_account("ada").await;
    let (id, first) = new_key(&ada, "ci-bot").await;
    let path = format!("/v1/keys/{id}/rotate");
    let second = ada
        .ai()
        .post(&path, &json!({"grace": 100}))
        .await
        .assert(200)
        .field("/key");
    let third = ada
        .ai()
        .post(&path, &json!({"grace": 200}))
        .await
        .assert(200)
        .field("/key");
    for key in [&first, &second, &third] {
        authorize(&ada, key).await.assert_empty(200);
    }
    app.core().clock.advance(Duration::from_secs(150));
    authorize(&ada, &first).await.assert_empty(401);
    authorize(&ada, &second).await.assert_empty(200);
    // Switching the key off stops all of them.
    ada.ai()
        .put(&format!("/v1/keys/{id}"), &json!({"enabled": false}))
        .await
        .assert(200);
    for key in [&second, &third] {
        authorize(&ada, key).await.assert_empty(403);
    }
}

async fn grace_is_0_to_30_days(app: &TestApp) {
    let ada = app.new_account("ada").await;
    let (id, _) = new_key(&ada, "ci-bot").await;
    let path = format!("/v1/keys/{id}/rotate");
    for good in [0, 2_592_000] {
        ada.ai()
            .post(&path, &json!({"grace": good}))
            .await
            .assert(200);
    }
    for bad in [
        json!(-1),
        json!(2_592_001),
        json!("60"),
        json!(1.5),
        json!(null),
        json!([]),
    ] {
        let response = ada.ai().post(&path, &json!({"grace": bad})).await;
        response.refused(400, "invalid").naming("grace");
    }
}
