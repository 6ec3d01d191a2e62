//! What tokens of each scope may do: every operation of both documents with a token of every scope, so that a new
//! one cannot be forgotten. `table` says which scopes each is open to.

mod table;

use crate::rules::isolation::cases::{Case, OwnerFixture, Target, Try, case};
use crate::rules::isolation::{assert_alike, send};
use crate::rules::{Operation, operations};
use crate::support::{deploy_site, new_project, site};
use estrade_testkit::{Api, ApiResponse, TestApp, User, on_both_backends};
use serde_json::{Value, json};
use std::time::Duration;
use table::{Rule, rule};

on_both_backends! {
    every_operation_of_an_account_asks_for_its_scope;
    every_operation_of_a_team_asks_for_its_scope;
    a_token_for_one_project_sees_no_other;
    administration_needs_a_full_token;
    a_token_has_a_scope_and_tells_where_it_was_used;
    a_restricted_token_revokes_only_itself;
    a_token_that_reads_sees_no_secrets;
    a_stored_response_belongs_to_its_token;
}

/// A stream that is open never ends by itself.
const STREAM_TIMEOUT: Duration = Duration::from_millis(500);

/// A new token of an account, of this scope.
async fn restricted(account: &User, scope: &str) -> String {
    let new = json!({"name": "restricted", "scope": scope});
    let made = account.post("/v1/api-token", &new).await.assert(201);
    made.field("/api_token")
}

async fn every_operation_of_an_account_asks_for_its_scope(app: &TestApp) {
    let ada = app.new_account("ada").await;
    let fixture = OwnerFixture::new(app, &ada, &ada).await;
    try_every_scope(&fixture, &ada, &ada).await;
}

async fn every_operation_of_a_team_asks_for_its_scope(app: &TestApp) {
    let ada = app.new_account("ada").await;
    let team = app.new_team(&ada, "Owner").await;
    let owner = ada.in_team(&team);
    let fixture = OwnerFixture::new(app, &ada, &owner).await;
    try_every_scope(&fixture, &ada, &owner).await;
}

/// Tries every operation with a token of every scope: first what is refused, which changes nothing, then what only
/// reads, then the rest, deletions last.
async fn try_every_scope(fixture: &OwnerFixture, account: &User, owner: &User) {
    let project = format!("project:{}", fixture.project);
    let mut users = Vec::new();
    for (kind, scope) in [
        ("read", "read"),
        ("project", project.as_str()),
        ("ai", "ai"),
    ] {
        users.push((kind, owner.with_token(&restricted(account, scope).await)));
    }
    let before = fixture.snapshot().await;
    for operation in operations() {
        for (kind, user) in &users {
            try_refused(fixture, &operation, kind, user).await;
        }
        assert_eq!(fixture.snapshot().await, before, "{}", operation.name());
    }
    let mut allowed = operations();
    allowed.sort_by_key(order);
    for operation in &allowed {
        for (kind, user) in &users {
            if is_open(operation, kind) {
                try_allowed(fixture, operation, user).await;
            }
        }
    }
    // The token that made those is good for everything.
    for operation in &allowed {
        if let Rule::OpenTo(_) = rule(operation) {
            let response = attempt(owner, operation, &target(fixture, operation)).await;
            let code = response.map(|response| code(&response));
            assert_ne!(code.as_deref(), Some("insufficient_scope"), "{operation:?}");
        }
    }
}

fn is_open(operation: &Operation, kind: &str) -> bool {
    matches!(rule(operation), Rule::OpenTo(scopes) if scopes.contains(&kind))
}

/// Reads, then what changes things, then what deletes them, and containers last.
fn order(operation: &Operation) -> (u8, usize) {
    let class = match operation.method.as_str() {
        "GET" => 0,
        "DELETE" => 2,
        _ => 1,
    };
    let depth = operation.path.split('/').count();
    // A key goes before the workspace that it uses.
    let depth = depth + usize::from(operation.path.starts_with("/v1/keys"));
    (class, usize::MAX - depth)
}

/// How its owner would send an operation.
fn target(fixture: &OwnerFixture, operation: &Operation) -> Target {
    match case(fixture, operation, 7) {
        Case::Own(path, body) => (path, body),
        Case::Theirs(mut tries) => tries.swap_remove(0).theirs,
        Case::Public | Case::ForKeys | Case::ForBoth => (fixture.fill(&operation.path), None),
    }
}

/// The response, or none: a stream has begun.
async fn attempt(user: &User, operation: &Operation, target: &Target) -> Option<ApiResponse> {
    let sent = send(user, operation, &target.0, target.1.as_ref());
    if !operation.path.ends_with("/stream") {
        return Some(sent.await);
    }
    tokio::time::timeout(STREAM_TIMEOUT, sent).await.ok()
}

