//! `Idempotency-Key`

use crate::support::{column, new_key, new_project, site};
use estrade_testkit::{ApiResponse, Call, TestApp, on_both_backends};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::task::JoinSet;

on_both_backends! {
    a_repeat_gets_the_stored_response;
    creating_a_release_is_repeatable_with_both_methods;
    another_request_with_the_same_key_is_422;
    a_key_belongs_to_a_credential_a_method_and_a_path;
    secrets_are_not_replayed;
    a_409_is_stored_and_a_400_is_not;
    bad_keys_are_400;
    a_key_lasts_24_hours;
    many_at_once_are_carried_out_once;
}

fn keyed(call: Call) -> Call {
    call.header("idempotency-key", "request-1")
}

/// Demands that a second response is the first one, said again.
#[track_caller]
fn assert_replayed(first: &ApiResponse, second: &ApiResponse) {
    assert!(
        !first.has_header("idempotency-replayed"),
        "{}",
        first.describe()
    );
    assert_eq!(
        second.header("idempotency-replayed"),
        "true",
        "{}",
        second.describe()
    );
    assert_eq!(second.status(), first.status());
    assert_eq!(second.text(), first.text());
    for header in ["content-type", "x-error-code", "x-error-message"] {
        assert_eq!(second.header(header), first.header(header));
    }
}

async fn a_repeat_gets_the_stored_response(app: &TestApp) {
    let ada = app.new_account("ada").await;
    let team = app.new_team(&ada, "Shop").await;
    new_project(&ada, "existing").await;
    let envs = json!({"project": "existing", "variables": [{"key": "A", "value": "1"}]});
    for (path, body) in [
        (
            "/v1/projects",
            json!({"name": "shop", "platform": "static", "planID": "nano"}),
        ),
        ("/v1/networks", json!({"name": "net"})),
        ("/v2/teams", json!({"name": "Second"})),
        ("/v1/projects/update-envs", envs),
        ("/v1/projects/existing/actions/scale", json!({"scale": 3})),
    ] {
        let call = || keyed(ada.post(path, &body));
        let first = call().await;
        assert!(first.status() < 300, "{}", first.describe());
        assert_replayed(&first, &call().await);
    }
    let call = || keyed(ada.ai().post("/v1/workspaces", &json!({"name": "space"})));
    assert_replayed(&call().await, &call().await);
    let teams = ada.get("/v2/teams").await.json();
    assert_eq!(column(&teams["teams"], "name"), ["Second", "Shop"]);
    let events = ada.get("/v1/projects/existing/events").await.json();
    assert_eq!(column(&events["data"], "action"), ["scale", "envs"]);
    // The team is part of the request.
    let new = json!({"name": "net"});
    let other = keyed(ada.in_team(&team).post("/v1/networks", &new)).await;
    other.refused(422, "idempotency_mismatch");
}

async fn creating_a_release_is_repeatable_with_both_methods(app: &TestApp) {
    let ada = app.new_account("ada").await;
    new_project(&ada, "shop").await;
    let path = "/v2/projects/shop/releases";
    let post = || keyed(ada.post(path, &site()));
    let get = || keyed(ada.get(path).json(&site()));
    let (first, second) = (post().await.assert(201), post().await);
    assert_replayed(&first, &second);
    let (third, fourth) = (get().await.assert(200), get().await);
    assert_replayed(&third, &fourth);
    assert_ne!(first.text(), third.text(), "GET and POST are two requests");
    let list = ada.get("/v1/projects/shop/releases").await.json();
    assert_eq!(list["total"], 2);
    let other = json!({"files": [{"path": "other", "data": ""}]});
    keyed(ada.post(path, &other))
        .await
        .refused(422, "idempotency_mismatch");
    keyed(ada.get(path).json(&other))
        .await
        .refused(422, "idempotency_mismatch");
    // A list is a list, with a key or without.
    assert!(
        !keyed(ada.get(path))
            .await
            .assert(200)
            .has_header("idempotency-replayed")
    );
}

