//! `/v1/me`, `/v1/login`, `/v1/api-token`, `/v1/tokens`

use crate::support::{assert_id, assert_time, column, fields};
use estrade_model::names::Email;
use estrade_service::identity::accounts;
use estrade_testkit::{Api, Setup, TestApp, on_both_backends};
use serde_json::{Value, json};
use std::time::Duration;

on_both_backends! {
    who_am_i;
    what_public_clients_read_of_plans;
    databases_are_not_offered;
    a_login_gives_a_token_for_both_apis;
    a_wrong_password_and_an_unknown_account_look_alike;
    nobody_learns_who_has_an_account;
    guessing_is_limited_per_account with few_guesses;
    guessing_is_limited_per_address with few_guesses_per_address;
    tokens_are_made_listed_and_revoked;
    tokens_end;
    a_disabled_account_is_locked_out_at_once;
}

async fn who_am_i(app: &TestApp) {
    let ada = app.new_account("ada").await;
    let me = ada.get("/v1/me").await.assert(200).json();
    assert_eq!(fields(&me), ["databaseVersions", "plans", "scope", "user"]);
    assert_eq!(me["scope"], "full");
    assert_eq!(me["databaseVersions"], json!({}));
    assert_eq!(fields(&me["user"]), ["_id", "avatar", "email", "fullname"]);
    assert_eq!(me["user"]["_id"], ada.account.as_str());
    assert_eq!(me["user"]["email"], "ada@example.com");
    assert_eq!(me["user"]["fullname"], "ada of Example");
    assert_eq!(fields(&me["plans"]), ["projectBundlePlans", "projects"]);
    let admin = app.admin().await.get("/v1/me").await.assert(200);
    assert_eq!(admin.field("/user/email"), "admin@localhost");
}

/// Clients look up both plans of a project there, and list those whose id contains `g2`.
async fn what_public_clients_read_of_plans(app: &TestApp) {
    let ada = app.new_account("ada").await;
    let plans = ada.get("/v1/me").await.assert(200).json()["plans"].clone();
    let offered = plans["projects"].as_object().unwrap();
    let for_new_clients = offered.keys().filter(|id| id.contains("g2"));
    assert_eq!(for_new_clients.count(), 6);
    let number = |value: &Value| value.as_f64().unwrap();
    for (id, plan) in offered {
        assert_eq!(plan["available"], true, "{id}");
        assert_eq!(plan["region"], "iran", "{id}");
        let memory = number(&plan["RAM"]["amount"]) * 1024.0;
        assert!((memory - number(&plan["memoryMB"])).abs() < 1e-9, "{id}");
        assert!(number(&plan["CPU"]["amount"]) >= 1.0, "{id}");
        assert_eq!(plan["volume"], plan["diskGB"], "{id}");
        assert_eq!(plan["price"], 0, "{id}");
        for bundle in ["free", "basic", "standard", "pro"] {
            let bundle = &plans["projectBundlePlans"][id][bundle];
            assert_eq!(bundle["available"], true, "{id}");
            assert_eq!(bundle["displayPrice"], 0, "{id}");
            assert_eq!(bundle["maxLogsRetention"], 30, "{id}");
        }
    }
    // Whatever is chosen there, the project shows ids that are there, too.
    for (number, bundle) in ["free", "basic", "standard", "pro"].iter().enumerate() {
        let name = format!("app-{number}");
        let new =
            json!({"name": name, "platform": "node", "planID": "micro-g2", "bundlePlanID": bundle});
        ada.post("/v1/projects", &new).await.assert(200);
        let resize = json!({"planID": "standard-1x-g2"});
        let made = ada.get(&format!("/v1/projects/{name}")).await.assert(200);
        assert_eq!(made.field("/project/planID"), "micro");
        assert_eq!(made.field("/project/bundlePlanID"), *bundle);
        let path = format!("/v1/projects/{name}/resize");
        ada.post(&path, &resize).await.assert(200);
        let resized = ada.get(&format!("/v1/projects/{name}")).await.assert(200);
        assert_eq!(resized.field("/project/planID"), "standard-1x");
    }
}

async fn databases_are_not_offered(app: &TestApp) {
    let ada = app.new_account("ada").await;
    let list = ada.get("/v1/databases?teamID=").await.assert(200).json();
    assert_eq!(list, json!({"databases": []}));
    let new = json!({"hostname": "db", "planID": "nano", "type": "postgres", "version": "17"});
    let refused = ada.post("/v1/databases", &new).await;
    refused.refused(400, "not_offered").naming("not offered");
}

