//! What people try who mean no good, and what an approval rests on.

use super::{Begun, PAGE, PASSWORD, begin, begin_on_laptop, listed, signed_in};
use estrade_model::token_scope::TokenScope;
use estrade_service::gc::rows::sweep;
use estrade_service::identity::access::{Caller, Credential, Origin};
use estrade_service::identity::accounts;
use estrade_service::identity::device_login::approval;
use estrade_testkit::{Setup, TestApp, on_both_backends};
use serde_json::json;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

on_both_backends! {
    wrong_codes_are_limited;
    nobody_fills_the_table;
    pages_begin_no_logins;
    an_old_sign_in_approves_nothing;
    forms_of_others_approve_nothing;
    no_token_approves_a_login;
    a_disabled_account_gets_nothing;
    an_account_that_comes_back_has_approved_nothing;
    a_new_password_takes_approvals_back;
    an_approval_can_be_taken_back;
    an_approval_waits_for_two_minutes;
    a_session_that_was_ended_gets_nothing;
    a_full_account_is_told_before_it_approves with one_token;
    a_client_is_shown_as_text;
    what_is_no_device_code_is_one_that_has_ended;
}

async fn wrong_codes_are_limited(app: &TestApp) {
    let (mut eve, mut ada) = (signed_in(app, "eve").await, signed_in(app, "ada").await);
    let begun = begin_on_laptop(app).await;
    // What cannot be a code is no guess, and neither is the right one.
    for _ in 0..20 {
        let typed = eve.post(PAGE, &[("code", "hello")]).await.assert(400);
        assert!(typed.text().contains("No login waits for this code"));
        begun.answer(&mut eve, "").await.assert(200);
    }
    let (mut wrong, mut allowed) = (0, None);
    let mut answers = ["", "approve", "deny"].iter().cycle();
    while wrong < 16 {
        let form = [("code", "BBBB-BBBB"), ("answer", answers.next().unwrap())];
        match eve.post(PAGE, &form).await.status() {
            400 => wrong += 1,
            429 => {
                allowed.get_or_insert(wrong);
                app.core().clock.advance(Duration::from_secs(2));
            }
            other => panic!("{other}"),
        }
    }
    // On a slow machine the first wait of a second passes by itself.
    assert!(
        allowed.is_some_and(|allowed| (10..13).contains(&allowed)),
        "{allowed:?}"
    );
    // The right one has to wait as well, in another session too; nobody else has.
    begun.answer(&mut eve, "").await.assert(429);
    let mut again = app.panel();
    again.sign_in("eve@example.com", PASSWORD).await;
    begun.answer(&mut again, "approve").await.assert(429);
    begun.answer(&mut ada, "approve").await.assert(303);
    begun.poll(app).await.assert(200);
}

async fn nobody_fills_the_table(app: &TestApp) {
    for _ in 0..20 {
        begin_on_laptop(app).await;
    }
    let start = || app.stranger().post("/v1/device/code", &json!({}));
    let refused = start().await.refused(429, "rate_limited");
    assert_eq!(refused.header("retry-after"), "60");
    let body = json!({"host": "x".repeat(5000)});
    app.stranger()
        .post("/v1/device/code", &body)
        .await
        .refused(413, "too_large");
    app.core().clock.advance(Duration::from_mins(10));
    sweep(app.core(), &CancellationToken::new()).await;
    start().await.assert(200);
}

/// Any page could have the browsers of its visitors do it.
async fn pages_begin_no_logins(app: &TestApp) {
    let begun = begin_on_laptop(app).await;
    let poll = json!({"device_code": begun.device_code});
    for (path, body) in [("/v1/device/code", json!({})), ("/v1/device/token", poll)] {
        for (name, value) in [
            ("origin", "https://evil.example"),
            ("origin", "null"),
            ("sec-fetch-site", "cross-site"),
            ("sec-fetch-site", "same-origin"),
        ] {
            let call = app.stranger().post(path, &body).header(name, value);
            call.await.refused(403, "sent_by_page");
        }
    }
    for _ in 0..19 {
        begin_on_laptop(app).await;
    }
}

async fn an_old_sign_in_approves_nothing(app: &TestApp) {
    let mut ada = signed_in(app, "ada").await;
    app.core().clock.advance(Duration::from_mins(11));
    let begun = begin_on_laptop(app).await;
    let link = format!("{PAGE}?code={}", begun.user_code);
    let sent = ada.get(&link).await.assert(303);
    let confirm = format!(
        "/panel/confirm?next=/panel/device%3Fcode%3D{}",
        begun.user_code
    );
    assert_eq!(sent.header("location"), confirm);
    for answer in ["", "approve"] {
        begun.answer(&mut ada, answer).await.assert(401);
    }
    begun.poll(app).await.refused(400, "authorization_pending");
    app.core().clock.advance(Duration::from_secs(5));
    let form = [("secret", PASSWORD), ("next", &link)];
    let back = ada.post("/panel/confirm", &form).await.assert(303);
    assert_eq!(back.header("location"), link);
    begun.answer(&mut ada, "approve").await.assert(303);
    begun.poll(app).await.assert(200);
}

