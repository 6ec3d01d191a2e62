//! What happens to people who mean well.

use super::{PAGE, PASSWORD, begin, begin_on_laptop, listed, signed_in};
use estrade_testkit::{Api, Setup, TestApp, on_both_backends};
use serde_json::json;
use std::time::Duration;

on_both_backends! {
    a_login_is_approved_at_the_panel_and_gives_one_token;
    a_stranger_signs_in_first_and_comes_back_to_the_code;
    a_denied_login_gets_nothing;
    a_login_ends_after_ten_minutes;
    polling_too_fast_is_told_to_slow_down;
    of_two_polls_at_once_one_gets_the_token;
    the_token_has_the_scope_that_was_shown;
    the_address_is_the_configured_one with behind_a_name;
}

async fn a_login_is_approved_at_the_panel_and_gives_one_token(app: &TestApp) {
    let mut ada = signed_in(app, "ada").await;
    let answer = app
        .stranger()
        .post("/v1/device/code", &json!({"host": "laptop"}))
        .await
        .assert(200);
    assert_eq!(answer.header("cache-control"), "no-store");
    let begun = answer.json();
    let page = format!("http://{}{PAGE}", app.address(Api::Platform));
    let code = begun["user_code"].as_str().unwrap();
    assert_eq!(begun["verification_uri"], page);
    assert_eq!(
        begun["verification_uri_complete"],
        format!("{page}?code={code}")
    );
    assert_eq!(
        (&begun["expires_in"], &begun["interval"]),
        (&600.into(), &5.into())
    );
    let device_code = begun["device_code"].as_str().unwrap();
    let poll = || {
        let body = json!({"device_code": device_code});
        app.stranger().post("/v1/device/token", &body)
    };
    poll().await.refused(400, "authorization_pending");

    // A link fills the code in and does nothing else.
    let shown = ada.get(&format!("{PAGE}?code={code}")).await.assert(200);
    assert!(shown.text().contains(&format!("value=\"{code}\"")));
    let typed = code.to_lowercase().replace('-', " ");
    let shown = ada.post(PAGE, &[("code", &typed)]).await.assert(200).text();
    for part in [code, "laptop", "127.0.0.1", "Everything", "ada@example.com"] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    assert!(shown.contains("Only approve what you started yourself"));
    app.core().clock.advance(Duration::from_secs(5));
    poll().await.refused(400, "authorization_pending");

    app.core().clock.advance(Duration::from_secs(5));
    let approve = [("code", code), ("answer", "approve")];
    let sent = ada.post(PAGE, &approve).await.assert(303);
    assert_eq!(sent.header("location"), "/panel/tokens");
    assert_eq!(listed(&mut ada).await, 0, "the poll makes it");
    let made = poll().await.assert(200);
    assert_eq!(made.header("cache-control"), "no-store");
    let made = made.json();
    assert_eq!(
        (&made["email"], &made["scope"]),
        (&"ada@example.com".into(), &"full".into())
    );
    let (id, token) = (
        made["_id"].as_str().unwrap(),
        made["api_token"].as_str().unwrap(),
    );
    let holder = app.stranger().with_token(token);
    for api in [Api::Platform, Api::Ai] {
        let path = if api == Api::Ai { "/v1/keys" } else { "/v1/me" };
        holder.on(api).get(path).await.assert(200);
    }
    let tokens = holder.get("/v1/tokens").await.assert(200).json();
    let tokens = tokens["tokens"].as_array().unwrap().clone();
    let mine = tokens.iter().find(|token| token["_id"] == id).unwrap();
    assert_eq!(mine["name"], "estrade login on laptop");
    assert_eq!(mine["expiresAt"], made["expiresAt"]);

    // The code is used up, for both sides.
    poll().await.refused(400, "expired_token");
    let again = ada.post(PAGE, &approve).await.assert(400);
    assert!(again.text().contains("No login waits for this code"));
    assert_eq!(listed(&mut ada).await, 1);
    let log = holder.get("/v1/audit").await.assert(200).text();
    for action in ["token.approve", "token.create"] {
        assert!(log.contains(&format!("\"{action}\"")), "{action}: {log}");
    }
    let entries: serde_json::Value = serde_json::from_str(&log).unwrap();
    let entries = entries["entries"].as_array().unwrap();
    let entry = |action: &str| entries.iter().find(|entry| entry["action"] == action);
    let approval = entry("token.approve").unwrap()["subject"].as_str();
    let made = format!("login {}", approval.unwrap());
    assert_eq!(entry("token.create").unwrap()["detail"], made.as_str());
    let revoke = format!("/panel/tokens/{id}/revoke");
    ada.post(&revoke, &[]).await.assert(303);
    holder.get("/v1/me").await.refused(401, "unauthenticated");
    assert!(!app.holds(device_code).await, "codes are hashed");
    assert!(!app.holds(code).await, "codes are hashed");
}

async fn a_stranger_signs_in_first_and_comes_back_to_the_code(app: &TestApp) {
    app.new_account_with("ada", PASSWORD).await;
    let mut ada = app.panel();
    let link = format!("{PAGE}?code=WDJB-MJHT");
    let sent = ada.get(&link).await.assert(303);
    let sign_in = "/panel/sign-in?next=/panel/device%3Fcode%3DWDJB-MJHT";
    assert_eq!(sent.header("location"), sign_in);
    let form = [
        ("email", "ada@example.com"),
        ("password", PASSWORD),
        ("next", &link),
    ];
    let back = ada.send("/panel/sign-in", &form).await.assert(303);
    assert_eq!(back.header("location"), link);
    ada.get(&link).await.assert(200);
}

