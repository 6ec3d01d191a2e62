//! `ETag`, `If-None-Match`, `If-Match`

use crate::support::{deploy_site, new_key, new_project};
use estrade_testkit::{TestApp, User, on_both_backends};
use serde_json::json;

on_both_backends! {
    one_resource_has_an_etag_and_304_when_it_is_known;
    a_change_makes_a_new_etag;
    if_match_guards_against_lost_updates;
}

async fn read(user: &User, path: &str) -> String {
    let response = user.get(path).await.assert(200);
    let tag = response.header("etag").to_owned();
    assert!(
        tag.starts_with('"') && tag.ends_with('"') && tag.len() > 2,
        "{tag}"
    );
    tag
}

async fn one_resource_has_an_etag_and_304_when_it_is_known(app: &TestApp) {
    let ada = app.new_account("ada").await;
    let project = new_project(&ada, "shop").await;
    let release = deploy_site(&ada, "shop").await;
    let (key, _) = new_key(&ada, "ci-bot").await;
    let spaces = ada.ai().get("/v1/workspaces").await.json();
    let space = spaces["workspaces"][0]["_id"].as_str().unwrap();
    for (user, path) in [
        (ada.clone(), format!("/v1/projects/{project}")),
        (ada.clone(), format!("/v1/releases/{release}")),
        (ada.ai(), format!("/v1/keys/{key}")),
        (ada.ai(), format!("/v1/workspaces/{space}")),
    ] {
        let tag = read(&user, &path).await;
        let ask = |value: &str| user.get(&path).header("if-none-match", value);
        for known in [
            tag.clone(),
            format!("W/{tag}"),
            format!("\"x\", {tag}"),
            "*".to_owned(),
        ] {
            let response = ask(&known).await.assert_empty(304);
            assert_eq!(response.header("etag"), tag);
        }
        for other in ["\"x\"", "x", "", "\"0\"", "\"999999\""] {
            ask(other).await.assert(200);
        }
    }
}

async fn a_change_makes_a_new_etag(app: &TestApp) {
    let ada = app.new_account("ada").await;
    new_project(&ada, "shop").await;
    let path = "/v1/projects/shop";
    let mut tags = vec![read(&ada, path).await];
    let envs = json!({"project": "shop", "variables": [{"key": "A", "value": "1"}]});
    for (change, body) in [
        ("/v1/projects/shop/actions/scale", json!({"scale": 2})),
        ("/v1/projects/shop/resize", json!({"planID": "micro"})),
        ("/v1/projects/update-envs", envs),
    ] {
        assert!(ada.post(change, &body).await.status() < 300);
        tags.push(read(&ada, path).await);
    }
    deploy_site(&ada, "shop").await;
    tags.push(read(&ada, path).await);
    let (key, _) = new_key(&ada, "ci-bot").await;
    let count = tags.len();
    tags.sort();
    tags.dedup();
    assert_eq!(tags.len(), count, "{tags:?}");

    let key = format!("/v1/keys/{key}");
    let before = read(&ada.ai(), &key).await;
    for update in [
        json!({"enabled": false}),
        json!({"workspaces": ["other"]}),
        json!({"rpm": 3}),
    ] {
        let was = read(&ada.ai(), &key).await;
        ada.ai().put(&key, &update).await.assert(200);
        assert_ne!(read(&ada.ai(), &key).await, was, "{update}");
    }
    let call = ada.ai().get(&key).header("if-none-match", &before);
    call.await.assert(200);
}

async fn if_match_guards_against_lost_updates(app: &TestApp) {
    let ada = app.new_account("ada").await;
    let (id, _) = new_key(&ada, "ci-bot").await;
    let key = format!("/v1/keys/{id}");
    let (user, update) = (ada.ai(), json!({"enabled": false}));
    let old = read(&user, &key).await;
    user.put(&key, &update)
        .header("if-match", &old)
        .await
        .assert(200);
    for stale in [old.as_str(), "\"x\"", "x", "", "W/\"0\""] {
        let call = user
            .put(&key, &json!({"enabled": true}))
            .header("if-match", stale);
        call.await.refused(412, "precondition_failed");
        let call = user.delete(&key).header("if-match", stale);
        call.await.refused(412, "precondition_failed");
    }
    assert_eq!(user.get(&key).await.json()["enabled"], false);
    user.put(&key, &update)
        .header("if-match", "*")
        .await
        .assert(200);
    // Several versions: any of them will do.
    let now = read(&user, &key).await;
    let call = user
        .put(&key, &update)
        .header("if-match", &format!("{now}, \"1234567\""));
    call.await.assert(200);
    let now = read(&user, &key).await;
    user.delete(&key)
        .header("if-match", &now)
        .await
        .assert_empty(204);

    new_project(&ada, "shop").await;
    let old = read(&ada, "/v1/projects/shop").await;
    ada.post("/v1/projects/shop/actions/scale", &json!({"scale": 2}))
        .await
        .assert(200);
    let call = ada.delete("/v1/projects/shop").header("if-match", &old);
    call.await.refused(412, "precondition_failed");
    let now = read(&ada, "/v1/projects/shop").await;
    ada.delete("/v1/projects/shop")
        .header("if-match", &now)
        .await
        .assert(200);

    let made = user
        .post("/v1/workspaces", &json!({"name": "spare"}))
        .await
        .assert(200);
    let path = format!("/v1/workspaces/{}", made.field("/workspace/_id"));
    let call = user.delete(&path).header("if-match", "\"77\"");
    call.await.refused(412, "precondition_failed");
    let now = read(&user, &path).await;
    user.delete(&path)
        .header("if-match", &now)
        .await
        .assert(204);
}