async fn another_request_with_the_same_key_is_422(app: &TestApp) {
    let ada = app.new_account("ada").await;
    let new = json!({"name": "net"});
    keyed(ada.post("/v1/networks", &new)).await.assert(200);
    for call in [
        ada.post("/v1/networks", &json!({"name": "other"})),
        ada.post("/v1/networks?x=1", &new),
        ada.call(http::Method::POST, "/v1/networks")
            .bytes(r#"{ "name":"net"}"#),
    ] {
        keyed(call).await.refused(422, "idempotency_mismatch");
    }
    let key = json!({"name": "ci-bot", "workspaces": ["main"]});
    keyed(ada.ai().post("/v1/keys", &key)).await.assert(201);
    let key = json!({"name": "other", "workspaces": ["main"]});
    keyed(ada.ai().post("/v1/keys", &key))
        .await
        .refused(422, "idempotency_mismatch");
}

async fn a_key_belongs_to_a_credential_a_method_and_a_path(app: &TestApp) {
    let (ada, bob) = (app.new_account("ada").await, app.new_account("bob").await);
    let new = json!({"name": "net"});
    for user in [&ada, &bob] {
        let response = keyed(user.post("/v1/networks", &new)).await.assert(200);
        assert!(!response.has_header("idempotency-replayed"));
    }
    let response = keyed(ada.post("/v2/teams", &new)).await.assert(200);
    assert!(!response.has_header("idempotency-replayed"));
    // Only POSTs (and the GET that creates) are kept.
    let (id, _) = new_key(&ada, "ci-bot").await;
    for enabled in [false, true] {
        let put = ada
            .ai()
            .put(&format!("/v1/keys/{id}"), &json!({"enabled": enabled}));
        assert!(
            !keyed(put)
                .await
                .assert(200)
                .has_header("idempotency-replayed")
        );
    }
}

async fn secrets_are_not_replayed(app: &TestApp) {
    let ada = app.new_account("ada").await;
    let team = app.new_team(&ada, "Shop").await;
    let (id, _) = new_key(&ada, "existing").await;
    let key = json!({"name": "ci-bot", "workspaces": ["main"]});
    let invite = json!({"email": "bob@example.com", "role": "viewer"});
    let invitations = format!("/v2/teams/{team}/invitations");
    let rotate = format!("/v1/keys/{id}/rotate");
    for (user, path, body, secret) in [
        (ada.ai(), "/v1/keys", key, "key"),
        (ada.ai(), rotate.as_str(), json!({"grace": 5}), "key"),
        (
            ada.clone(),
            "/v1/api-token",
            json!({"name": "laptop"}),
            "api_token",
        ),
        (ada.clone(), invitations.as_str(), invite, "link"),
    ] {
        let call = || keyed(user.post(path, &body));
        let (first, second) = (call().await, call().await);
        assert_eq!(second.header("idempotency-replayed"), "true");
        assert_eq!(second.status(), first.status());
        let mut expected = first.json();
        let shown = expected.as_object_mut().unwrap().remove(secret);
        let shown = shown
            .and_then(|value| value.as_str().map(str::to_owned))
            .unwrap();
        assert_eq!(second.json(), expected, "everything but the secret");
        let token = shown
            .rsplit_once("token=")
            .map_or(shown.as_str(), |(_, token)| token);
        assert!(!app.holds(token).await, "{path}");
    }
}

async fn a_409_is_stored_and_a_400_is_not(app: &TestApp) {
    let ada = app.new_account("ada").await;
    let (id, _) = new_key(&ada, "ci-bot").await;
    let new = json!({"name": "ci-bot", "workspaces": ["main"]});
    let call = || keyed(ada.ai().post("/v1/keys", &new));
    let first = call().await.refused(409, "key_exists");
    ada.ai().delete(&format!("/v1/keys/{id}")).await.assert(204);
    let second = call().await.assert_empty(409);
    assert_replayed(&first, &second);

    keyed(ada.post("/v1/networks", &json!({"name": "X"})))
        .await
        .refused(400, "invalid");
    keyed(ada.post("/v1/networks", &json!({"name": "net"})))
        .await
        .assert(200);
    let scale = json!({"scale": 2});
    let path = "/v1/projects/shop/actions/scale";
    keyed(ada.post(path, &scale))
        .await
        .refused(404, "not_found");
    new_project(&ada, "shop").await;
    let response = keyed(ada.post(path, &scale)).await.assert(200);
    assert!(!response.has_header("idempotency-replayed"));
}

async fn bad_keys_are_400(app: &TestApp) {
    let ada = app.new_account("ada").await;
    let (longest, too_long) = ("k".repeat(255), "k".repeat(256));
    for bad in ["", &too_long, "a b", "é", "\t"] {
        let call = ada.post("/v1/networks", &json!({"name": "net"}));
        let response = call.header("idempotency-key", bad).await;
        response.refused(400, "invalid").naming("Idempotency-Key");
        let call = ada.ai().post("/v1/workspaces", &json!({"name": "net"}));
        call.header("idempotency-key", bad)
            .await
            .refused(400, "invalid");
    }
    let call = ada.post("/v1/networks", &json!({"name": "net"}));
    call.header("idempotency-key", &longest).await.assert(200);
    // 401 wins.
    let call = keyed(ada.post("/v1/networks", &json!({"name": "net"}))).anonymous();
    call.await.refused(401, "unauthenticated");
}

async fn a_key_lasts_24_hours(app: &TestApp) {
    let ada = app.new_account("ada").await;
    let call = || keyed(ada.post("/v1/networks", &json!({"name": "net"})));
    let first = call().await.assert(200);
    app.core().clock.advance(Duration::from_mins(23 * 60 + 59));
    assert_replayed(&first, &call().await);
    app.core().clock.advance(Duration::from_mins(2));
    let fresh = call().await.assert(409);
    assert!(!fresh.has_header("idempotency-replayed"));
}

async fn many_at_once_are_carried_out_once(app: &TestApp) {
    let ada = app.new_account("ada").await;
    new_project(&ada, "shop").await;
    let mut tasks = JoinSet::new();
    for _ in 0..30 {
        let user = ada.clone();
        tasks.spawn(async move { keyed(user.post("/v2/projects/shop/releases", &site())).await });
    }
    let (mut fresh, mut ids): (usize, Vec<Value>) = (0, Vec::new());
    for response in tasks.join_all().await {
        if response.status() == 409 {
            let response = response.refused(409, "idempotency_in_progress");
            assert_ne!(response.header("retry-after"), "");
            continue;
        }
        let response = response.assert(201);
        fresh += usize::from(!response.has_header("idempotency-replayed"));
        ids.push(response.json()["releaseID"].clone());
    }
    assert_eq!(fresh, 1);
    ids.dedup();
    assert_eq!(ids.len(), 1);
    let list = ada.get("/v1/projects/shop/releases").await.json();
    assert_eq!(list["total"], 1);
}
