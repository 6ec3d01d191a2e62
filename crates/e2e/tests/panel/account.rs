//! Password, second factor, sessions: what a person changes about their own account.

use estrade_testkit::{PanelClient, TestApp, on_both_backends};
use std::time::Duration;

on_both_backends! {
    a_password_is_changed_and_other_browsers_are_signed_out;
    a_sign_in_that_is_old_is_confirmed_first;
    sessions_are_listed_and_ended;
    a_second_factor_is_set_up_asked_for_and_removed;
    a_token_is_shown_once_works_and_is_revoked;
    what_people_type_is_shown_as_text;
}

const PASSWORD: &str = "correct horse battery";

async fn signed_in(app: &TestApp) -> PanelClient {
    let mut ada = app.panel();
    ada.sign_in("ada@example.com", PASSWORD).await;
    ada
}

async fn a_password_is_changed_and_other_browsers_are_signed_out(app: &TestApp) {
    app.new_account_with("ada", PASSWORD).await;
    let (mut ada, mut other) = (signed_in(app).await, signed_in(app).await);
    let differing = [("password", "a new password"), ("repeated", "another one")];
    ada.post("/panel/account/password", &differing)
        .await
        .assert(400);
    let good = [
        ("password", "a new password"),
        ("repeated", "a new password"),
    ];
    ada.post("/panel/account/password", &good).await.assert(303);
    let page = ada.get("/panel/account").await.assert(200).text();
    assert!(
        page.contains("Your password was changed"),
        "the toast is shown"
    );
    let page = ada.get("/panel/account").await.assert(200).text();
    assert!(!page.contains("Your password was changed"), "once");
    other.get("/panel/account").await.assert(303);
    let form = [("email", "ada@example.com"), ("password", PASSWORD)];
    other.send("/panel/sign-in", &form).await.assert(401);
}

async fn a_sign_in_that_is_old_is_confirmed_first(app: &TestApp) {
    app.new_account_with("ada", PASSWORD).await;
    let mut ada = signed_in(app).await;
    ada.get("/panel/account/password").await.assert(200);
    app.core().clock.advance(Duration::from_mins(11));
    let sent = ada.get("/panel/account/password").await.assert(303);
    assert_eq!(
        sent.header("location"),
        "/panel/confirm?next=/panel/account/password"
    );
    let good = [
        ("password", "a new password"),
        ("repeated", "a new password"),
    ];
    let page = ada.post("/panel/account/password", &good).await.assert(401);
    assert!(
        page.text().contains("/panel/confirm?next="),
        "{}",
        page.text()
    );
    let wrong = [
        ("secret", "wrong horse"),
        ("next", "/panel/account/password"),
    ];
    ada.post("/panel/confirm", &wrong).await.assert(401);
    let right = [("secret", PASSWORD), ("next", "/panel/account/password")];
    let back = ada.post("/panel/confirm", &right).await.assert(303);
    assert_eq!(back.header("location"), "/panel/account/password");
    let evil = [("secret", PASSWORD), ("next", "//evil.example")];
    let back = ada.post("/panel/confirm", &evil).await.assert(303);
    assert_eq!(back.header("location"), "/panel");
    ada.post("/panel/account/password", &good).await.assert(303);
}

async fn sessions_are_listed_and_ended(app: &TestApp) {
    app.new_account_with("ada", PASSWORD).await;
    app.new_account_with("eve", PASSWORD).await;
    let (mut ada, mut other, mut third) = (
        signed_in(app).await,
        signed_in(app).await,
        signed_in(app).await,
    );
    let page = ada.get("/panel/sessions").await.assert(200).text();
    // The link to the question and the form of the dialog, of each of the others.
    assert_eq!(page.matches("/end\"").count(), 4, "{page}");
    assert!(page.contains("This browser") && page.contains("127.0.0.1"));
    let end = page
        .split('"')
        .find(|text| text.ends_with("/end"))
        .unwrap()
        .to_owned();
    // Somebody else's session is not found.
    let mut eve = app.panel();
    eve.sign_in("eve@example.com", PASSWORD).await;
    eve.get(&end).await.assert(404);
    eve.post(&end, &[]).await.assert(404);
    let question = ada.get(&end).await.assert(200).text();
    assert!(
        question.contains("Sign out") && question.contains("was last seen at 127.0.0.1"),
        "{question}"
    );
    ada.post(&end, &[]).await.assert(303);
    ada.get(&end).await.assert(404);
    let statuses = [
        other.get("/panel/account").await.status(),
        third.get("/panel/account").await.status(),
    ];
    assert!(
        statuses.contains(&303) && statuses.contains(&200),
        "{statuses:?}"
    );
    ada.post("/panel/sessions/end-others", &[])
        .await
        .assert(303);
    other.get("/panel/account").await.assert(303);
    third.get("/panel/account").await.assert(303);
    ada.get("/panel/account").await.assert(200);
    eve.get("/panel/account").await.assert(200);
}

