//! Signing in and out, cookies, and the way back.

use estrade_service::identity::accounts;
use estrade_service::identity::reset_links::{self, LinkKind};
use estrade_testkit::{Setup, TestApp, on_both_backends};
use std::time::Duration;

on_both_backends! {
    signing_in_sets_a_cookie_and_signing_out_ends_it;
    under_tls_the_cookie_is_secure_and_bound_to_the_host with under_tls;
    next_leads_into_the_panel_only;
    an_idle_session_ends_and_comes_back_to_the_same_page;
    two_cookies_of_the_name_are_none;
    a_reset_link_sets_a_password_once;
    a_reset_link_that_is_used_twice_at_once_sets_one_password;
    guessing_is_slowed_down;
}

const PASSWORD: &str = "correct horse battery";

fn under_tls() -> Setup {
    Setup::with(|setup| setup.settings.public_url = "https://panel.example.com".into())
}

async fn signing_in_sets_a_cookie_and_signing_out_ends_it(app: &TestApp) {
    app.new_account_with("ada", PASSWORD).await;
    let mut ada = app.panel();
    let wrong = [("email", "ada@example.com"), ("password", "wrong horse")];
    let page = ada.send("/panel/sign-in", &wrong).await.assert(401);
    assert!(page.text().contains("role=\"alert\"") && page.text().contains("ada@example.com"));
    assert!(!page.has_header("set-cookie") && !page.text().contains("wrong horse"));
    let right = [("email", "ada@example.com"), ("password", PASSWORD)];
    let response = ada.send("/panel/sign-in", &right).await.assert(303);
    let cookie = response.header("set-cookie");
    assert!(cookie.starts_with("estrade_session="), "{cookie}");
    assert!(
        cookie.ends_with("; Path=/; HttpOnly; SameSite=Lax; Max-Age=2592000"),
        "{cookie}"
    );
    ada.get("/panel/account").await.assert(200);
    let before = ada.clone();
    let response = ada.post("/panel/sign-out", &[]).await.assert(303);
    assert_eq!(response.header("location"), "/panel/sign-in");
    assert!(!ada.cookies().contains_key("estrade_session"));
    // Not only the cookie is gone.
    let mut again = before;
    again.get("/panel/account").await.assert(303);
}

async fn under_tls_the_cookie_is_secure_and_bound_to_the_host(app: &TestApp) {
    app.new_account_with("ada", PASSWORD).await;
    let ada = app.stranger().call(http::Method::POST, "/panel/sign-in");
    let ada = ada.header(
        "origin",
        &format!("https://{}", app.address(estrade_testkit::Api::Platform)),
    );
    let ada = ada.header("content-type", "application/x-www-form-urlencoded");
    let body = format!(
        "email=ada%40example.com&password={}",
        PASSWORD.replace(' ', "+")
    );
    let response = ada.bytes(body).await.assert(303);
    let cookie = response.header("set-cookie").to_owned();
    assert!(cookie.starts_with("__Host-estrade_session="), "{cookie}");
    assert!(
        cookie.contains("; Path=/; HttpOnly; SameSite=Lax; Secure"),
        "{cookie}"
    );
    assert!(!cookie.to_lowercase().contains("domain"), "{cookie}");
    assert_eq!(
        response.header("strict-transport-security"),
        "max-age=31536000"
    );
    let (pair, _) = cookie.split_once(';').unwrap();
    let (_, value) = pair.split_once('=').unwrap();
    let get = |cookie: String| {
        app.stranger()
            .get("/panel/account")
            .header("cookie", &cookie)
    };
    get(pair.to_owned()).await.assert(200);
    // The name without the prefix, which a sibling site could set, does not count.
    get(format!("estrade_session={value}")).await.assert(303);
    // Nor does a page without TLS count as ours.
    let plain = app.stranger().call(http::Method::POST, "/panel/sign-in");
    let plain = plain.header(
        "origin",
        &format!("http://{}", app.address(estrade_testkit::Api::Platform)),
    );
    plain
        .header("content-type", "application/x-www-form-urlencoded")
        .bytes("email=a&password=b")
        .await
        .assert(403);
}

async fn next_leads_into_the_panel_only(app: &TestApp) {
    app.new_account_with("ada", PASSWORD).await;
    for (next, leads_to) in [
        ("/panel/keys?team=1", "/panel/keys?team=1"),
        ("//evil.example", "/panel"),
        ("/panel//evil.example", "/panel"),
        ("/\\evil.example", "/panel"),
        ("/panel\\@evil.example", "/panel"),
        ("https://evil.example/panel", "/panel"),
        ("/panel.evil.example", "/panel"),
        ("javascript:alert(1)", "/panel"),
        ("/panel/\r\nset-cookie: a=b", "/panel"),
        ("/panel/\t/evil.example", "/panel"),
        ("", "/panel"),
    ] {
        let mut ada = app.panel();
        let form = [
            ("email", "ada@example.com"),
            ("password", PASSWORD),
            ("next", next),
        ];
        let response = ada.send("/panel/sign-in", &form).await.assert(303);
        assert_eq!(response.header("location"), leads_to, "{next:?}");
        let shown = app
            .panel()
            .get("/panel/sign-in?next=%2F%2Fevil.example")
            .await
            .text();
        assert!(!shown.contains("evil.example"));
    }
}

