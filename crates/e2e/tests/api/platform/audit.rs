//! `/v1/audit`

use crate::support::{column, deploy, deploy_site, hold, new_key, new_project, site};
use estrade_testkit::{Call, TestApp, User, eventually, on_both_backends};
use serde_json::{Value, json};

on_both_backends! {
    what_happens_to_a_project_is_noted;
    variables_that_stay_the_same_are_not_noted;
    a_team_has_a_log_of_its_own;
    an_account_has_a_log_of_its_own;
    refused_sign_ins_are_noted_and_bounded;
    filters_and_pages;
    a_refused_change_leaves_no_entry;
}

/// The entries of a log, oldest first.
async fn log(user: &User, query: &str) -> Vec<Value> {
    let path = format!("/v1/audit?{query}");
    let log = user.platform().get(&path).await.assert(200).json();
    let mut entries = log["entries"].as_array().unwrap().clone();
    entries.reverse();
    entries
}

/// Demands that a change was made.
async fn done(call: Call) {
    let response = call.await;
    assert_eq!(response.status() / 100, 2, "{}", response.describe());
}

fn actions(entries: &[Value]) -> Vec<String> {
    column(&json!(entries), "action")
}

/// What entries are about and what they say more.
fn details(entries: &[Value]) -> Vec<(&str, &str)> {
    entries
        .iter()
        .map(|entry| {
            (
                entry["name"].as_str().unwrap(),
                entry["detail"].as_str().unwrap_or_default(),
            )
        })
        .collect()
}

async fn what_happens_to_a_project_is_noted(app: &TestApp) {
    let ada = app.new_account("ada").await;
    let project = new_project(&ada, "shop").await;
    let first = deploy_site(&ada, "shop").await;
    deploy_site(&ada, "shop").await;
    done(ada.post_empty(&format!("/v1/releases/{first}/rollback"))).await;
    eventually("the rollback is live", || async {
        let list = ada.get("/v1/projects/shop/releases").await.json();
        list["releases"][0]["state"] == "READY"
    })
    .await;
    let held = deploy(&ada, "shop", &site()).await;
    hold(app, &held).await;
    done(ada.post_empty(&format!("/v2/releases/{held}/cancel"))).await;
    let envs = json!({"project": "shop", "variables": [
        {"key": "PASSWORD", "value": "s3cret-of-ada"}, {"key": "MODE", "value": "fast"},
    ]});
    done(
        ada.post("/v1/projects/update-envs", &envs)
            .header("x-request-id", "who-did-it"),
    )
    .await;
    let envs = json!({"project": "shop", "variables": [
        {"key": "PASSWORD", "value": "s3cret-of-ada"}, {"key": "MODE", "value": "slow"},
    ]});
    done(ada.post("/v1/projects/update-envs", &envs)).await;
    let disk = json!({"name": "media", "size": 1});
    done(ada.post("/v1/projects/shop/disks", &disk)).await;
    done(ada.delete("/v1/projects/shop/disks/media")).await;
    let domain = json!({"project": "shop", "name": "shop.example.com"});
    let domain = ada.post("/v1/domains", &domain).await.assert(201);
    let domain = domain.field("/domain/_id");
    done(ada.delete(&format!("/v1/domains/{domain}"))).await;
    done(ada.post("/v1/projects/shop/actions/scale", &json!({"scale": 0}))).await;
    done(ada.post("/v1/projects/shop/resize", &json!({"planID": "micro"}))).await;
    done(ada.post_empty("/v1/projects/shop/default-subdomain/disable")).await;
    done(ada.delete("/v1/projects/shop")).await;
    let entries = log(&ada, &format!("subject={project}")).await;
    assert_eq!(
        actions(&entries),
        [
            "project.create",
            "release.create",
            "release.create",
            "release.rollback",
            "release.create",
            "release.cancel",
            "env.update",
            "env.update",
            "disk.create",
            "disk.delete",
            "domain.create",
            "domain.delete",
            "project.scale",
            "project.plan",
            "project.switch",
            "project.delete",
        ]
    );
    assert!(entries.iter().all(|entry| entry["name"] == "shop"));
    let detail = |at: usize| entries[at]["detail"].as_str().unwrap_or_default();
    assert_eq!(detail(2), "v2");
    assert_eq!(detail(3), "v3, back to v1");
    assert_eq!((detail(4), detail(5)), ("v4", "v4"));
    assert_eq!((detail(8), detail(9)), ("media 1 GB", "media"));
    assert_eq!(detail(10), "shop.example.com");
    assert_eq!((detail(12), detail(13)), ("0", "micro"));
    assert_eq!(detail(14), "default_subdomain off");
    // Names of variables, of those that changed; never values.
    assert_eq!(entries[6]["fields"], json!(["MODE", "PASSWORD"]));
    assert_eq!(entries[6]["requestID"], "who-did-it");
    assert_eq!(entries[7]["fields"], json!(["MODE"]));
    assert!(!json!(entries).to_string().contains("s3cret"));
    let by = &entries[0]["by"];
    assert_eq!(by["account"], ada.account.as_str());
    assert_eq!(by["email"], "ada@example.com");
    assert_eq!(entries[0]["address"], "127.0.0.1");
    // The AI API shows what is its own.
    let of_ai = ada.ai().get("/v1/audit").await.assert(200).json();
    assert_eq!(of_ai, json!({"entries": []}));
}