async fn a_login_gives_a_token_for_both_apis(app: &TestApp) {
    let ada = app.new_account_with("ada", "correct horse").await;
    let login = json!({"email": "Ada@Example.com", "password": "correct horse"});
    let stranger = app.stranger();
    // A login is never replayed: it hands out a secret.
    let call = || {
        stranger
            .post("/v1/login", &login)
            .header("idempotency-key", "k")
    };
    let response = call().await.assert(200);
    assert_eq!(
        fields(&response.json()),
        ["api_token", "avatar", "email", "fullname"]
    );
    assert_eq!(response.field("/email"), "ada@example.com");
    assert_eq!(response.field("/fullname"), "ada of Example");
    let again = call().await.assert(200);
    assert!(!again.has_header("idempotency-replayed"));
    assert_ne!(again.field("/api_token"), response.field("/api_token"));
    let user = stranger.with_token(&response.field("/api_token"));
    assert_eq!(user.get("/v1/me").await.field("/user/_id"), ada.account);
    user.ai().get("/v1/keys").await.assert(200);
}

async fn a_wrong_password_and_an_unknown_account_look_alike(app: &TestApp) {
    app.new_account_with("ada", "correct horse").await;
    app.new_account("bob").await;
    let stranger = app.stranger();
    let mut answers = Vec::new();
    for (email, password) in [
        ("ada@example.com", "wrong"),
        ("ada@example.com", ""),
        ("nobody@example.com", "correct horse"),
        ("bob@example.com", ""),
        ("not an address", "x"),
    ] {
        let login = json!({"email": email, "password": password});
        let response = stranger.post("/v1/login", &login).await;
        let response = response.refused(401, "wrong_credentials");
        assert_eq!(response.header("www-authenticate"), "Bearer");
        answers.push(response.text());
    }
    answers.dedup();
    assert_eq!(answers.len(), 1, "{answers:?}");
    for bad in [
        json!({}),
        json!({"email": "a@b"}),
        json!({"email": 1, "password": "x"}),
    ] {
        stranger
            .post("/v1/login", &bad)
            .await
            .refused(400, "invalid");
    }
}

async fn nobody_learns_who_has_an_account(app: &TestApp) {
    app.new_account("ada").await;
    let expected = json!({"status": "success", "exists": true, "socialCompleted": true});
    let path = "/v1/login/check-if-exists";
    for body in [
        json!({"email": "ada@example.com"}),
        json!({"email": "x@y"}),
        json!({}),
        json!([]),
    ] {
        let response = app.stranger().post(path, &body).await.assert(200);
        assert_eq!(response.json(), expected);
    }
    assert_eq!(
        app.stranger().post_empty(path).await.assert(200).json(),
        expected
    );
}

fn few_guesses() -> Setup {
    Setup::with(|setup| setup.settings.login_failures_per_account = 2)
}

async fn guessing_is_limited_per_account(app: &TestApp) {
    app.new_account_with("ada", "correct horse").await;
    let stranger = app.stranger();
    let login = |email: &str, password: &str| {
        stranger.post("/v1/login", &json!({"email": email, "password": password}))
    };
    for _ in 0..2 {
        login("ada@example.com", "wrong")
            .await
            .refused(401, "wrong_credentials");
    }
    // Each further failure doubles the wait.
    for least in [1, 2, 4, 8] {
        let response = login("ADA@example.com", "correct horse!")
            .await
            .refused(429, "rate_limited");
        let wait: u64 = response.header("retry-after").parse().unwrap();
        assert!((1..=least).contains(&wait), "{wait} of {least}");
        app.core().clock.advance(Duration::from_secs(wait));
        login("ada@example.com", "wrong")
            .await
            .refused(401, "wrong_credentials");
    }
    // Others are not concerned, and an unknown account is limited in the same way.
    for _ in 0..2 {
        login("eve@example.com", "x")
            .await
            .refused(401, "wrong_credentials");
    }
    login("eve@example.com", "x")
        .await
        .refused(429, "rate_limited");
    app.core().clock.advance(Duration::from_mins(15));
    login("ada@example.com", "correct horse").await.assert(200);
}

fn few_guesses_per_address() -> Setup {
    Setup::with(|setup| setup.settings.login_failures_per_address = 2)
}

async fn guessing_is_limited_per_address(app: &TestApp) {
    let stranger = app.stranger();
    for name in ["a@example.com", "b@example.com"] {
        let login = json!({"email": name, "password": "x"});
        // A forwarded address from a stranger is ignored.
        let call = stranger
            .post("/v1/login", &login)
            .header("x-forwarded-for", name);
        call.await.refused(401, "wrong_credentials");
    }
    let login = json!({"email": "c@example.com", "password": "x"});
    let call = stranger
        .post("/v1/login", &login)
        .header("x-forwarded-for", "192.0.2.1");
    call.await.refused(429, "rate_limited");
}