async fn an_idle_session_ends_and_comes_back_to_the_same_page(app: &TestApp) {
    app.new_account_with("ada", PASSWORD).await;
    let mut ada = app.panel();
    ada.sign_in("ada@example.com", PASSWORD).await;
    ada.get("/panel/sessions").await.assert(200);
    app.core().clock.advance(Duration::from_hours(13));
    let sent = ada.get("/panel/sessions?before=").await.assert(303);
    let sign_in = sent.header("location").to_owned();
    assert_eq!(sign_in, "/panel/sign-in?next=/panel/sessions%3Fbefore%3D");
    let page = ada.get(&sign_in).await.assert(200).text();
    assert!(page.contains("value=\"/panel/sessions?before=\""), "{page}");
    let form = [
        ("email", "ada@example.com"),
        ("password", PASSWORD),
        ("next", "/panel/sessions?before="),
    ];
    let back = ada.send("/panel/sign-in", &form).await.assert(303);
    assert_eq!(back.header("location"), "/panel/sessions?before=");
    ada.get("/panel/sessions?before=").await.assert(200);
}

async fn two_cookies_of_the_name_are_none(app: &TestApp) {
    app.new_account_with("ada", PASSWORD).await;
    let mut ada = app.panel();
    ada.sign_in("ada@example.com", PASSWORD).await;
    let cookie = ada.cookie_header();
    for cookies in [
        format!("{cookie}; estrade_session=x"),
        format!("estrade_session=x; {cookie}"),
        format!("{cookie}; {cookie}"),
    ] {
        app.stranger()
            .get("/panel/account")
            .header("cookie", &cookies)
            .await
            .assert(303);
    }
    app.stranger()
        .get("/panel/account")
        .header("cookie", &cookie)
        .await
        .assert(200);
}

async fn a_reset_link_sets_a_password_once(app: &TestApp) {
    let program = app.new_account_with("ada", PASSWORD).await;
    let mut old = app.panel();
    old.sign_in("ada@example.com", PASSWORD).await;
    let path = reset_link(app, "ada@example.com").await;
    let mut ada = app.panel();
    // Looking does not use it up.
    for _ in 0..2 {
        let page = ada.get(&path).await.assert(200).text();
        assert!(page.contains("ada@example.com"));
        assert!(page.contains("ends every API token"), "{page}");
    }
    program.get("/v1/me").await.assert(200);
    let differing = [
        ("password", "a new password"),
        ("repeated", "another password"),
    ];
    ada.send(&path, &differing).await.assert(400);
    let short = [("password", "short"), ("repeated", "short")];
    ada.send(&path, &short).await.assert(400);
    let good = [
        ("password", "a new password"),
        ("repeated", "a new password"),
    ];
    ada.send(&path, &good).await.assert(303);
    ada.get("/panel/account").await.assert(200);
    old.get("/panel/account").await.assert(303);
    program.get("/v1/me").await.assert(401);
    let mut other = app.panel();
    let third = [
        ("password", "a third password"),
        ("repeated", "a third password"),
    ];
    let used = other.send(&path, &third).await.assert(404).text();
    assert!(used.contains("This link has ended"), "{used}");
    let used = other.get(&path).await.assert(404).text();
    assert!(used.contains("This link has ended"), "{used}");
    other.get("/panel/welcome/nonsense").await.assert(404);
    ada.get("/panel/account").await.assert(200);
    assert_eq!(enter(app, "a third password").await, 401);
    assert_eq!(enter(app, "a new password").await, 303);
}

/// Both requests find the link good, because a password takes its time to hash; one of them uses it up.
async fn a_reset_link_that_is_used_twice_at_once_sets_one_password(app: &TestApp) {
    app.new_account_with("ada", PASSWORD).await;
    let passwords = ["the first password", "the second password"];
    let form = |password| [("password", password), ("repeated", password)];
    for _ in 0..3 {
        let path = reset_link(app, "ada@example.com").await;
        let (mut one, mut other) = (app.panel(), app.panel());
        let (first, second) = (form(passwords[0]), form(passwords[1]));
        let (one, other) = tokio::join!(one.send(&path, &first), other.send(&path, &second));
        let (won, lost, refused) = match one.status() {
            303 => (passwords[0], passwords[1], other),
            _ => (passwords[1], passwords[0], one),
        };
        let page = refused.assert(404).text();
        assert!(page.contains("This link has ended"), "{page}");
        assert_eq!(enter(app, won).await, 303);
        assert_eq!(enter(app, lost).await, 401);
    }
}

/// The status of a sign-in with this password.
async fn enter(app: &TestApp, password: &str) -> u16 {
    let form = [("email", "ada@example.com"), ("password", password)];
    app.panel().send("/panel/sign-in", &form).await.status()
}

async fn reset_link(app: &TestApp, email: &str) -> String {
    let account = accounts::find_account(app.core(), &email.parse().unwrap()).await;
    let made = reset_links::create_any_reset_link(app.core(), account.unwrap().id).await;
    reset_links::path(LinkKind::Reset, &made.unwrap())
}

async fn guessing_is_slowed_down(app: &TestApp) {
    app.new_account_with("ada", PASSWORD).await;
    let mut guesser = app.panel();
    let mut statuses = Vec::new();
    for number in 0..14 {
        let guess = format!("guess number {number}");
        let form = [("email", "ada@example.com"), ("password", guess.as_str())];
        statuses.push(guesser.send("/panel/sign-in", &form).await.status());
    }
    assert_eq!(statuses[0], 401);
    assert!(statuses.contains(&429), "{statuses:?}");
}
