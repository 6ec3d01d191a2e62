//! A key is shown once: by its creation or rotation, and nowhere else, ever.
//!
//! The client looks at every body and the end of each test at the log, the files and the database;
//! here a key goes through everything that can be done with one, and the search itself is tested.

use crate::support::{authorize, new_key};
use estrade_testkit::{TestApp, on_both_backends};
use serde_json::json;

on_both_backends! {
    a_key_leaves_no_trace;
    a_password_leaves_no_trace;
}

async fn a_key_leaves_no_trace(app: &TestApp) {
    let ada = app.new_account("ada").await;
    let user = ada.ai();
    let (id, key) = new_key(&ada, "ci-bot").await;
    let path = format!("/v1/keys/{id}");
    authorize(&ada, &key).await.assert(200);
    user.post("/v1/keys/verify", &json!({"key": key}))
        .await
        .assert(200);
    user.put(&path, &json!({"enabled": true, "name": "other"}))
        .await
        .assert(200);
    user.get("/v1/keys").await.assert(200);
    user.get(&path).await.assert(200);
    // In places where it does not belong, it is not repeated either.
    user.post("/v1/keys", &json!({"name": key, "workspaces": ["main"]}))
        .await
        .assert(400);
    user.get(&format!("/v1/keys/{key}")).await.assert(400);
    user.get(&format!("/v1/keys?page={key}")).await.assert(400);
    user.get("/v1/keys").bearer(&key).await.assert(401);
    ada.get(&format!("/v1/projects/{key}")).await.assert(404);
    user.get("/v1/keys")
        .header("x-request-id", &key)
        .await
        .assert(200);
    let rotate = || {
        user.post(&format!("{path}/rotate"), &json!({"grace": 60}))
            .header("idempotency-key", "r")
    };
    let rotated = rotate().await.assert(200).field("/key");
    rotate().await.assert(200);
    authorize(&ada, &rotated).await.assert(200);
    authorize(&ada, &key).await.assert(200);
    app.check_secrets().await;
    user.delete(&path).await.assert(204);
    // The search finds what is there.
    let other = new_key(&ada, "needle").await.0;
    assert!(app.holds(&other).await && app.holds("needle").await);
}

async fn a_password_leaves_no_trace(app: &TestApp) {
    let password = "a-password-that-is-easy-to-find";
    app.new_account_with("ada", password).await;
    for wrong in ["a-wrong-password-to-look-for", password] {
        let login = json!({"email": "ada@example.com", "password": wrong});
        app.stranger().post("/v1/login", &login).await;
        // People also type it into the other field.
        let login = json!({"email": wrong, "password": "x"});
        app.stranger().post("/v1/login", &login).await.assert(401);
        assert!(!app.holds(wrong).await);
    }
}
