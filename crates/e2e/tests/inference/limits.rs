//! Limits over the wire, and the record of every call.

use crate::support::{ECHO, MODEL, chat, chat_response, code, key_with, provide, say, workspace};
use estrade_mock_upstream::{
    MockUpstream, done, event, json as answer_json, stream_head, usage_event,
};
use estrade_testkit::{TestApp, on_both_backends};
use serde_json::json;
use std::time::Duration;

on_both_backends! {
    a_rate_is_reported_in_headers_and_body;
    a_workspace_limits_all_its_keys;
    a_budget_is_reported_in_headers_and_body;
    every_response_leads_to_its_record;
    models_are_listed_by_credential;
}

async fn a_rate_is_reported_in_headers_and_body(app: &TestApp) {
    let ada = app.new_account("ada").await.ai();
    let (id, key) = key_with(&ada, "slow", json!({"rpm": 2})).await;
    for left in ["1", "0"] {
        let response = say(app, &key).await.assert(200);
        assert_eq!(response.header("x-ratelimit-limit-requests"), "2");
        assert_eq!(response.header("x-ratelimit-remaining-requests"), left);
        assert_ne!(response.header("x-ratelimit-reset-requests"), "");
    }
    let refused = say(app, &key).await.assert(429);
    assert_eq!(code(&refused), "rate_limit_requests");
    let limit = &refused.json()["error"]["limit"];
    assert_eq!(
        (&limit["of"], &limit["name"], &limit["value"]),
        (&json!("key"), &json!("requests"), &json!("2"))
    );
    assert!(limit["resets_in"].is_string(), "{limit}");
    assert_eq!(refused.header("x-ratelimit-limit-requests"), "2");
    assert_eq!(refused.header("x-ratelimit-remaining-requests"), "0");
    assert!(refused.header("retry-after").parse::<u64>().unwrap() >= 1);
    // A refusal has its record too, and costs nothing.
    let call = refused.header("x-estrade-call");
    let row = ada
        .get(&format!("{}/logs/{call}", workspace(&ada).await))
        .await
        .assert(200);
    assert_eq!(
        (&row.json()["status"], &row.json()["cost"]),
        (&json!(429), &json!("0.00"))
    );

    // Every route is metered by the same buckets.
    let body = json!({"model": ECHO, "input": "a", "prompt": "a"});
    for path in ["/v1/embeddings", "/v1/images/generations"] {
        app.stranger()
            .ai()
            .post(path, &body)
            .bearer(&key)
            .await
            .assert(429);
    }
    // A higher limit is in force for the next request.
    ada.put(&format!("/v1/keys/{id}"), &json!({"rpm": 100}))
        .await
        .assert(200);
    say(app, &key).await.assert(200);
    ada.put(&format!("/v1/keys/{id}"), &json!({"rpm": null, "tpm": 50}))
        .await
        .assert(200);
    // More than the whole minute has is given once, when all of it is there.
    chat(app, &key, ECHO, &json!({"max_tokens": 100}))
        .await
        .assert(200);
    let large = chat(app, &key, ECHO, &json!({"max_tokens": 100}))
        .await
        .assert(429);
    assert_eq!(code(&large), "rate_limit_tokens");
    assert_eq!(large.header("x-ratelimit-limit-tokens"), "50");
}

async fn a_workspace_limits_all_its_keys(app: &TestApp) {
    let ada = app.new_account("ada").await.ai();
    let (_, one) = key_with(&ada, "one", json!({})).await;
    let (_, two) = key_with(&ada, "two", json!({"rpm": 50})).await;
    let path = workspace(&ada).await;
    say(app, &one).await.assert(200);
    ada.put(&path, &json!({"rpm": 3})).await.assert(200);
    let mut statuses = Vec::new();
    for key in [&one, &two, &one, &two, &one] {
        statuses.push(say(app, key).await);
    }
    let refused = statuses.pop().unwrap();
    assert_eq!(refused.status(), 429);
    assert_eq!(refused.json()["error"]["limit"]["of"], "workspace");
    assert_eq!(
        statuses
            .iter()
            .filter(|response| response.status() == 200)
            .count(),
        3
    );
    ada.put(&path, &json!({"rpm": null})).await.assert(200);
    say(app, &one).await.assert(200);
}

