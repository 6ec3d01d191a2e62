//! `POST /v1/keys/verify`

use crate::support::{fields, new_key};
use estrade_testkit::{TestApp, on_both_backends};
use serde_json::{Value, json};
use std::time::Duration;

on_both_backends! {
    a_good_key_is_valid;
    a_key_that_is_not_let_in_has_a_code;
    keys_of_others_are_unknown;
}

const PATH: &str = "/v1/keys/verify";

async fn a_good_key_is_valid(app: &TestApp) {
    let ada = app.new_account("ada").await;
    let (id, key) = new_key(&ada, "ci-bot").await;
    let read = ada.ai().get(&format!("/v1/keys/{id}")).await.json();
    let space = read["workspaces"][0]["_id"].as_str().unwrap();
    for ask in [
        json!({"key": key}),
        json!({"key": key, "workspace": "main"}),
        json!({"key": key, "workspace": space}),
        json!({"key": key, "workspace": null}),
    ] {
        let response = ada.ai().post(PATH, &ask).await.assert(200).json();
        assert_eq!(fields(&response), ["keyID", "name", "valid", "workspaces"]);
        assert_eq!(response["valid"], true);
        assert_eq!(response["keyID"], id.as_str());
        assert_eq!(response["name"], "ci-bot");
        assert_eq!(response["workspaces"], read["workspaces"]);
    }
    for bad in [
        json!({}),
        json!({"key": 1}),
        json!({"key": key, "workspace": 1}),
    ] {
        ada.ai().post(PATH, &bad).await.refused(400, "invalid");
    }
}

async fn a_key_that_is_not_let_in_has_a_code(app: &TestApp) {
    let ada = app.new_account("ada").await;
    let new =
        json!({"name": "ci-bot", "workspaces": ["main"], "expiresAt": "2099-01-01T00:00:00.000Z"});
    let made = ada.ai().post("/v1/keys", &new).await.assert(201);
    let (path, key) = (
        format!("/v1/keys/{}", made.field("/_id")),
        made.field("/key"),
    );
    let code = async |ask: Value| {
        let response = ada.ai().post(PATH, &ask).await.assert(200).json();
        assert_eq!(response["valid"], false, "{response}");
        response["code"].as_str().unwrap().to_owned()
    };
    assert_eq!(
        code(json!({"key": key, "workspace": "other"})).await,
        "wrong_workspace"
    );
    ada.ai()
        .put(&path, &json!({"enabled": false}))
        .await
        .assert(200);
    assert_eq!(code(json!({"key": key})).await, "disabled");
    ada.ai()
        .put(&path, &json!({"enabled": true}))
        .await
        .assert(200);
    let rotated = ada
        .ai()
        .post_empty(&format!("{path}/rotate"))
        .await
        .assert(200)
        .field("/key");
    assert_eq!(code(json!({"key": key})).await, "rotated");
    app.core()
        .clock
        .advance(Duration::from_hours(24 * 365 * 80));
    assert_eq!(code(json!({"key": rotated})).await, "expired");
    ada.ai().delete(&path).await.assert(204);
    assert_eq!(code(json!({"key": rotated})).await, "unknown");
}

async fn keys_of_others_are_unknown(app: &TestApp) {
    let (ada, eve) = (app.new_account("ada").await, app.new_account("eve").await);
    let team = app.new_team(&ada, "Shop").await;
    let (_, key) = new_key(&ada, "ci-bot").await;
    let unknown = json!({"valid": false, "code": "unknown"});
    for user in [eve, ada.in_team(&team)] {
        let forged = format!("{}A", &key[..key.len() - 1]);
        for text in [
            key.as_str(),
            forged.as_str(),
            user.token(),
            "",
            "x",
            "a.b.c",
            "é",
        ] {
            let response = user
                .ai()
                .post(PATH, &json!({"key": text}))
                .await
                .assert(200);
            assert_eq!(response.json(), unknown);
        }
    }
}
