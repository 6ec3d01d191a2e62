//! Providers of the database: in force for the next call, and their keys nowhere to be found.

use crate::support::{MODEL, SECRET, chat, chat_answer, code, key, provide};
use estrade_scripted::{Scripted, json as answer_json};
use estrade_testkit::{TestApp, on_both_engines};
use serde_json::json;

on_both_engines! {
    a_provider_is_in_force_for_the_next_call;
    the_key_of_a_provider_is_nowhere;
}

async fn a_provider_is_in_force_for_the_next_call(app: &TestApp) {
    let ada = app.new_account("ada").await.ai();
    let (_, key) = key(&ada, "ci-bot").await;
    let admin = app.admin().await.ai();
    for round in 0..10 {
        let upstream = Scripted::new(|_| answer_json(200, &chat_answer(1))).await;
        let unknown = chat(app, &key, MODEL, &json!({})).await.assert(404);
        assert_eq!(code(&unknown), "model_not_found", "{round}");
        let path = provide(app, &upstream).await;
        let answer = chat(app, &key, MODEL, &json!({})).await.assert(200);
        assert_eq!(answer.header("x-estrade-provider"), "acme");
        admin
            .put(&path, &json!({"name": "renamed"}))
            .await
            .assert(200);
        let answer = chat(app, &key, MODEL, &json!({})).await.assert(200);
        assert_eq!(answer.header("x-estrade-provider"), "renamed", "{round}");
        admin.delete(&path).await.assert(204);
        chat(app, &key, MODEL, &json!({})).await.assert(404);
    }
}

async fn the_key_of_a_provider_is_nowhere(app: &TestApp) {
    // One that repeats what it was told, in every way.
    let upstream = Scripted::by(|number, asked| {
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
        let answer = chat(app, &key, MODEL, &json!({})).await;
        assert!(!answer.describe().contains(SECRET), "{}", answer.describe());
        assert!(answer.status() >= 400, "{}", answer.status());
    }
    let admin = app.admin().await.ai();
    for path in [&path, "/v1/providers", "/v1/audit", "/v1/models"] {
        let answer = admin.get(path).await.assert(200);
        assert!(!answer.text().contains(SECRET), "{path}");
    }
    assert!(!app.holds(SECRET).await);
}
