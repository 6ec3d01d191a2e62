//! `/v1/workspaces`

use crate::support::{assert_id, assert_time, column, fields, new_key};
use estrade_testkit::{TestApp, on_both_backends};
use serde_json::json;

on_both_backends! {
    workspaces_are_made_listed_and_read;
    names_of_workspaces;
    a_workspace_in_use_stays;
    a_workspace_gets_another_name;
}

const PATH: &str = "/v1/workspaces";

async fn workspaces_are_made_listed_and_read(app: &TestApp) {
    let ada = app.new_account("ada").await.ai();
    let made = ada
        .post(PATH, &json!({"name": "main"}))
        .await
        .assert(200)
        .json();
    assert_eq!(fields(&made), ["workspace"]);
    assert_eq!(fields(&made["workspace"]), ["_id", "name"]);
    assert_id(&made["workspace"]["_id"]);
    ada.post(PATH, &json!({"name": "main"}))
        .await
        .refused(409, "workspace_exists");
    ada.post(PATH, &json!({"name": "other"})).await.assert(200);
    let list = ada.get(PATH).await.assert(200).json();
    assert_eq!(fields(&list), ["workspaces"]);
    assert_eq!(column(&list["workspaces"], "name"), ["other", "main"]);
    assert_eq!(fields(&list["workspaces"][0]), ["_id", "createdAt", "name"]);
    assert_time(&list["workspaces"][0]["createdAt"]);
    let path = format!("{PATH}/{}", made["workspace"]["_id"].as_str().unwrap());
    let read = ada.get(&path).await.assert(200).json();
    for field in ["_id", "name", "createdAt"] {
        assert_eq!(read["workspace"][field], list["workspaces"][1][field]);
    }
    let page = ada.get(&format!("{PATH}?page=2&count=1")).await.json();
    assert_eq!(column(&page["workspaces"], "name"), ["main"]);
    ada.delete(&path).await.assert_empty(204);
    ada.delete(&path).await.refused(404, "not_found");
    ada.get(&path).await.refused(404, "not_found");
    ada.get(&format!("{PATH}/x")).await.refused(400, "invalid");
}

async fn names_of_workspaces(app: &TestApp) {
    let ada = app.new_account("ada").await.ai();
    let (longest, too_long) = ("w".repeat(50), "w".repeat(51));
    for good in ["abc", "0-9", &longest] {
        ada.post(PATH, &json!({"name": good})).await.assert(200);
    }
    for bad in [
        "", "ab", &too_long, "Abc", "-ab", "ab-", "a b", "a_b", "abc\n", "é-é", "abc\u{0}",
    ] {
        ada.post(PATH, &json!({"name": bad}))
            .await
            .refused(400, "invalid")
            .naming("name");
    }
    for bad in [
        json!({}),
        json!({"name": null}),
        json!({"name": 1}),
        json!([]),
    ] {
        ada.post(PATH, &bad).await.refused(400, "invalid");
    }
}

async fn a_workspace_in_use_stays(app: &TestApp) {
    let ada = app.new_account("ada").await.ai();
    let (key, _) = new_key(&ada, "ci-bot").await;
    let list = ada.get(PATH).await.json();
    let path = format!("{PATH}/{}", list["workspaces"][0]["_id"].as_str().unwrap());
    ada.delete(&path).await.refused(409, "workspace_in_use");
    ada.put(
        &format!("/v1/keys/{key}"),
        &json!({"workspaces": ["other"]}),
    )
    .await
    .assert(200);
    ada.delete(&path).await.assert_empty(204);
}

async fn a_workspace_gets_another_name(app: &TestApp) {
    let ada = app.new_account("ada").await.ai();
    let (_, secret) = new_key(&ada, "ci-bot").await;
    ada.post(PATH, &json!({"name": "taken"})).await.assert(200);
    let list = ada.get(PATH).await.json();
    let path = format!("{PATH}/{}", list["workspaces"][1]["_id"].as_str().unwrap());
    ada.put(&path, &json!({"name": "taken"}))
        .await
        .refused(409, "workspace_exists");
    for bad in [json!({"name": null}), json!({"name": "No"})] {
        ada.put(&path, &bad).await.refused(400, "invalid");
    }
    let renamed = ada.put(&path, &json!({"name": "core", "rpm": 9})).await;
    let renamed = renamed.assert(200).json();
    assert_eq!(
        (&renamed["workspace"]["name"], &renamed["workspace"]["rpm"]),
        (&json!("core"), &json!(9))
    );
    let verify = async |name: &str| {
        let question = json!({"key": secret, "workspace": name});
        let verified = ada.post("/v1/keys/verify", &question).await;
        verified.assert(200).json()["valid"] == true
    };
    assert!(verify("core").await && !verify("main").await);
}
