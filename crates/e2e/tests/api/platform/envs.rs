//! `/v1/projects/update-envs`

use crate::support::{assert_id, deploy, deploy_site, ended, fields, hold, new_project, site};
use estrade_testkit::{TestApp, on_both_backends};
use serde_json::{Value, json};

on_both_backends! {
    the_whole_set_is_replaced_and_the_last_duplicate_wins;
    viewers_see_names_but_no_values;
    values_are_encrypted_at_rest;
    a_project_that_serves_gets_an_env_update_release;
    an_env_update_behind_a_release_takes_that_one;
    what_is_no_variable_is_refused_and_changes_nothing;
    variables_of_a_release_are_taken_or_refused;
}

const PATH: &str = "/v1/projects/update-envs";

fn envs(project: &Value) -> Vec<(String, String)> {
    let envs = project["project"]["envs"].as_array().unwrap();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let pair = |env: &Value| (text(&env["key"]), text(&env["value"]));
    envs.iter().map(pair).collect()
}

fn pairs(list: &[(&str, &str)]) -> Vec<(String, String)> {
    let owned = |&(key, value): &(&str, &str)| (key.to_owned(), value.to_owned());
    list.iter().map(owned).collect()
}

async fn the_whole_set_is_replaced_and_the_last_duplicate_wins(app: &TestApp) {
    let ada = app.new_account("ada").await;
    let id = new_project(&ada, "shop").await;
    let first = json!({"project": "shop", "variables": [
        {"key": "A", "value": "1"}, {"key": "B", "value": ""}, {"key": "A", "value": "2"},
    ]});
    let response = ada.post(PATH, &first).await.assert(201);
    assert_eq!(fields(&response.json()), ["message"]);
    let read = ada.get("/v1/projects/shop").await.json();
    let mut found = envs(&read);
    found.sort_unstable();
    assert_eq!(found, pairs(&[("A", "2"), ("B", "")]));
    let env = &read["project"]["envs"][0];
    assert_eq!(fields(env), ["_id", "encrypted", "key", "value"]);
    assert_id(&env["_id"]);
    assert_eq!(env["encrypted"], true);

    let second = json!({"project": id, "variables": [{"key": "C_3.x-y", "value": "µ\n"}]});
    ada.post(PATH, &second).await.assert(201);
    assert_eq!(
        envs(&ada.get("/v1/projects/shop").await.json()),
        pairs(&[("C_3.x-y", "µ\n")])
    );
    ada.post(PATH, &json!({"project": "shop", "variables": []}))
        .await
        .assert(201);
    assert_eq!(envs(&ada.get("/v1/projects/shop").await.json()), pairs(&[]));
}

async fn viewers_see_names_but_no_values(app: &TestApp) {
    let (ada, bob) = (app.new_account("ada").await, app.new_account("bob").await);
    let team = app.new_team(&ada, "Shop").await;
    app.join(&team, &ada, &bob, "viewer").await;
    let (owner, viewer) = (ada.in_team(&team), bob.in_team(&team));
    new_project(&owner, "shop").await;
    let set = json!({"project": "shop", "variables": [{"key": "PASSWORD", "value": "xyzzy-1"}]});
    owner.post(PATH, &set).await.assert(201);
    let seen = viewer.get("/v1/projects/shop").await.assert(200);
    assert!(!seen.text().contains("xyzzy-1"));
    assert_eq!(envs(&seen.json()), pairs(&[("PASSWORD", "***")]));
    let whole = owner.get("/v1/projects/shop").await.assert(200);
    assert_eq!(envs(&whole.json()), pairs(&[("PASSWORD", "xyzzy-1")]));
    // A cache that has the one must not give it out as the other.
    assert_ne!(seen.header("etag"), whole.header("etag"));
    viewer.post(PATH, &set).await.refused(403, "no_permission");
}

async fn values_are_encrypted_at_rest(app: &TestApp) {
    let ada = app.new_account("ada").await;
    new_project(&ada, "shop").await;
    let secret = "correct-horse-battery-staple-7";
    let set = json!({"project": "shop", "variables": [{"key": "PASSWORD", "value": secret}]});
    ada.post(PATH, &set).await.assert(201);
    let mut body = crate::support::site();
    body["envs"] = json!([{"key": "TOKEN", "value": "another-secret-of-the-release"}]);
    let release = crate::support::deploy(&ada, "shop", &body).await;
    ended(&ada, &release).await;
    assert!(
        app.holds("PASSWORD").await,
        "the search finds what is there"
    );
    assert!(!app.holds(secret).await);
    assert!(!app.holds("another-secret-of-the-release").await);
}

async fn a_project_that_serves_gets_an_env_update_release(app: &TestApp) {
    let ada = app.new_account("ada").await;
    new_project(&ada, "shop").await;
    let set = json!({"project": "shop", "variables": [{"key": "A", "value": "1"}]});
    ada.post(PATH, &set).await.assert(201);
    let list = ada.get("/v1/projects/shop/releases").await.json();
    assert_eq!(list["total"], 0, "nothing serves, so nothing is run again");
    let first = deploy_site(&ada, "shop").await;
    ada.post(PATH, &set).await.assert(201);
    let list = ada.get("/v1/projects/shop/releases").await.json();
    assert_eq!(list["total"], 2);
    assert_eq!(list["releases"][0]["type"], "ENV_UPDATE");
    let second = list["releases"][0]["_id"].as_str().unwrap();
    assert_eq!(ended(&ada, second).await["state"], "READY");
    let read = ada.get("/v1/projects/shop").await.json();
    assert_eq!(read["project"]["currentRelease"], second);
    let source = |id: &str| format!("/v2/releases/{id}/source");
    assert_eq!(
        ada.get(&source(&first)).await.assert(200).body(),
        ada.get(&source(second)).await.assert(200).body(),
    );
}

