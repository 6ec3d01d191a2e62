//! Providers of the database: in force for the next call, and their keys nowhere to be found.

use crate::support::{MODEL, SECRET, chat, chat_response, code, key, provide};
use estrade_mock_upstream::{MockUpstream, json as answer_json};
use estrade_model::provider::{ProviderInfo, ProviderSettings};
use estrade_model::{Id, Timestamp};
use estrade_store::providers::{ProviderRow, insert_provider};
use estrade_store::{ChangeKind, StoreError};
use estrade_testkit::{Backend, TestApp, on_both_backends};
use serde_json::json;
use std::sync::Arc;

on_both_backends! {
    a_provider_is_in_force_for_the_next_call;
    the_key_of_a_provider_is_nowhere;
}

async fn a_provider_is_in_force_for_the_next_call(app: &TestApp) {
    let ada = app.new_account("ada").await.ai();
    let (_, key) = key(&ada, "ci-bot").await;
    let admin = app.admin().await.ai();
    for round in 0..10 {
        let upstream = MockUpstream::new(|_| answer_json(200, &chat_response(1))).await;
        let unknown = chat(app, &key, MODEL, &json!({})).await.assert(404);
        assert_eq!(code(&unknown), "model_not_found", "{round}");
        let path = provide(app, &upstream).await;
        let response = chat(app, &key, MODEL, &json!({})).await.assert(200);
        assert_eq!(response.header("x-estrade-provider"), "acme");
        admin
            .put(&path, &json!({"name": "renamed"}))
            .await
            .assert(200);
        let response = chat(app, &key, MODEL, &json!({})).await.assert(200);
        assert_eq!(response.header("x-estrade-provider"), "renamed", "{round}");
        admin.delete(&path).await.assert(204);
        chat(app, &key, MODEL, &json!({})).await.assert(404);
    }
}

/// A provider as an older version or another hand may have left it: its host can have no certificate,
/// or its key does not open.
async fn leave(app: &TestApp, name: &str, base_url: &str, sealed_key: Option<Vec<u8>>) {
    let settings = json!({"baseURL": base_url, "models": [{"id": name}]});
    let settings: ProviderSettings = serde_json::from_value(settings).unwrap();
    let now = app.core().now();
    let row = Arc::new(ProviderRow {
        provider: ProviderInfo {
            id: Id::generate(now.millis(), 7),
            name: name.to_owned().try_into().unwrap(),
            has_key: sealed_key.is_some(),
            created_at: Timestamp::from_millis(0),
            settings,
        },
        sealed_key,
        version: 1,
    });
    let added = app.core().db.transact(move |tx| {
        let row = Arc::clone(&row);
        Box::pin(async move {
            assert!(insert_provider(tx, &row).await?);
            tx.changed(ChangeKind::Provider, row.provider.id, now).await
        })
    });
    let added: Result<(), StoreError> = added.await;
    added.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stored_provider_that_cannot_be_used_takes_no_other_with_it() {
    let app = TestApp::start(Backend::Sqlite).await;
    let upstream = MockUpstream::new(|_| answer_json(200, &chat_response(1))).await;
    let ada = app.new_account("ada").await.ai();
    let (_, key) = key(&ada, "ci-bot").await;
    leave(&app, "nowhere", "https://a..b/v1", None).await;
    leave(&app, "locked", "http://127.0.0.1:9/v1", Some(vec![7; 40])).await;
    provide(&app, &upstream).await;
    chat(&app, &key, MODEL, &json!({})).await.assert(200);
    for name in ["nowhere", "locked"] {
        chat(&app, &key, name, &json!({})).await.assert(404);
        assert!(app.log().contains(name));
    }
    app.abandon().await;
}

async fn the_key_of_a_provider_is_nowhere(app: &TestApp) {
    // One that repeats what it was told, in every way.
    let upstream = MockUpstream::with_script(|number, asked| {
        let told = asked
            .head
            .lines()
            .find(|line| line.starts_with("authorization"));
        let told = told.unwrap_or_default();
        assert!(told.contains(SECRET), "it is not sent: {}", asked.head);
        answer_json(
            [200, 400, 401, 404, 500][number % 5],
            &json!({"error": {"message": told}}).to_string(),
        )
    })
    .await;
    let path = provide(app, &upstream).await;
    let ada = app.new_account("ada").await.ai();
    let (_, key) = key(&ada, "ci-bot").await;
    for _ in 0..5 {
        let response = chat(app, &key, MODEL, &json!({})).await;
        assert!(
            !response.describe().contains(SECRET),
            "{}",
            response.describe()
        );
        assert!(response.status() >= 400, "{}", response.status());
    }
    let admin = app.admin().await.ai();
    for path in [&path, "/v1/providers", "/v1/audit", "/v1/models"] {
        let response = admin.get(path).await.assert(200);
        assert!(!response.text().contains(SECRET), "{path}");
    }
    assert!(!app.holds(SECRET).await);
}
