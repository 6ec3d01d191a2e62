//! `/v1/audit`

use crate::support::{assert_id, assert_time, column, fields, new_key};
use estrade_testkit::{TestApp, on_both_backends};
use serde_json::json;

on_both_backends! {
    every_change_is_noted;
    a_refused_change_is_not;
    only_administrators_of_a_team_read_it;
}

async fn every_change_is_noted(app: &TestApp) {
    let ada = app.new_account("ada").await.ai();
    let (key, _) = new_key(&ada, "ci-bot").await;
    let path = format!("/v1/keys/{key}");
    ada.put(
        &path,
        &json!({"rpm": 5, "budget": {"amount": "1", "period": "total"}}),
    )
    .await
    .assert(200);
    ada.put(&path, &json!({"enabled": false}))
        .header("x-request-id", "who-did-it")
        .await
        .assert(200);
    ada.put(&path, &json!({"enabled": true, "name": "renamed"}))
        .await
        .assert(200);
    ada.post(&format!("{path}/rotate"), &json!({}))
        .await
        .assert(200);
    ada.delete(&path).await.assert(204);
    let made = ada
        .post("/v1/workspaces", &json!({"name": "other"}))
        .await
        .assert(200);
    let workspace = format!("/v1/workspaces/{}", made.field("/workspace/_id"));
    ada.put(&workspace, &json!({"rpm": 7})).await.assert(200);
    ada.delete(&workspace).await.assert(204);
    let log = ada.get("/v1/audit").await.assert(200).json();
    let entries = &log["entries"];
    let mut actions = column(entries, "action");
    actions.reverse();
    assert_eq!(
        actions,
        [
            "key.create",
            "workspace.create",
            "key.update",
            "key.disable",
            "key.enable",
            "key.rotate",
            "key.delete",
            "workspace.create",
            "workspace.update",
            "workspace.delete"
        ]
    );
    let of_key = ada
        .get(&format!("/v1/audit?key={key}&count=3&page=2"))
        .await
        .json();
    assert_eq!(
        column(&of_key["entries"], "action"),
        ["key.disable", "key.update", "key.create"]
    );
    let disabled = &of_key["entries"][0];
    assert_eq!(
        fields(disabled),
        [
            "_id",
            "action",
            "address",
            "by",
            "createdAt",
            "fields",
            "name",
            "requestID",
            "subject"
        ]
    );
    assert_id(&disabled["_id"]);
    assert_time(&disabled["createdAt"]);
    assert_eq!(disabled["subject"], key);
    assert_eq!(disabled["by"]["account"], ada.account);
    assert_eq!(disabled["by"]["email"], ada.email);
    assert_eq!(disabled["address"], "127.0.0.1");
    assert_eq!(disabled["requestID"], "who-did-it");
    assert_eq!(disabled["fields"], json!(["enabled"]));
    assert_eq!(of_key["entries"][1]["fields"], json!(["rpm", "budget"]));
    let enabled = &entries[5];
    assert_eq!(
        (&enabled["name"], &enabled["fields"]),
        (&json!("renamed"), &json!(["name", "enabled"]))
    );
    let none = ada.get("/v1/audit?to=2020-01-01T00:00:00Z").await.json();
    assert_eq!(none, json!({"entries": []}));
    let all = ada.get("/v1/audit?from=2020-01-01T00:00:00Z").await.json();
    assert_eq!(all, log);
}

async fn a_refused_change_is_not(app: &TestApp) {
    let ada = app.new_account("ada").await.ai();
    let (key, _) = new_key(&ada, "ci-bot").await;
    new_key(&ada, "other").await;
    let before = ada.get("/v1/audit").await.json();
    let path = format!("/v1/keys/{key}");
    ada.put(&path, &json!({"name": "other"}))
        .await
        .assert_empty(409);
    ada.put(&path, &json!({"rpm": 1}))
        .header("if-match", "\"9\"")
        .await
        .assert_empty(412);
    ada.post(
        "/v1/keys",
        &json!({"name": "other", "workspaces": ["new-one"]}),
    )
    .await
    .assert_empty(409);
    assert_eq!(ada.get("/v1/audit").await.json(), before);
}

async fn only_administrators_of_a_team_read_it(app: &TestApp) {
    let ada = app.new_account("ada").await;
    let team = app.new_team(&ada, "Shop").await;
    let dev = app.new_account("dev").await;
    app.join(&team, &ada, &dev, "developer").await;
    let (ada, dev) = (ada.ai().in_team(&team), dev.ai().in_team(&team));
    new_key(&dev, "ci-bot").await;
    dev.get("/v1/audit").await.refused(403, "no_permission");
    let log = ada.get("/v1/audit").await.assert(200).json();
    assert_eq!(log["entries"][1]["by"]["email"], dev.email);
}