async fn a_budget_is_reported_in_headers_and_body(app: &TestApp) {
    let upstream = MockUpstream::new(|_| answer_json(200, &chat_response(1))).await;
    provide(app, &upstream).await;
    let ada = app.new_account("ada").await.ai();
    let budget =
        |amount: &str, period: &str| json!({"budget": {"amount": amount, "period": period}});
    let (_, daily) = key_with(&ada, "daily", budget("0.003", "daily")).await;
    let one = json!({"max_tokens": 1});
    for _ in 0..3 {
        chat(app, &daily, MODEL, &one).await.assert(200);
    }
    let refused = chat(app, &daily, MODEL, &one).await.assert(402);
    assert_eq!(code(&refused), "budget_exceeded");
    let limit = &refused.json()["error"]["limit"];
    assert_eq!(
        (&limit["of"], &limit["name"], &limit["value"]),
        (&json!("key"), &json!("budget"), &json!("0.003"))
    );
    assert!(
        limit["resets_at"]
            .as_str()
            .unwrap()
            .ends_with("T00:00:00.000Z"),
        "{limit}"
    );
    assert_eq!(refused.header("x-ratelimit-limit-budget"), "0.003");
    assert_ne!(refused.header("x-ratelimit-reset-budget"), "");
    assert!(refused.header("retry-after").parse::<u64>().unwrap() >= 1);
    // What costs nothing is let in; and another day is another budget.
    say(app, &daily).await.assert(200);
    app.core().clock.advance(Duration::from_hours(24));
    chat(app, &daily, MODEL, &one).await.assert(200);

    // The workspace's budget holds for keys that have none, from when it is set.
    let (_, free) = key_with(&ada, "free", json!({})).await;
    let path = workspace(&ada).await;
    ada.put(&path, &budget("0.002", "total")).await.assert(200);
    for _ in 0..2 {
        chat(app, &free, MODEL, &one).await.assert(200);
    }
    let refused = chat(app, &free, MODEL, &one).await.assert(402);
    let limit = &refused.json()["error"]["limit"];
    assert_eq!(limit["of"], "workspace");
    assert!(
        limit.get("resets_at").is_none() && !refused.has_header("retry-after"),
        "{limit}"
    );
    assert_eq!(upstream.count(), 6);
}

async fn every_response_leads_to_its_record(app: &TestApp) {
    let upstream = MockUpstream::with_script(|_, asked| {
        if asked.body.contains(r#""stream":true"#) {
            vec![stream_head(), event("a"), usage_event(3, 2), done()]
        } else {
            answer_json(200, &chat_response(2))
        }
    })
    .await;
    provide(app, &upstream).await;
    let ada = app.new_account("ada").await.ai();
    let (id, key) = key_with(&ada, "ci-bot", json!({})).await;
    let path = workspace(&ada).await;
    for (model, more, status, cost) in [
        (MODEL, json!({}), 200, "0.002"),
        (MODEL, json!({"stream": true}), 200, "0.002"),
        (ECHO, json!({}), 200, "0.00"),
        ("no/such", json!({}), 404, "0.00"),
        (MODEL, json!({"max_tokens": "x"}), 400, "0.00"),
    ] {
        let response = chat(app, &key, model, &more).await.assert(status);
        let call = response.header("x-estrade-call");
        let row = ada
            .get(&format!("{path}/logs/{call}"))
            .await
            .assert(200)
            .json();
        assert_eq!((&row["_id"], &row["key"]), (&json!(call), &json!(id)));
        assert_eq!(
            (&row["status"], &row["cost"]),
            (&json!(status), &json!(cost)),
            "{model}"
        );
        assert_eq!(row["partial"], false);
        // No other key sees it.
        let bob = app.new_account(&format!("bob-{call}")).await.ai();
        bob.get(&format!("{path}/logs/{call}"))
            .await
            .assert_empty(404);
    }
    assert_eq!(ada.get(&format!("{path}/logs")).await.json()["count"], 5);
}

async fn models_are_listed_by_credential(app: &TestApp) {
    let upstream = MockUpstream::new(|_| answer_json(200, &chat_response(1))).await;
    provide(app, &upstream).await;
    let ada = app.new_account("ada").await.ai();
    let (_, wide) = key_with(&ada, "wide", json!({})).await;
    let (_, narrow) = key_with(&ada, "narrow", json!({"models": [MODEL]})).await;
    let listed = async |call: estrade_testkit::Call| {
        let body = call.await.assert(200).json();
        assert_eq!(body["object"], "list");
        let names = body["data"].as_array().unwrap().iter();
        names
            .map(|model| model["id"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    let stranger = app.stranger().ai();
    let all = listed(ada.get("/v1/models")).await;
    assert!(
        all.contains(&MODEL.to_owned()) && all.contains(&ECHO.to_owned()),
        "{all:?}"
    );
    assert_eq!(listed(stranger.get("/v1/models").bearer(&wide)).await, all);
    assert_eq!(
        listed(stranger.get("/v1/models").bearer(&narrow)).await,
        [MODEL]
    );
    let id = workspace(&ada).await.replace("/v1/workspaces/", "");
    assert_eq!(
        listed(
            stranger
                .get(&format!("/api/{id}/v1/models"))
                .bearer(&narrow)
        )
        .await,
        [MODEL]
    );
    stranger.get("/v1/models").await.assert(401);
    assert_eq!(upstream.count(), 0);
}