async fn forms_of_others_approve_nothing(app: &TestApp) {
    let mut ada = signed_in(app, "ada").await;
    let begun = begin_on_laptop(app).await;
    let code = begun.user_code.as_str();
    // Without the token of the session, by GET, and from another site.
    ada.send(PAGE, &[("code", code), ("answer", "approve")])
        .await
        .assert(403);
    ada.get(&format!("{PAGE}?code={code}&answer=approve"))
        .await
        .assert(200);
    let csrf = ada.csrf().await;
    let call = app.stranger().call(http::Method::POST, PAGE);
    call.header("cookie", &ada.cookie_header())
        .header("content-type", "application/x-www-form-urlencoded")
        .header("origin", "https://evil.example")
        .bytes(format!("csrf={csrf}&code={code}&answer=approve"))
        .await
        .assert(403);
    begun.answer(&mut ada, "maybe").await.assert(400);
    begun.poll(app).await.refused(400, "authorization_pending");
}

async fn no_token_approves_a_login(app: &TestApp) {
    let ada = app.new_account("ada").await;
    let begun = begin_on_laptop(app).await;
    for grant in ["full", "read", "ai"] {
        let new = json!({"scope": grant});
        let made = ada.post("/v1/api-token", &new).await.assert(201);
        let caller = Caller {
            account: ada.account.parse().unwrap(),
            credential: Credential::Token(made.field("/_id").parse().unwrap()),
            email: ada.email.clone(),
            fullname: ada.fullname.clone(),
            admin: false,
            grant: grant.parse::<TokenScope>().unwrap(),
            authenticated_at: None,
            origin: Origin::default(),
        };
        let (core, typed) = (app.core(), begun.user_code.as_str());
        let answers = [
            approval::find_login(core, &caller, typed).await.map(drop),
            approval::approve(core, &caller, typed).await,
            approval::deny(core, &caller, typed).await,
        ];
        for answer in answers {
            let error = answer.unwrap_err();
            let expected = if grant == "full" {
                "no_permission"
            } else {
                "insufficient_scope"
            };
            assert_eq!(error.code(), expected, "{grant}");
        }
        // To begin one gives a token nothing, and takes nothing from it.
        let holder = ada.with_token(&made.field("/api_token"));
        let begun = holder.post("/v1/device/code", &json!({})).await.assert(200);
        let body = json!({"device_code": begun.field("/device_code")});
        let poll = holder.post("/v1/device/token", &body).await;
        poll.refused(400, "authorization_pending");
    }
    begun.poll(app).await.refused(400, "authorization_pending");
}

async fn a_disabled_account_gets_nothing(app: &TestApp) {
    let mut ada = signed_in(app, "ada").await;
    let begun = begin_on_laptop(app).await;
    begun.answer(&mut ada, "approve").await.assert(303);
    let email = "ada@example.com".parse().unwrap();
    let core = app.core();
    accounts::disable_account(core, &email).await.unwrap();
    begun.poll(app).await.refused(400, "access_denied");
}

async fn an_account_that_comes_back_has_approved_nothing(app: &TestApp) {
    let mut ada = signed_in(app, "ada").await;
    let begun = begin_on_laptop(app).await;
    begun.answer(&mut ada, "approve").await.assert(303);
    let (core, email) = (app.core(), "ada@example.com".parse().unwrap());
    accounts::disable_account(core, &email).await.unwrap();
    accounts::enable_account(core, &email).await.unwrap();
    begun.poll(app).await.refused(400, "access_denied");
    assert_eq!(listed(&mut ada).await, 0);
}

/// The session that changes it is the one that approved, and stays.
async fn a_new_password_takes_approvals_back(app: &TestApp) {
    let mut ada = signed_in(app, "ada").await;
    let paths = ["/panel/account/password", "/panel/sessions/end-others"];
    for path in paths {
        let begun = begin_on_laptop(app).await;
        begun.answer(&mut ada, "approve").await.assert(303);
        let form = [("password", PASSWORD), ("repeated", PASSWORD)];
        ada.post(path, &form).await.assert(303);
        begun.poll(app).await.refused(400, "access_denied");
        assert_eq!(listed(&mut ada).await, 0, "{path}");
    }
}

async fn an_approval_can_be_taken_back(app: &TestApp) {
    let (mut ada, mut eve) = (signed_in(app, "ada").await, signed_in(app, "eve").await);
    let begun = begin_on_laptop(app).await;
    begun.answer(&mut ada, "approve").await.assert(303);
    for answer in ["", "approve", "deny"] {
        begun.answer(&mut eve, answer).await.assert(400);
    }
    let page = begun.answer(&mut ada, "").await.assert(200).text();
    assert!(
        page.contains("You have approved this login") && !page.contains("value=\"approve\""),
        "{page}"
    );
    begun.answer(&mut ada, "approve").await.assert(400);
    begun.answer(&mut ada, "deny").await.assert(303);
    begun.poll(app).await.refused(400, "access_denied");
    begun.answer(&mut ada, "approve").await.assert(400);
    assert_eq!(listed(&mut ada).await, 0);
}

