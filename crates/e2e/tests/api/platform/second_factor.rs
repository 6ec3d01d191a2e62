//! `/v1/login` of accounts with a second factor, and sessions of the account panel at both APIs

use crate::support::{assert_id, fields};
use estrade_model::secret::Secret;
use estrade_service::ai::workspaces::create_workspace;
use estrade_service::identity::access::scope_of;
use estrade_service::identity::credentials::AccountTokens;
use estrade_service::identity::login::Logins;
use estrade_service::identity::second_factor;
use estrade_service::identity::sessions::{Client, NewSession, Sessions, SignIn};
use estrade_service::{Caller, Origin};
use estrade_testkit::{Api, ApiResponse, Authenticator, Setup, TestApp, on_both_backends};
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;

const PASSWORD: &str = "correct horse";

on_both_backends! {
    a_login_needs_the_code_of_the_second_factor;
    guesses_of_codes_are_limited with few_guesses;
    neither_api_takes_a_session;
    what_a_session_changes_names_it_in_the_audit_log;
    cookies_secrets_and_codes_leave_no_trace;
}

fn few_guesses() -> Setup {
    Setup::with(|setup| setup.settings.login_failures_per_account = 2)
}

/// The account of `ada`, who signs in with a password.
async fn ada(app: &TestApp) -> Caller {
    let ada = app.new_account_with("ada", PASSWORD).await;
    let tokens = AccountTokens::new(app.core());
    tokens
        .authenticate(ada.token(), Origin::default())
        .await
        .unwrap()
}

/// Switches the second factor of an account on: its app and recovery codes.
async fn enroll(app: &TestApp, caller: &Caller) -> (Authenticator, Vec<Secret>, Secret) {
    let core = app.core();
    let begun = second_factor::begin(core, caller).await.unwrap();
    let authenticator = Authenticator::new(begun.secret.expose());
    let passcode = authenticator.code(core.now());
    let codes = second_factor::enable(core, caller, &passcode)
        .await
        .unwrap();
    (authenticator, codes, begun.secret)
}

async fn log_in(app: &TestApp, password: &str, otp: Option<&str>) -> ApiResponse {
    let mut login = json!({"email": "ada@example.com", "password": password});
    if let Some(otp) = otp {
        login["otp"] = otp.into();
    }
    app.stranger().post("/v1/login", &login).await
}

fn client() -> Client {
    Client {
        address: [192, 0, 2, 1].into(),
        user_agent: "Firefox".into(),
    }
}

async fn sign_in(app: &TestApp) -> NewSession {
    let core = app.core();
    let sessions = Sessions::new(core, &Arc::new(Logins::new(core)));
    let password = Secret(PASSWORD.into());
    let response = sessions
        .sign_in("ada@example.com", password, None, &client())
        .await;
    let SignIn::Done(session) = response.unwrap() else {
        panic!("there is no second factor");
    };
    session
}

/// The code of the next half minute: each is taken once.
fn next_code(app: &TestApp, authenticator: &Authenticator) -> String {
    app.core().clock.advance(Duration::from_secs(30));
    authenticator.code(app.core().now())
}

async fn a_login_needs_the_code_of_the_second_factor(app: &TestApp) {
    let caller = ada(app).await;
    // Without one, a code is not looked at.
    log_in(app, PASSWORD, Some("123456")).await.assert(200);
    let (authenticator, codes, _) = enroll(app, &caller).await;
    let missing = log_in(app, PASSWORD, None).await;
    let missing = missing.refused(401, "second_factor_required");
    assert_eq!(missing.header("www-authenticate"), "Bearer");
    log_in(app, "wrong", None)
        .await
        .refused(401, "wrong_credentials");
    let code = next_code(app, &authenticator);
    log_in(app, "wrong", Some(&code))
        .await
        .refused(401, "wrong_credentials");
    for wrong in ["", "abc", "123 45"] {
        log_in(app, PASSWORD, Some(wrong))
            .await
            .refused(401, "wrong_second_factor");
    }
    let response = log_in(app, PASSWORD, Some(&code)).await.assert(200);
    assert_eq!(
        fields(&response.json()),
        ["api_token", "avatar", "email", "fullname"]
    );
    log_in(app, PASSWORD, Some(&code))
        .await
        .refused(401, "wrong_second_factor");
    let recovery = codes[0].expose();
    log_in(app, PASSWORD, Some(recovery)).await.assert(200);
    log_in(app, PASSWORD, Some(recovery))
        .await
        .refused(401, "wrong_second_factor");
    let login = json!({"email": "ada@example.com", "password": PASSWORD, "otp": 123_456});
    let number = app.stranger().post("/v1/login", &login).await;
    number.refused(400, "invalid");
}