async fn variables_that_stay_the_same_are_not_noted(app: &TestApp) {
    let ada = app.new_account("ada").await;
    let project = new_project(&ada, "shop").await;
    let envs = json!({"project": "shop", "variables": [{"key": "MODE", "value": "fast"}]});
    for _ in 0..2 {
        done(ada.post("/v1/projects/update-envs", &envs)).await;
    }
    deploy_site(&ada, "shop").await;
    // It makes a release again, and that is what it did.
    done(ada.post("/v1/projects/update-envs", &envs)).await;
    let entries = log(&ada, &format!("subject={project}")).await;
    let expected = [
        "project.create",
        "env.update",
        "release.create",
        "release.create",
    ];
    assert_eq!(actions(&entries), expected);
    assert_eq!(entries[3]["detail"], "v2");
    assert_eq!(entries[3]["fields"], json!([]));
}

async fn a_team_has_a_log_of_its_own(app: &TestApp) {
    let ada = app.new_account("ada").await;
    let team = app.new_team(&ada, "Shop").await;
    let bob = app.new_account("bob").await;
    app.join(&team, &ada, &bob, "developer").await;
    let members = format!("/v2/teams/{team}/members/{}", bob.account);
    ada.post(&format!("{members}/role"), &json!({"role": "viewer"}))
        .await
        .assert(200);
    done(ada.delete(&members)).await;
    let in_team = ada.clone().in_team(&team);
    let made = in_team
        .post("/v1/networks", &json!({"name": "inside"}))
        .await
        .assert(200);
    let network = made.field("/network/_id");
    done(in_team.delete(&format!("/v1/networks/{network}"))).await;
    let entries = log(&in_team, "").await;
    assert_eq!(
        actions(&entries),
        [
            "team.create",
            "invitation.create",
            "member.join",
            "member.role",
            "member.remove",
            "network.create",
            "network.delete",
        ]
    );
    assert_eq!(
        details(&entries)[..5],
        [
            ("Shop", ""),
            ("bob@example.com", "developer"),
            ("bob@example.com", "developer"),
            ("bob@example.com", "developer → viewer"),
            ("bob@example.com", "viewer"),
        ]
    );
    assert_eq!(entries[2]["by"]["email"], "bob@example.com");
    assert_eq!(entries[3]["by"]["email"], "ada@example.com");
    // Nothing of it is in the log of a person, and strangers and developers read nothing.
    assert_eq!(log(&bob, "action=member").await.len(), 0);
    let bob_in_team = bob.clone().in_team(&team);
    let refused = bob_in_team.get("/v1/audit").await;
    refused.refused(403, "no_permission");
    app.join(&team, &ada, &bob, "developer").await;
    let refused = bob_in_team.get("/v1/audit").await;
    refused.refused(403, "no_permission");
    done(ada.delete(&format!("/v2/teams/{team}"))).await;
    let own = log(&ada, "action=team").await;
    assert_eq!(details(&own), [("Shop", "")]);
    assert_eq!(actions(&own), ["team.delete"]);
}