async fn an_env_update_behind_a_release_takes_that_one(app: &TestApp) {
    let ada = app.new_account("ada").await;
    new_project(&ada, "shop").await;
    let first = deploy_site(&ada, "shop").await;
    // Something that takes long, then a new version, and while that waits, new variables.
    let mut node = site();
    node["type"] = "node".into();
    let slow = deploy(&ada, "shop", &node).await;
    ended(&ada, &slow).await;
    hold(app, &slow).await;
    let files = json!({"type": "static", "files": [{"path": "index.html", "data": "the new one"}]});
    let second = deploy(&ada, "shop", &files).await;
    let set = json!({"project": "shop", "variables": [{"key": "A", "value": "1"}]});
    ada.post(PATH, &set).await.assert(201);
    let list = ada.get("/v1/projects/shop/releases").await.json();
    let update = list["releases"][0]["_id"].as_str().unwrap();
    ada.post_empty(&format!("/v2/releases/{slow}/cancel"))
        .await
        .assert_empty(200);
    assert_eq!(ended(&ada, &second).await["state"], "READY");
    assert_eq!(ended(&ada, update).await["state"], "READY");
    let read = ada.get("/v1/projects/shop").await.json();
    assert_eq!(read["project"]["currentRelease"], update);
    let mut sources = Vec::new();
    for release in [&first, &second, update] {
        let source = ada.get(&format!("/v2/releases/{release}/source")).await;
        sources.push(source.assert(200).body().to_vec());
    }
    assert_ne!(sources[0], sources[1]);
    assert_eq!(
        sources[1], sources[2],
        "the new version must not be taken back"
    );
}

async fn what_is_no_variable_is_refused_and_changes_nothing(app: &TestApp) {
    let ada = app.new_account("ada").await;
    new_project(&ada, "shop").await;
    let set = json!({"project": "shop", "variables": [{"key": "A", "value": "1"}]});
    ada.post(PATH, &set).await.assert(201);
    let many = |count: usize| -> Vec<_> {
        (0..count)
            .map(|i| json!({"key": format!("K{i}"), "value": "v"}))
            .collect()
    };
    let one = |key: &str, value: Value| json!([{"key": key, "value": value}]);
    for bad in [
        json!(many(201)),
        one("", json!("v")),
        one("1A", json!("v")),
        one("A B", json!("v")),
        one("A=B", json!("v")),
        one("Ä", json!("v")),
        one("A\n", json!("v")),
        one(&"K".repeat(129), json!("v")),
        one("A", json!(1)),
        one("A", json!(null)),
        one("A", json!("nul\u{0}")),
        one("A", json!("v".repeat(32 * 1024 + 1))),
        json!([{"key": "A"}]),
        json!([{"value": "A"}]),
        json!([["A", "v"]]),
        json!({"A": "1"}),
        json!(null),
    ] {
        let response = ada
            .post(PATH, &json!({"project": "shop", "variables": bad}))
            .await;
        response.refused(400, "invalid").naming("variables");
    }
    ada.post(PATH, &json!({"project": "shop"}))
        .await
        .refused(400, "invalid")
        .naming("variables");
    ada.post(PATH, &json!({"variables": []}))
        .await
        .refused(400, "invalid")
        .naming("project");
    let response = ada
        .post(PATH, &json!({"project": "other", "variables": []}))
        .await;
    response.refused(404, "not_found");
    assert_eq!(
        envs(&ada.get("/v1/projects/shop").await.json()),
        pairs(&[("A", "1")])
    );
    ada.post(PATH, &json!({"project": "shop", "variables": many(200)}))
        .await
        .assert(201);
}

/// Never dropped without a word; containers show that they arrive.
async fn variables_of_a_release_are_taken_or_refused(app: &TestApp) {
    let ada = app.new_account("ada").await;
    new_project(&ada, "shop").await;
    let releases = "/v2/projects/shop/releases";
    let with = |field: &str, value: serde_json::Value| {
        let mut body = crate::support::site();
        body[field] = value;
        body
    };
    for good in [
        json!({"A": "1", "PORT": 3, "DEBUG": true}),
        json!([{"key": "A", "value": "1"}]),
        json!(null),
        json!({}),
    ] {
        for field in ["envs", "envVars"] {
            let made = ada.post(releases, &with(field, good.clone())).await;
            let release = made.assert(201).field("/releaseID");
            ended(&ada, &release).await;
        }
    }
    for bad in [
        json!("A=1"),
        json!([{"name": "A"}]),
        json!(["A=1"]),
        json!({"A": null}),
        json!({"A": ["1"]}),
        json!({"A B": "1"}),
        json!({"": "1"}),
        json!([{"key": "A", "value": "x".repeat(33 * 1024)}]),
    ] {
        for field in ["envs", "envVars"] {
            let refused = ada.post(releases, &with(field, bad.clone())).await;
            refused.refused(400, "invalid").naming("envs");
        }
    }
    let mut both = with("envs", json!({"A": "1"}));
    both["envVars"] = json!({"B": "2"});
    let refused = ada.post(releases, &both).await;
    refused.refused(400, "invalid").naming("envVars");
}