async fn an_approval_waits_for_two_minutes(app: &TestApp) {
    let mut ada = signed_in(app, "ada").await;
    for (wait, status) in [(115, 200), (121, 400)] {
        let begun = begin_on_laptop(app).await;
        begun.answer(&mut ada, "approve").await.assert(303);
        app.core().clock.advance(Duration::from_secs(wait));
        begun.poll(app).await.assert(status);
    }
}

async fn a_session_that_was_ended_gets_nothing(app: &TestApp) {
    let mut ada = signed_in(app, "ada").await;
    let begun = begin_on_laptop(app).await;
    begun.answer(&mut ada, "approve").await.assert(303);
    ada.post("/panel/sign-out", &[]).await.assert(303);
    begun.poll(app).await.refused(400, "access_denied");
    ada.sign_in("ada@example.com", PASSWORD).await;
    assert_eq!(listed(&mut ada).await, 0);
    let log = ada.get("/panel/audit").await.assert(200).text();
    assert!(
        log.contains("the session that approved it has ended"),
        "{log}"
    );
}

fn one_token() -> Setup {
    Setup::with(|setup| setup.settings.quotas.tokens = 3)
}

async fn a_full_account_is_told_before_it_approves(app: &TestApp) {
    let user = app.new_account_with("ada", PASSWORD).await;
    let mut ada = app.panel();
    ada.sign_in("ada@example.com", PASSWORD).await;
    let approved = begin_on_laptop(app).await;
    approved.answer(&mut ada, "approve").await.assert(303);
    let mut statuses = Vec::new();
    for _ in 0..3 {
        let made = user.post("/v1/api-token", &json!({})).await;
        statuses.push(made.status());
    }
    assert_eq!(statuses[2], 403, "{statuses:?}");
    let begun = begin_on_laptop(app).await;
    let page = begun.answer(&mut ada, "approve").await.assert(403).text();
    assert!(page.contains("The limit of 3 tokens is reached"), "{page}");
    // One that was approved before waits for room.
    approved.poll(app).await.refused(403, "quota");
    let tokens = user.get("/v1/tokens").await.json();
    let id = tokens["tokens"][0]["_id"].as_str().unwrap().to_owned();
    user.delete(&format!("/v1/tokens/{id}")).await.assert(204);
    approved.poll(app).await.refused(400, "slow_down");
    app.core().clock.advance(Duration::from_secs(5));
    approved.poll(app).await.assert(200);
}

async fn a_client_is_shown_as_text(app: &TestApp) {
    let mut ada = signed_in(app, "ada").await;
    let hostile = "<img src=x onerror=alert(1)>\"'\u{202e}\u{1b}[2J";
    let answer = app
        .stranger()
        .post("/v1/device/code", &json!({"host": hostile}))
        .header("user-agent", "<script>alert(1)</script>")
        .await
        .assert(200);
    let begun = Begun {
        device_code: answer.field("/device_code"),
        user_code: answer.field("/user_code"),
    };
    let page = begun.answer(&mut ada, "").await.assert(200).text();
    assert!(
        !page.contains("<img") && !page.contains("<script>alert"),
        "{page}"
    );
    assert!(page.contains("imgsrcxonerroralert12J"), "{page}");
    begun.answer(&mut ada, "approve").await.assert(303);
    begun.poll(app).await.assert(200);
    for path in ["/panel/tokens", "/panel/audit"] {
        let page = ada.get(path).await.assert(200).text();
        assert!(
            !page.contains("<img") && !page.contains('\u{202e}'),
            "{path}"
        );
    }
    let typed = "\"><script>alert(1)</script>";
    let page = ada.post(PAGE, &[("code", typed)]).await.assert(400).text();
    assert!(!page.contains("<script>alert"), "{page}");
    // A machine without a name is none of the page's business.
    let nameless = begin(app, json!({"host": ""})).await;
    nameless.answer(&mut ada, "approve").await.assert(303);
    nameless.poll(app).await.assert(200);
}

async fn what_is_no_device_code_is_one_that_has_ended(app: &TestApp) {
    let begun = begin_on_laptop(app).await;
    for code in [
        String::new(),
        "x".repeat(43),
        "x".repeat(3000),
        begun.user_code.clone(),
        begun.device_code.to_lowercase(),
        format!("{} ", begun.device_code),
    ] {
        let body = json!({"device_code": code});
        let answer = app.stranger().post("/v1/device/token", &body).await;
        answer.refused(400, "expired_token");
    }
    let stranger = app.stranger();
    for bad in [
        json!({}),
        json!({"device_code": 1}),
        json!({"device_code": null}),
    ] {
        let answer = stranger.post("/v1/device/token", &bad).await;
        answer.refused(400, "invalid");
    }
}