async fn an_account_has_a_log_of_its_own(app: &TestApp) {
    let ada = app.new_account_with("ada", "correct horse").await;
    let login = json!({"email": "ada@example.com", "password": "correct horse"});
    let signed_in = ada.post("/v1/login", &login).await.assert(200);
    let session = signed_in.field("/api_token");
    let made = ada
        .post("/v1/api-token", &json!({"name": "laptop"}))
        .bearer(&session)
        .await
        .assert(201);
    let token = made.field("/_id");
    done(ada.delete(&format!("/v1/tokens/{token}"))).await;
    let entries = log(&ada, "").await;
    assert_eq!(
        actions(&entries),
        [
            "account.create",
            "token.create",
            "session.sign_in",
            "token.create",
            "token.revoke"
        ]
    );
    // The command line of the server made the account and its first token.
    assert_eq!(entries[0]["by"]["account"], Value::Null);
    assert_eq!(entries[1]["by"]["account"], Value::Null);
    assert_eq!(entries[2]["by"]["account"], ada.account.as_str());
    assert_eq!(entries[2]["by"]["token"], Value::Null);
    assert_eq!(entries[2]["address"], "127.0.0.1");
    // The session that was signed in made the next one.
    assert_eq!(entries[3]["by"]["token"], entries[2]["subject"]);
    assert_eq!(entries[3]["name"], "laptop");
    assert_eq!(entries[4]["subject"], entries[3]["subject"]);
    assert_eq!(entries[4]["name"], "laptop");
}

async fn refused_sign_ins_are_noted_and_bounded(app: &TestApp) {
    let ada = app.new_account_with("ada", "correct horse").await;
    let other = app.new_account("other").await;
    for attempt in 0..13 {
        let wrong = json!({"email": "Ada@example.com", "password": format!("wrong {attempt}")});
        let refused = ada.post("/v1/login", &wrong).await;
        assert!([401, 429].contains(&refused.status()));
    }
    let nobody = json!({"email": "nobody@example.com", "password": "wrong horse"});
    ada.post("/v1/login", &nobody).await.assert(401);
    app.note_uses().await;
    let refused = log(&ada, "action=session.refuse").await;
    assert!((5..=10).contains(&refused.len()), "{}", refused.len());
    assert_eq!(refused[0]["address"], "127.0.0.1");
    assert_eq!(refused[0]["subject"], ada.account.as_str());
    assert!(!json!(refused).to_string().contains("wrong"));
    assert_eq!(log(&other, "action=session").await.len(), 0);
}

async fn filters_and_pages(app: &TestApp) {
    let ada = app.new_account("ada").await;
    let shop = new_project(&ada, "shop").await;
    new_project(&ada, "blog").await;
    new_key(&ada, "ci-bot").await;
    assert_eq!(
        actions(&log(&ada, "action=project").await),
        ["project.create", "project.create"]
    );
    assert_eq!(
        actions(&log(&ada, "action=key.create").await),
        ["key.create"]
    );
    assert_eq!(log(&ada, "action=project.delete").await.len(), 0);
    let of_shop = log(&ada, &format!("subject={shop}&action=project")).await;
    assert_eq!(of_shop.len(), 1);
    assert_eq!(of_shop[0]["name"], "shop");
    let query = format!("account={}&action=project", ada.account);
    assert_eq!(log(&ada, &query).await.len(), 2);
    let nobody = "account=0123456789abcdef01234567";
    assert_eq!(log(&ada, nobody).await.len(), 0);
    assert_eq!(log(&ada, "to=2020-01-01T00:00:00Z").await.len(), 0);
    let all = log(&ada, "from=2020-01-01T00:00:00Z").await;
    assert_eq!(all, log(&ada, "").await);
    assert_eq!(all.len(), 6);
    let mut paged = Vec::new();
    for page in 1..=3 {
        let mut of_page = log(&ada, &format!("count=2&page={page}")).await;
        of_page.extend(paged);
        paged = of_page;
    }
    assert_eq!(paged, all);
    let of_ai = ada.ai().get("/v1/audit?count=1&page=2").await.json();
    assert_eq!(column(&of_ai["entries"], "action"), ["key.create"]);
    let stranger = app.new_account("eve").await;
    assert_eq!(log(&stranger, &format!("subject={shop}")).await.len(), 0);
}

async fn a_refused_change_leaves_no_entry(app: &TestApp) {
    let ada = app.new_account("ada").await;
    new_project(&ada, "shop").await;
    let before = log(&ada, "").await;
    let again = json!({"name": "shop", "platform": "static", "planID": "nano"});
    ada.post("/v1/projects", &again)
        .await
        .refused(409, "project_exists");
    ada.delete("/v1/projects/shop")
        .header("if-match", "\"999\"")
        .await
        .assert(412);
    let release = json!({"type": "static", "port": 80});
    let refused = ada.post("/v2/projects/shop/releases", &release).await;
    assert_eq!(refused.status() / 100, 4);
    ada.post("/v1/projects/shop/resize", &json!({"planID": "gold"}))
        .await
        .assert(400);
    assert_eq!(log(&ada, "").await, before);
}