async fn a_denied_login_gets_nothing(app: &TestApp) {
    let user = app.new_account_with("ada", PASSWORD).await;
    let mut ada = app.panel();
    ada.sign_in("ada@example.com", PASSWORD).await;
    let begun = begin_on_laptop(app).await;
    begun.answer(&mut ada, "deny").await.assert(303);
    for _ in 0..2 {
        begun.poll(app).await.refused(400, "access_denied");
    }
    begun.answer(&mut ada, "approve").await.assert(400);
    begun.poll(app).await.refused(400, "access_denied");
    assert_eq!(listed(&mut ada).await, 0);
    let log = user.get("/v1/audit").await.assert(200).text();
    assert!(
        log.contains("\"token.deny\"") && !log.contains("\"token.approve\""),
        "{log}"
    );
}

async fn a_login_ends_after_ten_minutes(app: &TestApp) {
    let mut ada = signed_in(app, "ada").await;
    let (waiting, approved) = (begin_on_laptop(app).await, begin_on_laptop(app).await);
    app.core().clock.advance(Duration::from_secs(9 * 60 + 50));
    approved.answer(&mut ada, "approve").await.assert(303);
    app.core().clock.advance(Duration::from_secs(10));
    let mut ada = app.panel();
    ada.sign_in("ada@example.com", PASSWORD).await;
    for begun in [waiting, approved] {
        begun.poll(app).await.refused(400, "expired_token");
        begun.answer(&mut ada, "approve").await.assert(400);
    }
    assert_eq!(listed(&mut ada).await, 0);
}

async fn polling_too_fast_is_told_to_slow_down(app: &TestApp) {
    let mut ada = signed_in(app, "ada").await;
    let begun = begin_on_laptop(app).await;
    begun.poll(app).await.refused(400, "authorization_pending");
    for _ in 0..3 {
        begun.poll(app).await.refused(400, "slow_down");
    }
    app.core().clock.advance(Duration::from_secs(5));
    begun.poll(app).await.refused(400, "authorization_pending");
    begun.answer(&mut ada, "approve").await.assert(303);
    begun.poll(app).await.refused(400, "slow_down");
    app.core().clock.advance(Duration::from_secs(5));
    begun.poll(app).await.assert(200);
}

async fn of_two_polls_at_once_one_gets_the_token(app: &TestApp) {
    let mut ada = signed_in(app, "ada").await;
    for _ in 0..5 {
        let begun = begin_on_laptop(app).await;
        begun.answer(&mut ada, "approve").await.assert(303);
        let before = listed(&mut ada).await;
        let polls = futures_util::future::join_all((0..8).map(|_| begun.poll(app))).await;
        let made = polls.iter().filter(|poll| poll.status() == 200).count();
        assert_eq!(made, 1);
        for poll in polls.into_iter().filter(|poll| poll.status() != 200) {
            poll.refused(400, "expired_token");
        }
        assert_eq!(listed(&mut ada).await, before + 1);
    }
}

async fn the_token_has_the_scope_that_was_shown(app: &TestApp) {
    let mut ada = signed_in(app, "ada").await;
    for (scope, shown) in [
        ("read", "Looks, but changes nothing"),
        ("ai", "Keys, workspaces"),
    ] {
        let begun = begin(app, json!({"scope": scope})).await;
        let page = begun.answer(&mut ada, "").await.assert(200).text();
        assert!(page.contains(shown) && page.contains("not named"), "{page}");
        begun.answer(&mut ada, "approve").await.assert(303);
        let made = begun.poll(app).await.assert(200);
        assert_eq!(made.field("/scope"), scope);
        let holder = app.stranger().with_token(&made.field("/api_token"));
        let refused = holder.post("/v1/api-token", &json!({})).await;
        refused.refused(403, "insufficient_scope");
    }
    // A project that the person does not see is not given away, and not told apart from one that there is not.
    let eve = app.new_account("eve").await;
    let new = json!({"name": "shop", "platform": "static", "planID": "nano"});
    let made = eve.post("/v1/projects", &new).await.assert(200);
    let theirs = made.field("/project/_id");
    for id in [theirs.as_str(), "0123456789abcdef01234567"] {
        let begun = begin(app, json!({"scope": format!("project:{id}")})).await;
        for answer in ["", "approve"] {
            let page = begun.answer(&mut ada, answer).await.assert(400).text();
            assert!(
                page.contains("You have no project of this _id")
                    || page.contains("you have no project"),
                "{page}"
            );
        }
        begun.poll(app).await.refused(400, "authorization_pending");
    }
    for bad in [
        json!({"scope": "everything"}),
        json!({"scope": 1}),
        json!([]),
    ] {
        let answer = app.stranger().post("/v1/device/code", &bad).await;
        answer.assert(400);
    }
}

fn behind_a_name() -> Setup {
    Setup::with(|setup| {
        setup.settings.platform_public_url = Some("https://cloud.example.com".into());
    })
}

async fn the_address_is_the_configured_one(app: &TestApp) {
    let begun = app
        .stranger()
        .post_empty("/v1/device/code")
        .await
        .assert(200);
    let page = format!("https://cloud.example.com{PAGE}");
    assert_eq!(begun.field("/verification_uri"), page);
    assert!(begun.field("/verification_uri_complete").starts_with(&page));
}
