//! Tenants cannot read, change, delete or detect each other's things: every operation of both
//! documents, so that a new one cannot be forgotten. `cases` says how each is tried.

pub(crate) mod cases;

use crate::rules::routes::{Operation, operations};
use cases::{Case, OwnerFixture, Try, case};
use estrade_testkit::{Api, ApiResponse, Call, TestApp, User, on_both_backends};
use http::HeaderMap;
use serde_json::Value;

on_both_backends! {
    things_of_an_account_are_invisible_to_others;
    things_of_a_team_are_invisible_to_others;
    without_a_credential_every_operation_is_401;
    a_key_opens_no_management_operation;
}

async fn things_of_an_account_are_invisible_to_others(app: &TestApp) {
    let ada = app.new_account("ada").await;
    let fixture = OwnerFixture::new(app, &ada, &ada).await;
    intrude(app, &fixture).await;
}

async fn things_of_a_team_are_invisible_to_others(app: &TestApp) {
    let ada = app.new_account("ada").await;
    let team = app.new_team(&ada, "Owner").await;
    let fixture = OwnerFixture::new(app, &ada, &ada.in_team(&team)).await;
    intrude(app, &fixture).await;
}

/// Tries every operation as somebody else: alone, in a team of their own, and naming the owner's team.
async fn intrude(app: &TestApp, fixture: &OwnerFixture) {
    let eve = app.new_account("eve").await;
    let own_team = app.new_team(&eve, "Intruders").await;
    let intruders = [
        eve.clone(),
        eve.in_team(&own_team),
        eve.in_team(&fixture.team),
    ];
    let before = fixture.snapshot().await;
    for operation in operations() {
        let name = operation.name();
        for (number, eve) in intruders.iter().enumerate() {
            match case(fixture, &operation, number) {
                Case::Public | Case::ForKeys | Case::ForBoth => {}
                Case::Own(path, body) => {
                    let response = send(eve, &operation, &path, body.as_ref()).await;
                    // Naming a team of others is refused where a team can be named.
                    let fine = response.status() < 300 || (number == 2 && response.status() == 403);
                    assert!(fine, "{}", response.describe());
                    fixture.assert_hidden(&response);
                }
                Case::Theirs(tries) => {
                    for Try { theirs, nobodys } in tries {
                        let seen = send(eve, &operation, &theirs.0, theirs.1.as_ref()).await;
                        let unseen = send(eve, &operation, &nobodys.0, nobodys.1.as_ref()).await;
                        assert_alike(&name, &seen, &unseen);
                        fixture.assert_hidden(&seen);
                    }
                }
            }
        }
        assert_eq!(fixture.snapshot().await, before, "{name} changed something");
    }
}

pub(crate) async fn send(
    user: &User,
    operation: &Operation,
    path: &str,
    body: Option<&Value>,
) -> ApiResponse {
    request(user, operation, path, body).await
}

fn request(user: &User, operation: &Operation, path: &str, body: Option<&Value>) -> Call {
    let call = user.on(operation.api).call(operation.method.clone(), path);
    match body {
        Some(body) => call.json(body),
        None => call,
    }
}

/// Demands that nothing but the request id tells two answers apart.
pub(crate) fn assert_alike(name: &str, seen: &ApiResponse, unseen: &ApiResponse) {
    let told = |response: &ApiResponse| {
        let mut headers: HeaderMap = response.headers().clone();
        headers.remove("x-request-id");
        headers.remove("date");
        (response.status(), headers, response.text())
    };
    assert_eq!(told(seen), told(unseen), "{name}");
    // An error, or the one response that says nothing: a key that is not known.
    let silent = seen.status() >= 400 || seen.text() == r#"{"valid":false,"code":"unknown"}"#;
    assert!(silent, "{name}: {}", seen.describe());
}

async fn without_a_credential_every_operation_is_401(app: &TestApp) {
    let ada = app.new_account("ada").await;
    let fixture = OwnerFixture::new(app, &ada, &ada).await;
    let stranger = app.stranger();
    let mut public = Vec::new();
    for operation in operations() {
        if operation.is_public() {
            public.push(operation.name());
            continue;
        }
        let path = fixture.fill(&operation.path);
        let call = || {
            stranger
                .on(operation.api)
                .call(operation.method.clone(), &path)
        };
        for call in [
            call(),
            call().json(&serde_json::json!({})),
            call().bytes("{ not json"),
            call().header("content-type", "text/plain").bytes("x"),
            call().header("x-teamid", "nonsense"),
            call().header("idempotency-key", "k"),
            call().header("idempotency-key", "a b").bytes("x"),
            call().header("authorization", "Bearer x.y.z"),
            call().header("if-match", "x"),
        ] {
            let response = call.await;
            assert_eq!(response.status(), 401, "{}", response.describe());
            assert_eq!(response.header("www-authenticate"), "Bearer");
            if operation.api == Api::Platform {
                response.refused(401, "unauthenticated");
            } else {
                response.assert_empty(401);
            }
        }
    }
    public.sort();
    assert_eq!(
        public,
        [
            "GET /.well-known/estrade.json",
            "GET /.well-known/jwks.json",
            "GET /healthz",
            "GET /healthz",
            "GET /readyz",
            "GET /readyz",
            "POST /v1/device/code",
            "POST /v1/device/token",
            "POST /v1/login",
            "POST /v1/login/check-if-exists",
        ],
        "a public route is a decision: is this one in the contract?"
    );
}

async fn a_key_opens_no_management_operation(app: &TestApp) {
    let ada = app.new_account("ada").await;
    let fixture = OwnerFixture::new(app, &ada, &ada).await;
    let holder = app.stranger().with_token(&fixture.key_token);
    let before = fixture.snapshot().await;
    for operation in operations() {
        let path = fixture.fill(&operation.path);
        let response = match case(&fixture, &operation, 0) {
            Case::Public => continue,
            Case::ForBoth => {
                for user in [&holder, &ada] {
                    let user = user.on(operation.api);
                    user.call(operation.method.clone(), &path).await.assert(200);
                }
                continue;
            }
            // And the other way round: an account token is no key.
            Case::ForKeys => {
                holder
                    .on(operation.api)
                    .call(operation.method.clone(), &path)
                    .await
                    .assert(200);
                ada.on(operation.api)
                    .call(operation.method.clone(), &path)
                    .await
            }
            Case::Own(_, body) => request(&holder, &operation, &path, body.as_ref()).await,
            Case::Theirs(tries) => {
                let (path, body) = &tries[0].theirs;
                request(&holder, &operation, path, body.as_ref()).await
            }
        };
        assert_eq!(response.status(), 401, "{}", response.describe());
    }
    assert_eq!(fixture.snapshot().await, before);
}
