//! Rate limits and quotas

use crate::support::{authorize, new_key, new_project};
use estrade_testkit::{Api, Setup, TestApp, User, on_both_backends};
use serde_json::json;

on_both_backends! {
    a_credential_that_asks_too_fast_is_429 with slow;
    an_account_has_one_rate_however_many_tokens with slow_accounts;
    quotas_per_owner_are_403 with small_quotas;
}

fn slow() -> Setup {
    Setup::with(|setup| (setup.requests_per_second, setup.burst) = (1, 4))
}

async fn a_credential_that_asks_too_fast_is_429(app: &TestApp) {
    let (ada, bob) = (app.new_account("ada").await, app.new_account("bob").await);
    let (_, key) = new_key(&ada, "ci-bot").await;
    for (api, path) in [(Api::Platform, "/v1/projects"), (Api::Ai, "/v1/keys")] {
        let user = ada.on(api);
        // One request more is allowed each second, so a slow machine needs some more.
        let mut response = user.get(path).await;
        for _ in 0..100 {
            if response.status() != 200 {
                break;
            }
            response = user.get(path).await;
        }
        let response = response.refused(429, "rate_limited");
        assert_eq!(response.header("retry-after"), "1");
        assert_eq!(response.header("ratelimit-limit"), "4");
        assert_eq!(response.header("ratelimit-remaining"), "0");
        let reset: u64 = response.header("ratelimit-reset").parse().unwrap();
        assert!((1..=4).contains(&reset), "{reset}");
    }
    // Others are not concerned, and what is open to all neither.
    bob.get("/v1/projects").await.assert(200);
    for _ in 0..20 {
        app.stranger().get("/healthz").await.assert(200);
        authorize(&ada, &key).await.assert(200);
        app.stranger()
            .get("/v1/projects")
            .await
            .refused(401, "unauthenticated");
    }
}

fn slow_accounts() -> Setup {
    Setup::with(|setup| {
        (setup.requests_per_second, setup.burst) = (1000, 1000);
        (setup.account_requests_per_second, setup.account_burst) = (1, 12);
    })
}

async fn an_account_has_one_rate_however_many_tokens(app: &TestApp) {
    let (ada, bob) = (app.new_account("ada").await, app.new_account("bob").await);
    let mut users = vec![ada.clone()];
    for _ in 0..5 {
        let made = ada.post_empty("/v1/api-token").await.assert(201);
        users.push(app.stranger().with_token(&made.field("/api_token")));
    }
    let mut limited = 0;
    // One request more is allowed each second, so a slow machine needs some more.
    for round in 0..100 {
        let user = &users[round % users.len()];
        let user = if round % 2 == 0 {
            user.clone()
        } else {
            user.ai()
        };
        let path = if round % 2 == 0 {
            "/v1/projects"
        } else {
            "/v1/keys"
        };
        let response = user.get(path).await;
        if response.status() == 429 {
            assert_eq!(response.header("ratelimit-limit"), "12");
            assert!(!response.header("retry-after").is_empty());
            limited += 1;
        }
    }
    assert!(limited > 50, "{limited}");
    bob.get("/v1/projects").await.assert(200);
}

fn small_quotas() -> Setup {
    Setup::with(|setup| {
        setup.settings.quotas.projects = 2;
        setup.settings.quotas.keys = 2;
        setup.settings.quotas.workspaces = 3;
        setup.settings.quotas.networks = 2;
        setup.settings.quotas.domains = 2;
    })
}

async fn quotas_per_owner_are_403(app: &TestApp) {
    let (ada, bob) = (app.new_account("ada").await, app.new_account("bob").await);
    let team = app.new_team(&ada, "Shop").await;
    for (owner, mark) in [(ada.clone(), "a"), (bob, "b"), (ada.in_team(&team), "t")] {
        for name in ["one", "two"] {
            new_project(&owner, &format!("{name}-{mark}")).await;
            new_key(&owner, name).await;
        }
        let third =
            json!({"name": format!("three-{mark}"), "platform": "static", "planID": "nano"});
        owner
            .post("/v1/projects", &third)
            .await
            .refused(403, "quota")
            .naming("2 projects");
        let key = json!({"name": "three", "workspaces": ["main"]});
        owner
            .ai()
            .post("/v1/keys", &key)
            .await
            .refused(403, "quota")
            .naming("2 keys");
        // What is deleted makes room.
        owner
            .delete(&format!("/v1/projects/one-{mark}"))
            .await
            .assert(200);
        owner.post("/v1/projects", &third).await.assert(200);
        let keys = owner.ai().get("/v1/keys").await.json();
        let path = format!("/v1/keys/{}", keys[0]["_id"].as_str().unwrap());
        owner.ai().delete(&path).await.assert(204);
        // Four workspaces are one too many, and the key is not made either.
        let greedy = json!({"name": "greedy", "workspaces": ["w1", "w2", "w3"]});
        owner
            .ai()
            .post("/v1/keys", &greedy)
            .await
            .refused(403, "quota")
            .naming("3 workspaces");
        let spaces = owner.ai().get("/v1/workspaces").await.json();
        assert_eq!(spaces["workspaces"].as_array().unwrap().len(), 1);
        owner.ai().post("/v1/keys", &key).await.assert(201);
        for name in ["second", "third"] {
            owner
                .ai()
                .post("/v1/workspaces", &json!({"name": name}))
                .await
                .assert(200);
        }
        let response = owner
            .ai()
            .post("/v1/workspaces", &json!({"name": "fourth"}))
            .await;
        response.refused(403, "quota").naming("3 workspaces");
        networks_are_limited(&owner).await;
        domains_are_limited(&owner, mark).await;
    }
}

/// The default network is one of two.
async fn networks_are_limited(owner: &User) {
    let create = |name: &'static str| async move {
        let new = json!({ "name": name });
        owner.post("/v1/networks", &new).await
    };
    let made = create("second").await.assert(200);
    let refused = create("third").await;
    refused.refused(403, "quota").naming("2 networks");
    let listed = owner.get("/v1/networks").await.assert(200).text();
    assert!(!listed.contains("third"), "{listed}");
    let path = format!("/v1/networks/{}", made.field("/network/_id"));
    owner.delete(&path).await.assert(204);
    create("third").await.assert(200);
}

/// Of all projects together.
async fn domains_are_limited(owner: &User, mark: &str) {
    let create = |name: &'static str, project: &'static str| async move {
        let (name, project) = (
            format!("{name}-{mark}.example.com"),
            format!("{project}-{mark}"),
        );
        let new = json!({ "name": name, "project": project });
        owner.post("/v1/domains", &new).await
    };
    let made = create("one", "two").await.assert(201);
    create("two", "three").await.assert(201);
    let refused = create("three", "three").await;
    refused.refused(403, "quota").naming("2 domains");
    let path = format!("/v1/domains/{}", made.field("/domain/_id"));
    owner.delete(&path).await.assert(204);
    create("three", "three").await.assert(201);
}
