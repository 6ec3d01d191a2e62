//! `/v1/workspaces/{id}/activity` and `/v1/workspaces/{id}/logs`

use crate::support::{assert_time, column, fields, new_key};
use estrade_model::Id;
use estrade_model::amount::Amount;
use estrade_model::call::{BudgetReservation, Call, CallId, Operation, Tokens};
use estrade_testkit::{TestApp, User, on_both_backends};
use serde_json::{Value, json};

on_both_backends! {
    a_call_is_shown_as_soon_as_it_has_ended;
    calls_are_filtered_and_paged;
    old_calls_are_found_however_many_there_are;
    a_workspace_has_limits_and_a_preference;
    whoever_asks_wrongly_is_told;
}

/// A key, its workspace, and where the workspace is.
async fn world(user: &User) -> (String, String, String) {
    let (key, _) = new_key(user, "ci-bot").await;
    let list = user.get("/v1/workspaces").await.json();
    let workspace = list["workspaces"][0]["_id"].as_str().unwrap().to_owned();
    let path = format!("/v1/workspaces/{workspace}");
    (key, workspace, path)
}

/// Ends a call on this server.
fn end_call(app: &TestApp, workspace: &str, key: &str, model: &str, status: u16) -> CallId {
    let now = app.core().now();
    let id = Id::generate(now.millis(), 1);
    let call = Call {
        id,
        workspace: workspace.parse().unwrap(),
        key: key.parse().unwrap(),
        created_at: now,
        operation: Operation::Chat,
        model: model.into(),
        provider: "local".into(),
        status,
        streamed: true,
        partial: false,
        estimated: false,
        cached: false,
        tokens: Tokens {
            prompt: 12,
            completion: 8,
        },
        cost: Amount::from_nanos(6600),
        latency_us: 12_000,
        ttfb_us: 3_000,
        attempts: 1,
    };
    assert!(app.ledger().close(BudgetReservation::NONE, call).is_none());
    id
}

async fn a_call_is_shown_as_soon_as_it_has_ended(app: &TestApp) {
    let ada = app.new_account("ada").await.ai();
    let (key, workspace, path) = world(&ada).await;
    assert_eq!(
        ada.get(&format!("{path}/activity"))
            .await
            .assert(200)
            .json(),
        json!([])
    );
    let empty = ada.get(&format!("{path}/logs")).await.assert(200).json();
    assert_eq!(
        empty,
        json!({"logs": [], "count": 0, "countIsLowerBound": false})
    );
    let id = end_call(app, &workspace, &key, "some/model", 200);
    let log = ada.get(&format!("{path}/logs")).await.assert(200).json();
    assert_eq!(log["count"], 1);
    let call = &log["logs"][0];
    assert_eq!(
        fields(call),
        [
            "_id",
            "attempts",
            "cached",
            "completionTokens",
            "cost",
            "createdAt",
            "estimated",
            "key",
            "latencyMs",
            "model",
            "partial",
            "promptTokens",
            "provider",
            "status",
            "streamed",
            "ttfbMs",
            "url"
        ]
    );
    assert_time(&call["createdAt"]);
    assert_eq!(call["_id"], id.to_string());
    assert_eq!(
        (&call["key"], &call["cost"]),
        (&json!(key), &json!("0.0000066"))
    );
    assert_eq!(
        (&call["latencyMs"], &call["url"]),
        (&json!(12), &json!("chat/completions"))
    );
    let one = ada
        .get(&format!("{path}/logs/{id}"))
        .await
        .assert(200)
        .json();
    assert_eq!(one, *call);
    for filter in ["hour", "day", "week", "month"] {
        let shown = ada
            .get(&format!("{path}/activity?filter={filter}&key={key}"))
            .await;
        let shown = shown.assert(200).json();
        assert_time(&shown[0]["date"]);
        let data = json!([{"model": "some/model", "total_tokens": 20, "total_cost": "0.0000066", "request_count": 1}]);
        assert_eq!(shown[0]["data"], data, "{filter}");
    }
    let other = ada.get(&format!("{path}/activity?key={workspace}")).await;
    assert_eq!(other.assert(200).json(), json!([]));
}

