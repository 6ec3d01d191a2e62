//! `GET /v1/keys`, `GET` and `DELETE /v1/keys/{keyID}`

use crate::support::{assert_time, authorize, column, fields, new_key};
use estrade_testkit::{TestApp, on_both_backends};
use serde_json::{Value, json};

on_both_backends! {
    keys_are_listed_newest_first_and_without_their_secret;
    a_key_is_read_without_its_secret;
    a_key_id_is_24_lower_case_hexadecimal_characters;
    a_deleted_key_is_gone_at_once;
    the_last_use_is_noted;
}

const FIELDS: [&str; 13] = [
    "_id",
    "budget",
    "cache",
    "createdAt",
    "createdBy",
    "enabled",
    "expiresAt",
    "lastUsedAt",
    "models",
    "name",
    "rpm",
    "tpm",
    "workspaces",
];

async fn keys_are_listed_newest_first_and_without_their_secret(app: &TestApp) {
    let ada = app.new_account("ada").await;
    let empty = ada.ai().get("/v1/keys").await.assert(200);
    assert_eq!(empty.json(), json!([]), "a bare array");
    for name in ["one", "two", "three"] {
        new_key(&ada, name).await;
    }
    let list = ada.ai().get("/v1/keys").await.assert(200).json();
    assert_eq!(column(&list, "name"), ["three", "two", "one"]);
    for key in list.as_array().unwrap() {
        assert_eq!(fields(key), FIELDS);
    }
    let page = ada
        .ai()
        .get("/v1/keys?page=2&count=2")
        .await
        .assert(200)
        .json();
    assert_eq!(column(&page, "name"), ["one"]);
}

async fn a_key_is_read_without_its_secret(app: &TestApp) {
    let ada = app.new_account("ada").await;
    let (id, _) = new_key(&ada, "ci-bot").await;
    let key = ada
        .ai()
        .get(&format!("/v1/keys/{id}"))
        .await
        .assert(200)
        .json();
    assert_eq!(fields(&key), FIELDS);
    assert_eq!(key["_id"], id.as_str());
    let unknown = "/v1/keys/0123456789abcdef01234567";
    ada.ai().get(unknown).await.refused(404, "not_found");
}

async fn a_key_id_is_24_lower_case_hexadecimal_characters(app: &TestApp) {
    let ada = app.new_account("ada").await.ai();
    for bad in [
        "x",
        "0123456789abcdef0123456",
        "0123456789abcdef012345678",
        "0123456789ABCDEF01234567",
        "0123456789abcdef0123456g",
        "%00123456789abcdef0123456",
        "0123456789abcdef01234567%0a",
        "%F0%9F%98%80",
        "%ff",
    ] {
        let path = format!("/v1/keys/{bad}");
        ada.get(&path).await.assert_empty(400);
        ada.put(&path, &json!({"enabled": true}))
            .await
            .assert_empty(400);
        ada.delete(&path).await.assert_empty(400);
        ada.post_empty(&format!("{path}/rotate"))
            .await
            .assert_empty(400);
    }
    for unknown in ["0123456789abcdef01234567", "ffffffffffffffffffffffff"] {
        let path = format!("/v1/keys/{unknown}");
        ada.get(&path).await.refused(404, "not_found");
        ada.put(&path, &json!({"enabled": true}))
            .await
            .refused(404, "not_found");
        ada.delete(&path).await.refused(404, "not_found");
        ada.post_empty(&format!("{path}/rotate"))
            .await
            .refused(404, "not_found");
    }
}

async fn a_deleted_key_is_gone_at_once(app: &TestApp) {
    let ada = app.new_account("ada").await;
    let (id, key) = new_key(&ada, "ci-bot").await;
    authorize(&ada, &key).await.assert_empty(200);
    let path = format!("/v1/keys/{id}");
    ada.ai().delete(&path).await.assert_empty(204);
    authorize(&ada, &key).await.assert_empty(401);
    ada.ai().delete(&path).await.refused(404, "not_found");
    ada.ai().get(&path).await.refused(404, "not_found");
    assert_eq!(ada.ai().get("/v1/keys").await.json(), json!([]));
}

async fn the_last_use_is_noted(app: &TestApp) {
    let ada = app.new_account("ada").await;
    let (id, key) = new_key(&ada, "ci-bot").await;
    let path = format!("/v1/keys/{id}");
    let before = ada.ai().get(&path).await;
    assert_eq!(before.json()["lastUsedAt"], Value::Null);
    authorize(&ada, &key).await.assert(200);
    app.note_uses().await;
    let used = ada.ai().get(&path).await.assert(200);
    assert_time(&used.json()["lastUsedAt"]);
    assert_eq!(
        used.header("etag"),
        before.header("etag"),
        "mere use is no change"
    );
}