fn code(response: &ApiResponse) -> String {
    if response.has_header("x-error-code") {
        return response.header("x-error-code").to_owned();
    }
    let body: Value = serde_json::from_slice(response.body()).unwrap_or_default();
    body["data"]["code"].as_str().unwrap_or_default().to_owned()
}

async fn try_refused(fixture: &OwnerFixture, operation: &Operation, kind: &str, user: &User) {
    let scopes = match rule(operation) {
        Rule::Public => return,
        Rule::KeysOnly => {
            let response = attempt(user, operation, &target(fixture, operation)).await;
            assert_eq!(response.expect("a response").status(), 401, "{operation:?}");
            return;
        }
        Rule::OpenTo(scopes) if scopes.contains(&kind) => return,
        Rule::OpenTo(scopes) => scopes,
    };
    let response = attempt(user, operation, &target(fixture, operation)).await;
    let response = response.unwrap_or_else(|| panic!("{kind} opened a stream: {operation:?}"));
    let mut response = response.refused(403, "insufficient_scope").naming("full");
    for scope in scopes {
        response = response.naming(scope);
    }
    response.naming(&format!("has the scope {kind}"));
}

async fn try_allowed(fixture: &OwnerFixture, operation: &Operation, user: &User) {
    let Some(response) = attempt(user, operation, &target(fixture, operation)).await else {
        return;
    };
    // There is no call to read.
    if operation.path.contains("{callID}") {
        response.refused(404, "not_found").naming("the call");
        return;
    }
    let refusals = [401, 403, 404];
    assert!(
        !refusals.contains(&response.status()),
        "{}",
        response.describe()
    );
    assert!(response.status() < 500, "{}", response.describe());
    let reads = is_open(operation, "read");
    assert!(!reads || response.status() < 300, "{}", response.describe());
}

async fn a_token_for_one_project_sees_no_other(app: &TestApp) {
    let ada = app.new_account("ada").await;
    let fixture = OwnerFixture::new(app, &ada, &ada).await;
    let own = new_project(&ada, "own-project").await;
    deploy_site(&ada, "own-project").await;
    let domain = json!({"name": "own.example", "project": own});
    ada.post("/v1/domains", &domain).await.assert(201);
    let scope = format!("project:{own}");
    let user = ada.with_token(&restricted(&ada, &scope).await);
    let before = fixture.snapshot().await;
    for operation in operations() {
        if !is_open(&operation, "project") {
            continue;
        }
        match case(&fixture, &operation, 0) {
            Case::Theirs(tries) => {
                for Try { theirs, nobodys } in tries {
                    let seen = send(&user, &operation, &theirs.0, theirs.1.as_ref()).await;
                    let unseen = send(&user, &operation, &nobodys.0, nobodys.1.as_ref()).await;
                    assert_alike(&operation.name(), &seen, &unseen);
                    assert_eq!(seen.status(), 404, "{}", seen.describe());
                }
            }
            Case::Own(path, body) => {
                let response = send(&user, &operation, &path, body.as_ref()).await;
                let text = response.assert(200).text();
                assert!(!text.contains("secret-"), "{text}");
            }
            Case::Public | Case::ForKeys | Case::ForBoth => panic!("{operation:?}"),
        }
    }
    assert_eq!(fixture.snapshot().await, before);
    let listed = user.get("/v1/projects").await.assert(200).json();
    assert_eq!(listed["projects"].as_array().unwrap().len(), 1);
    assert_eq!(listed["projects"][0]["_id"], own.as_str());
    let listed = user.get("/v1/domains").await.assert(200).json();
    assert_eq!(
        (&listed["total"], listed["domains"][0]["name"].as_str()),
        (&json!(1), Some("own.example"))
    );
    // Naming a team does not widen it.
    let team = user.in_team(&fixture.team);
    let listed = team.get("/v1/projects").await.assert(200).json();
    assert_eq!(listed["projects"], json!([]));
    deploy_site(&user, "own-project").await;
    user.delete("/v1/projects/own-project").await.assert(200);
    let listed = user.get("/v1/projects").await.assert(200).json();
    assert_eq!(listed["projects"], json!([]));
}

async fn administration_needs_a_full_token(app: &TestApp) {
    let root = app.admin().await;
    root.ai().get("/v1/providers").await.assert(200);
    for scope in ["read", "ai"] {
        let user = root.with_token(&restricted(&root, scope).await);
        for operation in operations() {
            if operation.path.starts_with("/v1/providers") {
                let path = operation.path.replace("{id}", "0123456789abcdef01234567");
                let new = json!({"name": "mine", "baseURL": "http://127.0.0.1:9/v1"});
                let body = (operation.method != "GET").then_some(new);
                let response = send(&user, &operation, &path, body.as_ref()).await;
                response.refused(403, "insufficient_scope");
            }
        }
    }
}

