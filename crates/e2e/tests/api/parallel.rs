//! Many at once

use estrade_testkit::{Api, TestApp, User, on_both_backends};
use serde_json::{Value, json};
use tokio::task::JoinSet;

on_both_backends! {
    of_200_keys_of_one_name_one_is_made;
    of_200_projects_of_one_name_one_is_made;
    many_keys_of_different_names_are_all_made;
}

/// Sends requests at the same time; returns how often each status came.
async fn statuses(calls: Vec<(User, &'static str, Value)>) -> Vec<(u16, usize)> {
    let mut tasks = JoinSet::new();
    for (user, path, body) in calls {
        tasks.spawn(async move {
            let response = user.post(path, &body).await;
            if response.status() == 409 && path == "/v1/keys" {
                return response.assert_empty(409).status();
            }
            response.status()
        });
    }
    let mut seen = std::collections::BTreeMap::new();
    for status in tasks.join_all().await {
        *seen.entry(status).or_insert(0) += 1;
    }
    seen.into_iter().collect()
}

async fn of_200_keys_of_one_name_one_is_made(app: &TestApp) {
    let ada = app.new_account("ada").await.ai();
    let call = |i: usize| {
        let new = json!({"name": "ci-bot", "workspaces": [format!("w{}", i % 3)]});
        (ada.clone(), "/v1/keys", new)
    };
    assert_eq!(
        statuses((0..200).map(call).collect()).await,
        [(201, 1), (409, 199)]
    );
    let list = ada.get("/v1/keys").await.json();
    assert_eq!(list.as_array().unwrap().len(), 1);
    let spaces = ada.get("/v1/workspaces").await.json();
    assert_eq!(
        spaces["workspaces"].as_array().unwrap().len(),
        1,
        "the losers left nothing"
    );
}

async fn of_200_projects_of_one_name_one_is_made(app: &TestApp) {
    let (ada, bob) = (app.new_account("ada").await, app.new_account("bob").await);
    let call = |i: usize| {
        let user = if i.is_multiple_of(2) { &ada } else { &bob };
        let new = json!({"name": "shop", "platform": "static", "planID": "nano"});
        (user.clone(), "/v1/projects", new)
    };
    assert_eq!(
        statuses((0..200).map(call).collect()).await,
        [(200, 1), (409, 199)]
    );
    let count = async |user: &User| {
        let list = user.on(Api::Platform).get("/v1/projects").await.json();
        list["projects"].as_array().unwrap().len()
    };
    assert_eq!(count(&ada).await + count(&bob).await, 1);
}

async fn many_keys_of_different_names_are_all_made(app: &TestApp) {
    let ada = app.new_account("ada").await.ai();
    let call = |i: usize| {
        let new =
            json!({"name": format!("key {i}"), "workspaces": ["main", format!("w{}", i % 2)]});
        (ada.clone(), "/v1/keys", new)
    };
    assert_eq!(statuses((0..100).map(call).collect()).await, [(201, 100)]);
    let list = ada.get("/v1/keys").await.json();
    assert_eq!(list.as_array().unwrap().len(), 100);
    let spaces = ada.get("/v1/workspaces").await.json();
    assert_eq!(spaces["workspaces"].as_array().unwrap().len(), 3);
}
