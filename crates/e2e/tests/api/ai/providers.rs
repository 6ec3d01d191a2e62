//! `/v1/providers`

use crate::support::{assert_id, assert_time, column, fields};
use estrade_model::provider::OnDisconnect;
use estrade_service::ai::providers;
use estrade_testkit::{TestApp, on_both_backends};
use serde_json::json;

on_both_backends! {
    providers_are_kept_and_their_keys_never_shown;
    what_a_provider_may_be_sent_is_kept;
    only_administrators_keep_providers;
    what_is_no_provider_is_400;
}

const PATH: &str = "/v1/providers";
const SECRET: &str = "sk-very-secret-0123456789";

async fn providers_are_kept_and_their_keys_never_shown(app: &TestApp) {
    let admin = app.admin().await.ai();
    let new = json!({
        "name": "local", "baseURL": "http://127.0.0.1:9000/v1/", "apiKey": SECRET, "retries": 1,
        "timeouts": {"connect": 2}, "streamUsage": false,
        "models": [{"id": "openai/gpt", "upstream": "gpt", "price": {"prompt": "0.15", "completion": "0.60"},
                    "contextLength": 128_000, "weight": 3}, {"id": "free"}],
    });
    let made = admin.post(PATH, &new).await.assert(201);
    let provider = &made.json()["provider"];
    assert_eq!(
        fields(provider),
        [
            "_id",
            "baseURL",
            "createdAt",
            "hasKey",
            "models",
            "name",
            "onDisconnect",
            "passFields",
            "retries",
            "streamUsage",
            "strictFields",
            "timeouts"
        ]
    );
    assert_id(&provider["_id"]);
    assert_time(&provider["createdAt"]);
    assert_eq!(provider["hasKey"], true);
    assert_eq!(provider["baseURL"], "http://127.0.0.1:9000/v1");
    assert_eq!(
        provider["timeouts"],
        json!({"connect": 2, "firstByte": 600, "idle": 300})
    );
    assert_eq!(
        provider["models"][1],
        json!({"id": "free", "price": {"prompt": "0.00", "completion": "0.00"}})
    );
    admin.post(PATH, &new).await.refused(409, "provider_exists");
    let path = format!("{PATH}/{}", provider["_id"].as_str().unwrap());
    let read = admin.get(&path).await.assert(200);
    assert_eq!(read.json(), made.json());
    let tag = read.header("etag").to_owned();
    let opened = &providers::list(app.core()).await.unwrap()[0];
    assert_eq!(opened.api_key.as_ref().unwrap().expose(), SECRET);
    assert_eq!(
        (opened.models.len(), opened.models[0].upstream.as_deref()),
        (2, Some("gpt"))
    );
    // The key stays unless it is named.
    let updated = admin
        .put(&path, &json!({"retries": 0, "name": "renamed"}))
        .await
        .assert(200);
    assert_eq!(updated.json()["provider"]["hasKey"], true);
    let opened = &providers::list(app.core()).await.unwrap()[0];
    assert_eq!((opened.retries, opened.name.as_str()), (0, "renamed"));
    assert_eq!(opened.api_key.as_ref().unwrap().expose(), SECRET);
    admin
        .put(&path, &json!({"retries": 2}))
        .header("if-match", &tag)
        .await
        .assert_empty(412);
    let updated = admin.put(&path, &json!({"apiKey": null})).await.assert(200);
    assert_eq!(updated.json()["provider"]["hasKey"], false);
    assert!(
        providers::list(app.core()).await.unwrap()[0]
            .api_key
            .is_none()
    );
    admin
        .put(&path, &json!({"apiKey": SECRET}))
        .await
        .assert(200);
    let second = json!({"name": "second", "baseURL": "https://api.example.com/v1"});
    admin.post(PATH, &second).await.assert(201);
    admin
        .put(&path, &json!({"name": "second"}))
        .await
        .refused(409, "provider_exists");
    let list = admin.get(PATH).await.assert(200);
    assert_eq!(
        column(&list.json()["providers"], "name"),
        ["second", "renamed"]
    );
    let log = admin.get("/v1/audit").await.assert(200);
    assert_eq!(log.json()["entries"][1]["fields"], json!(["apiKey"]));
    for response in [&made, &read, &updated, &list, &log] {
        assert!(!response.text().contains(SECRET));
    }
    admin.delete(&path).await.assert_empty(204);
    admin.get(&path).await.refused(404, "not_found");
    assert_eq!(providers::list(app.core()).await.unwrap().len(), 1);
}

async fn what_a_provider_may_be_sent_is_kept(app: &TestApp) {
    let admin = app.admin().await.ai();
    let new = json!({"name": "local", "baseURL": "http://127.0.0.1:9000/v1/"});
    let made = admin.post(PATH, &new).await.assert(201).json();
    assert_eq!(made["provider"]["onDisconnect"], "finish");
    let path = format!("{PATH}/{}", made["provider"]["_id"].as_str().unwrap());
    let policy = json!({
        "onDisconnect": "cancel_and_charge_reserved", "passFields": ["service_tier"], "strictFields": true,
    });
    let updated = admin.put(&path, &policy).await.assert(200).json();
    for field in ["onDisconnect", "passFields", "strictFields"] {
        assert_eq!(updated["provider"][field], policy[field]);
    }
    let opened = &providers::list(app.core()).await.unwrap()[0];
    assert_eq!(opened.on_disconnect, OnDisconnect::CancelAndChargeReserved);
    assert_eq!(
        (&opened.fields.pass[..], opened.fields.strict),
        (&["service_tier".to_owned()][..], true)
    );
}

async fn only_administrators_keep_providers(app: &TestApp) {
    let ada = app.new_account("ada").await.ai();
    let new = json!({"name": "local", "baseURL": "http://127.0.0.1:9000/v1"});
    let one = format!("{PATH}/0123456789abcdef01234567");
    ada.get(PATH).await.refused(403, "no_permission");
    ada.post(PATH, &new).await.refused(403, "no_permission");
    ada.get(&one).await.refused(403, "no_permission");
    ada.put(&one, &json!({"retries": 1}))
        .await
        .refused(403, "no_permission");
    ada.delete(&one).await.refused(403, "no_permission");
}

async fn what_is_no_provider_is_400(app: &TestApp) {
    let admin = app.admin().await.ai();
    for (field, value) in [
        ("name", json!("")),
        ("name", json!("a b")),
        ("baseURL", json!("http://user:pass@host/v1")),
        ("baseURL", json!("file:///etc/passwd")),
        ("baseURL", json!("https://a..b/v1")),
        ("baseURL", json!("https://-.example.com/v1")),
        ("apiKey", json!("a\nb")),
        ("retries", json!(11)),
        ("timeouts", json!({"connect": 0})),
        ("onDisconnect", json!("maybe")),
        ("passFields", json!([""])),
        ("strictFields", json!("yes")),
        ("models", json!([{"id": "a"}, {"id": "a"}])),
        ("models", json!([{"id": "a", "price": {"prompt": 1}}])),
    ] {
        let mut new = json!({"name": "local", "baseURL": "http://127.0.0.1:9000/v1"});
        new[field] = value;
        admin
            .post(PATH, &new)
            .await
            .refused(400, "invalid")
            .naming(field);
    }
    assert_eq!(admin.get(PATH).await.json(), json!({"providers": []}));
}