async fn a_token_has_a_scope_and_tells_where_it_was_used(app: &TestApp) {
    let ada = app.new_account("ada").await;
    let eve = app.new_account("eve").await;
    let own = new_project(&ada, "shop").await;
    let foreign = new_project(&eve, "theirs").await;
    let scope = format!("project:{own}");
    for scope in ["full", "read", "ai", scope.as_str()] {
        let user = ada.with_token(&restricted(&ada, scope).await);
        let me = user.get("/v1/me").await.assert(200).json();
        assert_eq!(me["scope"], scope);
        let listed = ada
            .get("/v1/tokens?count=1&page=1")
            .await
            .assert(200)
            .json();
        assert_eq!(listed["tokens"][0]["scope"], scope);
    }
    assert_eq!(ada.get("/v1/me").await.assert(200).json()["scope"], "full");
    let made = ada.post("/v1/api-token", &json!({})).await.assert(201);
    let user = ada.with_token(&made.field("/api_token"));
    assert_eq!(user.get("/v1/me").await.assert(200).json()["scope"], "full");
    app.note_uses().await;
    let listed = ada
        .get("/v1/tokens?count=1&page=1")
        .await
        .assert(200)
        .json();
    assert_eq!(listed["tokens"][0]["lastUsedFrom"], "127.0.0.1");

    for bad in [
        json!("write"),
        json!(""),
        json!("project:shop"),
        json!(7),
        json!(["read"]),
    ] {
        let response = ada.post("/v1/api-token", &json!({"scope": bad})).await;
        response.refused(400, "invalid").naming("scope");
    }
    for unknown in [foreign.as_str(), "0123456789abcdef01234567"] {
        let scope = format!("project:{unknown}");
        let response = ada.post("/v1/api-token", &json!({"scope": scope})).await;
        response.refused(400, "project_unknown").naming("scope");
    }
}

async fn a_restricted_token_revokes_only_itself(app: &TestApp) {
    let ada = app.new_account("ada").await;
    let own = new_project(&ada, "shop").await;
    let project = format!("project:{own}");
    for scope in ["read", "ai", project.as_str()] {
        let new = json!({"scope": scope});
        let made = ada.post("/v1/api-token", &new).await.assert(201);
        let other = ada.post("/v1/api-token", &new).await.assert(201);
        let user = ada.with_token(&made.field("/api_token"));
        let revoke = |id: String| user.delete(&format!("/v1/tokens/{id}"));
        let response = revoke(other.field("/_id")).await;
        response.refused(403, "insufficient_scope").naming("full");
        let response = user.post("/v1/api-token", &new).await;
        response.refused(403, "insufficient_scope").naming("full");
        revoke(made.field("/_id")).await.assert(204);
        user.get("/v1/me").await.refused(401, "unauthenticated");
    }
}

async fn a_token_that_reads_sees_no_secrets(app: &TestApp) {
    let ada = app.new_account("ada").await;
    let own = new_project(&ada, "shop").await;
    deploy_site(&ada, "shop").await;
    let envs = json!({"project": own, "variables": [{"key": "PASSWORD", "value": "hunter2"}]});
    ada.post("/v1/projects/update-envs", &envs)
        .await
        .assert(201);
    let reader = ada.with_token(&restricted(&ada, "read").await);
    let deployer = ada.with_token(&restricted(&ada, &format!("project:{own}")).await);
    let value = async |user: &User| {
        let project = user.get("/v1/projects/shop").await.assert(200);
        (
            project.field("/project/envs/0/value"),
            project.header("etag").to_owned(),
        )
    };
    let (masked, etag) = value(&reader).await;
    assert_eq!(masked, "***");
    assert_eq!(value(&deployer).await.0, "hunter2");
    // What was read masked is not taken for what is not, nor the other way round.
    let again = deployer.get("/v1/projects/shop");
    again.header("if-none-match", &etag).await.assert(200);
    // One method, two operations: without a body it lists.
    let path = "/v2/projects/shop/releases";
    reader.get(path).await.assert(200);
    let response = reader.get(path).json(&site()).await;
    response.refused(403, "insufficient_scope");
    deployer.get(path).json(&site()).await.assert(200);
}

async fn a_stored_response_belongs_to_its_token(app: &TestApp) {
    let ada = app.new_account("ada").await;
    let make = |user: &User| {
        let new = json!({"name": "ci-bot", "workspaces": ["main"]});
        let call = user.on(Api::Ai).post("/v1/keys", &new);
        call.header("idempotency-key", "once")
    };
    make(&ada).await.assert(201);
    let again = make(&ada).await.assert(201);
    assert_eq!(again.header("idempotency-replayed"), "true");
    let reader = ada.with_token(&restricted(&ada, "read").await);
    let response = make(&reader).await.refused(403, "insufficient_scope");
    assert!(!response.has_header("idempotency-replayed"));
}