async fn guesses_of_codes_are_limited(app: &TestApp) {
    let caller = ada(app).await;
    let (authenticator, ..) = enroll(app, &caller).await;
    let code = next_code(app, &authenticator);
    for _ in 0..2 {
        log_in(app, PASSWORD, Some("not a code"))
            .await
            .refused(401, "wrong_second_factor");
    }
    let limited = log_in(app, PASSWORD, Some(&code)).await;
    let limited = limited.refused(429, "rate_limited");
    let wait: u64 = limited.header("retry-after").parse().unwrap();
    app.core().clock.advance(Duration::from_secs(wait));
    log_in(app, PASSWORD, Some(&code)).await.assert(200);
}

async fn neither_api_takes_a_session(app: &TestApp) {
    ada(app).await;
    let session = sign_in(app).await;
    let cookie = session.secret.expose();
    for api in [Api::Platform, Api::Ai] {
        let path = match api {
            Api::Platform => "/v1/projects",
            Api::Ai => "/v1/keys",
        };
        let stranger = app.stranger().on(api);
        for name in ["session", "estrade_session", "__Host-session", "token"] {
            let sent = format!("{name}={cookie}");
            let response = stranger.get(path).header("cookie", &sent).await;
            response.assert(401);
        }
        stranger.get(path).bearer(cookie).await.assert(401);
        let query = format!("{path}?token={cookie}");
        stranger.get(&query).await.assert(401);
    }
}

async fn what_a_session_changes_names_it_in_the_audit_log(app: &TestApp) {
    let ada = app.new_account_with("ada", PASSWORD).await.ai();
    let made = ada.post("/v1/workspaces", &json!({"name": "by-token"}));
    made.await.assert(200);
    let session = sign_in(app).await;
    let core = app.core();
    let sessions = Sessions::new(core, &Arc::new(Logins::new(core)));
    let signed_in = sessions
        .authenticate(session.secret.expose(), &client())
        .await;
    let scope = scope_of(core, signed_in.unwrap().caller, None).await;
    let name = "by-session".parse().unwrap();
    let made = create_workspace(core, &scope.unwrap(), name).await;
    made.unwrap();
    let log = ada.get("/v1/audit").await.assert(200).json();
    let entries = log["entries"].as_array().unwrap();
    let by = |name: &str| {
        let mut entries = entries.iter();
        let entry = entries.find(|entry| entry["name"] == name).unwrap();
        entry["by"].clone()
    };
    let by_session = by("by-session");
    assert_eq!(by_session["session"], session.id.to_string());
    assert_eq!(by_session["account"], ada.account.as_str());
    assert!(by_session.get("token").is_none());
    let by_token = by("by-token");
    assert_id(&by_token["token"]);
    assert!(by_token.get("session").is_none());
}

async fn cookies_secrets_and_codes_leave_no_trace(app: &TestApp) {
    let caller = ada(app).await;
    let session = sign_in(app).await;
    let cookie = session.secret.expose();
    let (id, secret) = cookie.split_once('.').unwrap();
    let stranger = app.stranger();
    stranger.get("/v1/me").bearer(cookie).await.assert(401);
    stranger
        .get("/v1/me")
        .header("cookie", &format!("estrade_session={cookie}"))
        .await
        .assert(401);
    assert!(app.holds(id).await, "the search finds nothing");
    assert!(!app.holds(secret).await);
    let (authenticator, codes, base32) = enroll(app, &caller).await;
    log_in(app, PASSWORD, Some(&next_code(app, &authenticator)))
        .await
        .assert(200);
    log_in(app, PASSWORD, Some(codes[0].expose()))
        .await
        .assert(200);
    assert!(!app.holds(base32.expose()).await);
    for code in &codes {
        assert!(!app.holds(code.expose()).await);
        assert!(!app.holds(&code.expose().replace('-', "")).await);
    }
}