async fn calls_are_filtered_and_paged(app: &TestApp) {
    let ada = app.new_account("ada").await.ai();
    let (key, workspace, path) = world(&ada).await;
    for number in 0..20 {
        let model = if number % 2 == 0 { "even" } else { "odd" };
        end_call(
            app,
            &workspace,
            &key,
            model,
            if number < 3 { 429 } else { 200 },
        );
    }
    let log = async |query: &str| {
        ada.get(&format!("{path}/logs{query}"))
            .await
            .assert(200)
            .json()
    };
    assert_eq!(log("").await["logs"].as_array().unwrap().len(), 15);
    let ids = column(&log("?count=100").await["logs"], "_id");
    assert!(ids.windows(2).all(|pair| pair[0] > pair[1]));
    assert_eq!(column(&log("?page=2").await["logs"], "_id"), ids[15..]);
    assert_eq!(
        column(&log("?page=3&count=4").await["logs"], "_id"),
        ids[8..12]
    );
    assert_eq!(log("?model=even").await["count"], 10);
    assert_eq!(log("?status=429").await["count"], 3);
    assert_eq!(
        log(&format!("?status=429&model=even&key={key}")).await["count"],
        2
    );
    assert_eq!(log("?to=2020-01-01T00:00:00Z").await["count"], 0);
    assert_eq!(log("?from=2020-01-01T00:00:00Z&model=").await["count"], 20);
    let first = log("?count=8").await;
    assert_eq!(
        (&first["count"], &first["next"]),
        (&json!(20), &ids[7].clone().into())
    );
    assert_eq!(first["countIsLowerBound"], false);
    let rest = log(&format!("?count=100&before={}", ids[7])).await;
    assert_eq!(column(&rest["logs"], "_id"), ids[8..]);
    assert_eq!((&rest["count"], &rest["next"]), (&json!(12), &Value::Null));
    let both = ada
        .get(&format!("{path}/logs?page=2&before={}", ids[7]))
        .await;
    assert_eq!(both.assert(400).header("x-error-code"), "invalid");
    ada.get(&format!("{path}/logs?before=yesterday"))
        .await
        .assert(400);
}

/// More calls than one request looks at: no page is silently empty, and every call is reached.
async fn old_calls_are_found_however_many_there_are(app: &TestApp) {
    const CALLS: usize = 20_300;
    let ada = app.new_account("ada").await.ai();
    let (key, workspace, path) = world(&ada).await;
    let mut made = Vec::new();
    for number in 0..CALLS {
        let (model, status) = if number < 2 {
            ("rare", 504)
        } else {
            ("model", 200)
        };
        made.push(end_call(app, &workspace, &key, model, status).to_string());
        if number % 1000 == 0 {
            app.ledger().flush().await;
        }
    }
    made.sort_unstable();
    made.reverse();
    let log = async |query: &str| {
        let response = ada.get(&format!("{path}/logs{query}")).await;
        response.assert(200).json()
    };
    let first = log("?count=100").await;
    assert_eq!(
        (&first["count"], &first["countIsLowerBound"]),
        (&json!(10_000), &json!(true))
    );
    assert_time(&first["searchedUntil"]);
    let last = log("?count=100&page=100").await;
    assert_eq!(column(&last["logs"], "_id"), made[9_900..10_000]);
    let beyond = ada
        .get(&format!("{path}/logs?count=100&page=101"))
        .await
        .assert(400);
    assert_eq!(beyond.header("x-error-code"), "page_out_of_reach");
    let message = beyond.header("x-error-message");
    assert!(
        message.contains(&format!("before={}", made[9_999])),
        "{message}"
    );
    let mut listed = Vec::new();
    let mut next = last["next"].clone();
    while let Some(before) = next.as_str() {
        let page = log(&format!("?count=100&before={before}")).await;
        listed.extend(column(&page["logs"], "_id"));
        next = page["next"].clone();
    }
    assert_eq!(listed, made[10_000..]);
    // Nothing among those that one request looks at, and it says so.
    let none = log("?model=rare").await;
    assert_eq!(
        (&none["logs"], &none["countIsLowerBound"]),
        (&json!([]), &json!(true))
    );
    let before = none["next"].as_str().unwrap();
    assert_eq!(before, made[19_999]);
    let found = log(&format!("?model=rare&before={before}")).await;
    assert_eq!(column(&found["logs"], "_id"), made[20_298..]);
    assert_eq!((&found["count"], &found["next"]), (&json!(2), &Value::Null));
    // Calls that failed are kept apart from those others.
    let failed = log("?status=504").await;
    assert_eq!(column(&failed["logs"], "_id"), made[20_298..]);
    assert_eq!(
        (&failed["count"], &failed["countIsLowerBound"]),
        (&json!(2), &json!(false))
    );
}

