//! `PUT /v1/keys/{keyID}`

use crate::support::{authorize, column, new_key};
use estrade_testkit::{TestApp, User, on_both_backends};
use serde_json::{Value, json};

on_both_backends! {
    the_response_is_a_message;
    what_is_absent_stays_as_it_is;
    null_and_wrong_types_are_400;
    a_name_taken_by_another_key_is_409;
    a_disabled_key_is_refused_on_the_very_next_request;
    limits_are_set_and_cleared;
    a_key_cannot_outlive_its_token;
    new_workspaces_replace_the_old_ones_at_once;
}

async fn read(user: &User, id: &str) -> Value {
    user.ai()
        .get(&format!("/v1/keys/{id}"))
        .await
        .assert(200)
        .json()
}

async fn the_response_is_a_message(app: &TestApp) {
    let ada = app.new_account("ada").await;
    let (id, _) = new_key(&ada, "ci-bot").await;
    for update in [
        json!({"enabled": true}),
        json!({"name": "other"}),
        json!({}),
    ] {
        let response = ada
            .ai()
            .put(&format!("/v1/keys/{id}"), &update)
            .await
            .assert(200);
        assert_eq!(response.json(), json!({"message": "key updated."}));
    }
}

async fn what_is_absent_stays_as_it_is(app: &TestApp) {
    let ada = app.new_account("ada").await;
    let (id, key) = new_key(&ada, "ci-bot").await;
    let path = format!("/v1/keys/{id}");
    let put = |update: Value| ada.ai().put(&path, &update);
    put(json!({"name": "renamed"})).await.assert(200);
    put(json!({"enabled": false})).await.assert(200);
    put(json!({"workspaces": ["second", "first"]}))
        .await
        .assert(200);
    put(json!({"rpm": 5, "unknown": null})).await.assert(200);
    let key_now = read(&ada, &id).await;
    assert_eq!(key_now["name"], "renamed");
    assert_eq!(key_now["enabled"], false);
    assert_eq!(column(&key_now["workspaces"], "name"), ["second", "first"]);
    assert_eq!(key_now["rpm"], 5);
    authorize(&ada, &key).await.assert_empty(403);
    put(json!({"name": "renamed", "enabled": true}))
        .await
        .assert(200);
    authorize(&ada, &key).await.assert_empty(200);
    // The name that it had is free.
    new_key(&ada, "ci-bot").await;
}

async fn null_and_wrong_types_are_400(app: &TestApp) {
    let ada = app.new_account("ada").await;
    let (id, _) = new_key(&ada, "ci-bot").await;
    let before = read(&ada, &id).await;
    let path = format!("/v1/keys/{id}");
    for (field, bad) in [
        ("name", json!(null)),
        ("name", json!(1)),
        ("name", json!("ab")),
        ("name", json!("n".repeat(16))),
        ("name", json!("abc\n")),
        ("name", json!("käse")),
        ("workspaces", json!(null)),
        ("workspaces", json!([])),
        ("workspaces", json!("main")),
        ("workspaces", json!([""])),
        ("enabled", json!(null)),
        ("enabled", json!("true")),
        ("enabled", json!(1)),
        ("rpm", json!(0)),
        ("budget", json!({"amount": "1"})),
    ] {
        let mut update = json!({"name": "renamed"});
        update[field] = bad;
        ada.ai()
            .put(&path, &update)
            .await
            .refused(400, "invalid")
            .naming(field);
    }
    for bad in ["", "[]", r#"["renamed"]"#, "null", "1", "{", "\"x\""] {
        let call = ada.ai().call("PUT".parse().unwrap(), &path).bytes(bad);
        call.await.refused(400, "invalid");
    }
    assert_eq!(read(&ada, &id).await, before);
}