async fn tokens_are_made_listed_and_revoked(app: &TestApp) {
    let (ada, bob) = (app.new_account("ada").await, app.new_account("bob").await);
    let made = ada
        .post("/v1/api-token", &json!({"name": "laptop"}))
        .await
        .assert(201);
    assert_eq!(fields(&made.json()), ["_id", "api_token"]);
    assert_id(&made.json()["_id"]);
    let (id, token) = (made.field("/_id"), made.field("/api_token"));
    let user = app.stranger().with_token(&token);
    user.get("/v1/me").await.assert(200);
    user.ai().get("/v1/keys").await.assert(200);
    let list = ada.get("/v1/tokens").await.assert(200).json();
    assert_eq!(column(&list["tokens"], "name"), ["laptop", "test"]);
    let listed = &list["tokens"][0];
    assert_eq!(
        fields(listed),
        [
            "_id",
            "createdAt",
            "expiresAt",
            "lastUsedAt",
            "lastUsedFrom",
            "name",
            "scope"
        ]
    );
    assert_eq!(listed["_id"], id.as_str());
    assert_time(&listed["createdAt"]);
    assert_time(&listed["expiresAt"]);
    app.note_uses().await;
    let list = ada.get("/v1/tokens").await.json();
    assert_time(&list["tokens"][0]["lastUsedAt"]);
    let page = ada.get("/v1/tokens?page=2&count=1").await.json();
    assert_eq!(column(&page["tokens"], "name"), ["test"]);

    let path = format!("/v1/tokens/{id}");
    bob.delete(&path).await.refused(404, "not_found");
    user.get("/v1/me").await.assert(200);
    ada.delete(&path).await.assert_empty(204);
    for api in [Api::Platform, Api::Ai] {
        let path = if api == Api::Ai { "/v1/keys" } else { "/v1/me" };
        user.on(api).get(path).await.refused(401, "unauthenticated");
    }
    ada.delete(&path).await.refused(404, "not_found");
    ada.post("/v1/api-token", &json!({"name": ""}))
        .await
        .refused(400, "invalid")
        .naming("name");
}

async fn tokens_end(app: &TestApp) {
    let ada = app.new_account("ada").await;
    let day = 24 * 3600;
    for (text, seconds) in [
        ("1h", 3600),
        ("1d", day),
        ("7d", 7 * day),
        ("30d", 30 * day),
        ("180d", 180 * day),
        ("1y", 365 * day),
    ] {
        let path = format!("/v1/api-token?expiresIn={text}");
        let made = ada.post_empty(&path).await.assert(201);
        let (id, token) = (made.field("/_id"), made.field("/api_token"));
        assert_lifetime(&token, seconds);
        let list = ada.get("/v1/tokens?count=1").await.json();
        assert_eq!(list["tokens"][0]["_id"], id.as_str());
    }
    let default = ada
        .post_empty("/v1/api-token")
        .await
        .assert(201)
        .field("/api_token");
    assert_lifetime(&default, 30 * day);
    for bad in ["2h", "", "30", "30D", "1000y"] {
        let response = ada
            .post_empty(&format!("/v1/api-token?expiresIn={bad}"))
            .await;
        response.refused(400, "invalid").naming("expiresIn");
    }
    let user = app.stranger().with_token(&default);
    user.get("/v1/me").await.assert(200);
    app.core().clock.advance(Duration::from_hours(30 * 24));
    user.get("/v1/me").await.refused(401, "unauthenticated");
    ada.get("/v1/me").await.assert(200);
}

/// The end is rounded up to a whole second.
fn assert_lifetime(token: &str, seconds: i64) {
    let claims = claims(token);
    let time = |name: &str| claims[name].as_i64().unwrap();
    let lifetime = time("exp") - time("iat");
    assert!((seconds..=seconds + 1).contains(&lifetime), "{lifetime}");
}

fn claims(token: &str) -> Value {
    use base64::Engine;
    let part = token.split('.').nth(1).unwrap();
    let json = base64::engine::general_purpose::URL_SAFE_NO_PAD
        .decode(part)
        .unwrap();
    serde_json::from_slice(&json).unwrap()
}

async fn a_disabled_account_is_locked_out_at_once(app: &TestApp) {
    let ada = app.new_account("ada").await;
    ada.get("/v1/me").await.assert(200);
    let email: Email = ada.email.parse().unwrap();
    accounts::disable_account(app.core(), &email).await.unwrap();
    ada.get("/v1/me").await.refused(401, "unauthenticated");
    ada.ai()
        .get("/v1/keys")
        .await
        .refused(401, "unauthenticated");
}
