//! Random bodies to every operation that takes one: a response, never a failure of ours.

use crate::rules::{Operation, operations};
use crate::support::{deploy_site, new_key, new_project, site};
use estrade_testkit::{Api, TestApp, User, on_both_backends};
use http::Method;
use proptest::collection::{hash_map, vec};
use proptest::prelude::{Just, any, prop_oneof};
use proptest::strategy::{BoxedStrategy, Strategy, ValueTree};
use proptest::test_runner::TestRunner;
use serde_json::{Value, json};

on_both_backends! {
    no_body_makes_the_server_fail;
}

/// Names of fields and texts that mean something somewhere.
const WORDS: &[&str] = &[
    "name",
    "workspaces",
    "enabled",
    "platform",
    "planID",
    "files",
    "path",
    "data",
    "encoding",
    "base64",
    "digest",
    "size",
    "root",
    "spa",
    "headers",
    "type",
    "port",
    "image",
    "scale",
    "grace",
    "key",
    "value",
    "variables",
    "project",
    "role",
    "email",
    "owner",
    "static",
    "nano",
    "main",
    "shop",
    "budget",
    "amount",
    "period",
    "daily",
    "expiresAt",
    "2099-01-01T00:00:00.000Z",
    "rpm",
    "models",
    "..",
    "",
    "\u{0}",
    "🙂",
];

fn text() -> BoxedStrategy<String> {
    prop_oneof![
        3 => proptest::sample::select(WORDS).prop_map(str::to_owned),
        1 => any::<String>(),
        1 => "[a-z0-9-]{3,15}",
    ]
    .boxed()
}

fn json_value() -> BoxedStrategy<Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        (-2_i64..20).prop_map(Value::from),
        text().prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 40, 8, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..6).prop_map(Value::from),
            hash_map(text(), inner, 0..6).prop_map(|map| map.into_iter().collect()),
        ]
    })
    .boxed()
}

/// A body that is right but for one random part.
fn nearly(good: Value) -> BoxedStrategy<Value> {
    let names: Vec<String> = good.as_object().unwrap().keys().cloned().collect();
    (proptest::sample::select(names), json_value())
        .prop_map(move |(name, value)| {
            let mut body = good.clone();
            body[name.as_str()] = value;
            body
        })
        .boxed()
}

fn good_body(operation: &Operation) -> Value {
    match operation.name().as_str() {
        "POST /v1/projects" => {
            json!({"name": "other", "platform": "static", "planID": "nano", "network": "default"})
        }
        "POST /v1/projects/update-envs" => {
            json!({"project": "shop", "variables": [{"key": "A", "value": "1"}]})
        }
        "POST /v1/keys" | "PUT /v1/keys/{keyID}" => json!({
            "name": "random", "workspaces": ["main"], "enabled": true, "rpm": 1, "tpm": 1,
            "models": ["m"], "budget": {"amount": "1", "period": "daily"}, "expiresAt": null,
        }),
        "POST /v2/projects/{project_id}/releases" | "GET /v2/projects/{project_id}/releases" => {
            let mut body = site();
            for field in [
                "message",
                "gitInfo",
                "envs",
                "healthCheck",
                "image",
                "sourceID",
                "platformConfig",
            ] {
                body[field] = Value::Null;
            }
            body
        }
        "POST /v1/device/code" => json!({"scope": "full", "host": "laptop"}),
        "POST /v1/device/token" => json!({"device_code": "x"}),
        "POST /v1/login" => json!({"email": 1, "password": ""}),
        _ => json!({
            "name": "random", "scale": 1, "planID": "nano", "role": "viewer", "grace": 1,
            "email": "a@b.example", "key": "x", "workspace": "main",
        }),
    }
}

async fn no_body_makes_the_server_fail(app: &TestApp) {
    let ada = app.new_account("ada").await;
    new_project(&ada, "shop").await;
    let release = deploy_site(&ada, "shop").await;
    let (key, _) = new_key(&ada, "ci-bot").await;
    let team = app.new_team(&ada, "Shop").await;
    let rounds = if std::env::var_os("ESTRADE_TEST_FULL").is_some() {
        500
    } else {
        12
    };
    // Always the same bodies: a test that fails today must fail tomorrow.
    let mut runner = TestRunner::deterministic();
    let makes_release = |operation: &Operation| {
        operation.method == Method::GET && operation.path == "/v2/projects/{project_id}/releases"
    };
    for operation in operations() {
        let takes_body = operation.about.get("requestBody").is_some();
        if !takes_body && !makes_release(&operation) {
            continue;
        }
        let path = operation
            .path
            .replace("{project_id}", "shop")
            .replace("{releaseID}", &release)
            .replace("{keyID}", &key)
            .replace("{memberID}", &ada.account)
            .replace("{digest}", &"ab".repeat(32))
            .replace("{id}", &team);
        let bodies = [
            (json_value(), rounds / 4),
            (nearly(good_body(&operation)), rounds),
        ];
        for (strategy, rounds) in bodies {
            for _ in 0..rounds {
                let body = strategy.new_tree(&mut runner).unwrap().current();
                send(&ada, &operation, &path, body.to_string().into_bytes()).await;
            }
        }
        let bytes = vec(any::<u8>(), 0..64)
            .new_tree(&mut runner)
            .unwrap()
            .current();
        send(&ada, &operation, &path, bytes).await;
    }
    for api in [Api::Platform, Api::Ai] {
        ada.on(api).get("/healthz").await.assert(200);
    }
    ada.get("/v1/projects").await.assert(200);
    ada.ai().get("/v1/keys").await.assert(200);
}

async fn send(user: &User, operation: &Operation, path: &str, body: Vec<u8>) {
    let shown = String::from_utf8_lossy(&body).into_owned();
    let call = user.on(operation.api).call(operation.method.clone(), path);
    let response = call.bytes(body).await;
    assert!(response.status() < 500, "{shown}\n{}", response.describe());
    let documented = operation.about["responses"].get(response.status().to_string());
    assert!(
        documented.is_some(),
        "not in the document: {shown}\n{}",
        response.describe()
    );
}