async fn a_name_taken_by_another_key_is_409(app: &TestApp) {
    let ada = app.new_account("ada").await;
    let (one, _) = new_key(&ada, "one").await;
    new_key(&ada, "two").await;
    let path = format!("/v1/keys/{one}");
    let update = json!({"name": "two", "enabled": false, "workspaces": ["fresh"]});
    ada.ai()
        .put(&path, &update)
        .await
        .refused(409, "key_exists");
    ada.ai().put(&path, &update).await.assert_empty(409);
    let key = read(&ada, &one).await;
    assert_eq!(
        (&key["name"], &key["enabled"]),
        (&json!("one"), &json!(true))
    );
    let spaces = ada.ai().get("/v1/workspaces").await.json();
    assert_eq!(column(&spaces["workspaces"], "name"), ["main"]);
    // Its own name is no clash.
    ada.ai()
        .put(&path, &json!({"name": "one"}))
        .await
        .assert(200);
}

async fn a_disabled_key_is_refused_on_the_very_next_request(app: &TestApp) {
    let ada = app.new_account("ada").await;
    let (id, key) = new_key(&ada, "ci-bot").await;
    let path = format!("/v1/keys/{id}");
    for _ in 0..20 {
        authorize(&ada, &key).await.assert_empty(200);
        ada.ai()
            .put(&path, &json!({"enabled": false}))
            .await
            .assert(200);
        let refused = authorize(&ada, &key).await.assert_empty(403);
        assert_eq!(refused.header("x-error-code"), "disabled");
        ada.ai()
            .put(&path, &json!({"enabled": true}))
            .await
            .assert(200);
    }
}

async fn limits_are_set_and_cleared(app: &TestApp) {
    let ada = app.new_account("ada").await;
    let (id, key) = new_key(&ada, "ci-bot").await;
    let path = format!("/v1/keys/{id}");
    let set = json!({
        "models": ["estrade/echo"], "rpm": 1, "tpm": 2, "budget": {"amount": "1.00", "period": "total"},
        "expiresAt": "2099-01-01T00:00:00.000Z",
    });
    ada.ai().put(&path, &set).await.assert(200);
    let now = read(&ada, &id).await;
    for (field, value) in set.as_object().unwrap() {
        assert_eq!(&now[field], value);
        ada.ai()
            .put(&path, &json!({ field: null }))
            .await
            .assert(200);
        assert_eq!(read(&ada, &id).await[field], Value::Null);
    }
    // Its JWT has no end of its own, so an end may be set and moved freely.
    authorize(&ada, &key).await.assert_empty(200);
    ada.ai()
        .put(&path, &json!({"expiresAt": "2000-01-01T00:00:00.000Z"}))
        .await
        .assert(200);
    let refused = authorize(&ada, &key).await.assert_empty(401);
    assert_eq!(refused.header("x-error-code"), "expired");
    ada.ai()
        .put(&path, &json!({"expiresAt": null}))
        .await
        .assert(200);
    authorize(&ada, &key).await.assert_empty(200);
}

async fn a_key_cannot_outlive_its_token(app: &TestApp) {
    let ada = app.new_account("ada").await;
    let new =
        json!({"name": "ci-bot", "workspaces": ["main"], "expiresAt": "2099-06-01T00:00:00.000Z"});
    let made = ada.ai().post("/v1/keys", &new).await.assert(201);
    let path = format!("/v1/keys/{}", made.field("/_id"));
    for late in [
        json!("2099-06-01T00:00:01.000Z"),
        json!("2100-01-01T00:00:00.000Z"),
        json!(null),
    ] {
        let response = ada.ai().put(&path, &json!({"expiresAt": late})).await;
        response
            .refused(400, "invalid")
            .naming("expiresAt")
            .naming("rotate");
    }
    for early in ["2099-05-01T00:00:00.000Z", "2099-06-01T00:00:00.000Z"] {
        ada.ai()
            .put(&path, &json!({"expiresAt": early}))
            .await
            .assert(200);
    }
}

async fn new_workspaces_replace_the_old_ones_at_once(app: &TestApp) {
    let ada = app.new_account("ada").await;
    let (id, key) = new_key(&ada, "ci-bot").await;
    let ask = |space: &str| {
        ada.ai()
            .get("/v1/keys/authorize")
            .bearer(&key)
            .header("x-workspace", space)
    };
    ask("main").await.assert_empty(200);
    ask("other").await.assert_empty(403);
    ada.ai()
        .put(&format!("/v1/keys/{id}"), &json!({"workspaces": ["other"]}))
        .await
        .assert(200);
    ask("main").await.assert_empty(403);
    ask("other").await.assert_empty(200);
}