async fn a_second_factor_is_set_up_asked_for_and_removed(app: &TestApp) {
    app.new_account_with("ada", PASSWORD).await;
    let mut ada = signed_in(app).await;
    let page = ada
        .get("/panel/account/second-factor")
        .await
        .assert(200)
        .text();
    assert!(page.contains("<svg class=\"qr\""));
    let (_, rest) = page.split_once("id=\"factor-secret\">").unwrap();
    let secret = rest.split('<').next().unwrap().to_owned();
    ada.post("/panel/account/second-factor", &[("code", "000000")])
        .await
        .assert(400);
    let code = totp(&secret, app);
    let page = ada
        .post("/panel/account/second-factor", &[("code", &code)])
        .await
        .assert(200)
        .text();
    let codes: Vec<String> = page
        .split("<li>")
        .skip(1)
        .filter_map(|rest| rest.split_once("</li>"))
        .map(|(code, _)| code.to_owned())
        .filter(|code| !code.contains('<'))
        .collect();
    assert!(codes.len() >= 8, "{codes:?}");
    // The password alone does not open the panel any more.
    let mut again = app.panel();
    let form = [
        ("email", "ada@example.com"),
        ("password", PASSWORD),
        ("next", "/panel/tokens"),
    ];
    let page = again.send("/panel/sign-in", &form).await.assert(200);
    assert!(!page.has_header("set-cookie"));
    let text = page.text();
    let (_, rest) = text.split_once("name=\"pending\" value=\"").unwrap();
    let pending = rest.split('"').next().unwrap();
    let wrong = [
        ("pending", pending),
        ("code", "000000"),
        ("next", "/panel/tokens"),
    ];
    again.send("/panel/second-factor", &wrong).await.assert(401);
    let forged = [("pending", "x"), ("code", codes[0].as_str())];
    again
        .send("/panel/second-factor", &forged)
        .await
        .assert(401);
    let right = [
        ("pending", pending),
        ("code", codes[0].as_str()),
        ("next", "/panel/tokens"),
    ];
    let back = again.send("/panel/second-factor", &right).await.assert(303);
    assert_eq!(back.header("location"), "/panel/tokens");
    again.get("/panel/account").await.assert(200);
    // A recovery code is good once.
    app.panel()
        .send("/panel/second-factor", &right)
        .await
        .assert(401);
    let page = ada
        .post("/panel/account/recovery-codes", &[])
        .await
        .assert(200)
        .text();
    assert!(!page.contains(&codes[1]), "new codes");
    ada.post("/panel/account/second-factor/remove", &[])
        .await
        .assert(303);
    let mut again = app.panel();
    again.sign_in("ada@example.com", PASSWORD).await;
}

async fn a_token_is_shown_once_works_and_is_revoked(app: &TestApp) {
    app.new_account_with("ada", PASSWORD).await;
    let mut ada = signed_in(app).await;
    let nameless = [("name", " "), ("lifetime", "30d"), ("scope", "full")];
    ada.post("/panel/tokens/new", &nameless).await.assert(400);
    let form = [
        ("name", "build server"),
        ("lifetime", "30d"),
        ("scope", "full"),
    ];
    let page = ada
        .post("/panel/tokens/new", &form)
        .await
        .assert(200)
        .text();
    let (_, rest) = page.split_once("<code id=\"token\">").unwrap();
    let token = rest.split('<').next().unwrap().to_owned();
    let me = || app.stranger().get("/v1/me").bearer(&token);
    me().await.assert(200);
    let list = ada.get("/panel/tokens").await.assert(200).text();
    assert!(list.contains("build server") && !list.contains(&token));
    let is_revoke = |text: &&str| text.ends_with("/revoke");
    let revoke = list.split('"').find(is_revoke).unwrap().to_owned();
    let question = ada.get(&revoke).await.assert(200).text();
    assert!(question.contains("Revoke build server?"), "{question}");
    app.new_account_with("eve", PASSWORD).await;
    let mut eve = app.panel();
    eve.sign_in("eve@example.com", PASSWORD).await;
    eve.get(&revoke).await.assert(404);
    ada.post(&revoke, &[]).await.assert(303);
    me().await.refused(401, "unauthenticated");
    app.core().clock.advance(Duration::from_mins(11));
    let sent = ada.get("/panel/tokens/new").await.assert(303);
    assert_eq!(
        sent.header("location"),
        "/panel/confirm?next=/panel/tokens/new"
    );
    ada.post("/panel/tokens/new", &form).await.assert(401);
}

async fn what_people_type_is_shown_as_text(app: &TestApp) {
    app.new_account_with("ada", PASSWORD).await;
    let mut ada = signed_in(app).await;
    let hostile = "<img src=x onerror=alert(1)>\"'";
    ada.post("/panel/account", &[("fullname", hostile)])
        .await
        .assert(303);
    for path in ["/panel/account", "/panel/sessions", "/panel/tokens"] {
        let page = ada.get(path).await.assert(200).text();
        assert!(!page.contains("<img"), "{path}");
    }
}

/// The code of an authenticator app now (RFC 6238: HMAC-SHA-1, 30 s, six digits).
fn totp(secret: &str, app: &TestApp) -> String {
    const ALPHABET: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";
    let mut bits = 0u64;
    let (mut count, mut key) = (0, Vec::new());
    for letter in secret.bytes().filter(|letter| *letter != b'=') {
        let value = ALPHABET.iter().position(|known| *known == letter).unwrap();
        bits = (bits << 5) | value as u64;
        count += 5;
        if count >= 8 {
            count -= 8;
            key.push(u8::try_from((bits >> count) & 0xff).unwrap());
        }
    }
    let step = app.core().now().seconds() / 30;
    let key = aws_lc_rs::hmac::Key::new(aws_lc_rs::hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, &key);
    let tag = aws_lc_rs::hmac::sign(&key, &step.to_be_bytes());
    let tag = tag.as_ref();
    let offset = usize::from(tag[19] & 0xf);
    let number = u32::from_be_bytes(tag[offset..offset + 4].try_into().unwrap()) & 0x7fff_ffff;
    format!("{:06}", number % 1_000_000)
}