async fn a_workspace_has_limits_and_a_preference(app: &TestApp) {
    let ada = app.new_account("ada").await.ai();
    let (_, _, path) = world(&ada).await;
    let read = ada.get(&path).await.assert(200);
    let tag = read.header("etag").to_owned();
    let none = json!(null);
    let workspace = &read.json()["workspace"];
    assert_eq!(
        fields(workspace),
        [
            "_id",
            "budget",
            "createdAt",
            "name",
            "preference",
            "rpm",
            "tpm"
        ]
    );
    assert_eq!(
        (&workspace["rpm"], &workspace["preference"]),
        (&none, &json!("order"))
    );
    let limits = json!({"rpm": 60, "tpm": 9000, "budget": {"amount": "2.50", "period": "daily"}, "preference": "price"});
    let updated = ada.put(&path, &limits).await.assert(200).json();
    let again = ada.get(&path).await.assert(200).json();
    assert_eq!(updated, again);
    for (field, value) in limits.as_object().unwrap() {
        assert_eq!(again["workspace"][field], *value);
    }
    // What is absent stays, null clears, and an old version is refused.
    ada.put(&path, &json!({"rpm": null, "preference": null}))
        .await
        .assert(200);
    let cleared = ada.get(&path).await.assert(200).json();
    assert_eq!(cleared["workspace"]["rpm"], none);
    assert_eq!(cleared["workspace"]["preference"], "order");
    assert_eq!(cleared["workspace"]["tpm"], 9000);
    let stale = ada
        .put(&path, &json!({"rpm": 1}))
        .header("if-match", &tag)
        .await;
    stale.assert_empty(412);
    for bad in [
        json!({"rpm": 0}),
        json!({"tpm": "x"}),
        json!({"budget": {"amount": 1}}),
        json!({"preference": "best"}),
    ] {
        ada.put(&path, &bad).await.refused(400, "invalid");
    }
    let (key, _) = new_key(&ada, "cached").await;
    let key = format!("/v1/keys/{key}");
    assert_eq!(ada.get(&key).await.json()["cache"], false);
    ada.put(&key, &json!({"cache": true})).await.assert(200);
    assert_eq!(ada.get(&key).await.json()["cache"], true);
    ada.put(&key, &json!({"cache": null}))
        .await
        .refused(400, "invalid");
}

async fn whoever_asks_wrongly_is_told(app: &TestApp) {
    let ada = app.new_account("ada").await.ai();
    let (_, _, path) = world(&ada).await;
    for bad in [
        "activity?filter=year",
        "activity?key=x",
        "logs?from=yesterday",
        "logs?status=x",
        "logs?count=x",
        "logs?key=x",
        "logs/x",
    ] {
        let refused = ada.get(&format!("{path}/{bad}")).await;
        refused.refused(400, "invalid");
    }
    let nothing = "0123456789abcdef01234567";
    ada.get(&format!("{path}/logs/{nothing}"))
        .await
        .refused(404, "not_found");
    for rest in ["activity", "logs"] {
        let path = format!("/v1/workspaces/{nothing}/{rest}");
        ada.get(&path).await.refused(404, "not_found");
    }
}
