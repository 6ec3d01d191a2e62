//! What asks for the password or a code again when the sign-in is older than ten minutes.

use super::admin::administrator;
use super::routes::{Route, routes};
use estrade_testkit::{Setup, TestApp, on_both_backends};
use std::time::Duration;

on_both_backends! {
    an_old_sign_in_is_confirmed_before_every_sensitive_form;
    pages_count_for_the_rate_of_the_account with slow_accounts;
}

const PROVIDER: &[(&str, &str)] = &[("name", "local"), ("base_url", "http://127.0.0.1:1/v1")];

/// Forms that change how somebody gets in, who may, or where calls go.
fn is_sensitive(route: &Route) -> bool {
    let path = route.path.as_str();
    route.takes_post
        && (path.starts_with("/panel/account/")
            || path.starts_with("/panel/admin/")
            || path == "/panel/tokens/new"
            || path == "/panel/device")
}

/// What a form is sent with, so that nothing else is wrong with it.
fn form_of(path: &str) -> &'static [(&'static str, &'static str)] {
    match path {
        "/panel/account/password" => &[
            ("password", "a new password"),
            ("repeated", "a new password"),
        ],
        "/panel/account/second-factor" => &[("code", "123456")],
        "/panel/tokens/new" => &[("name", "ci"), ("lifetime", "30d"), ("scope", "full")],
        "/panel/device" => &[("code", "BCDF-GHJK"), ("answer", "approve")],
        "/panel/admin/accounts/new" => &[("email", "new@example.com"), ("fullname", "New")],
        "/panel/admin/providers/new" | "/panel/admin/providers/{id}" => PROVIDER,
        _ => &[],
    }
}

async fn an_old_sign_in_is_confirmed_before_every_sensitive_form(app: &TestApp) {
    let ada = app.new_account("ada").await;
    let mut root = administrator(app).await;
    let made = root.post("/panel/admin/providers/new", PROVIDER).await;
    let provider = made.assert(303).header("location").to_owned();
    let account = format!("/panel/admin/accounts/{}", ada.account);
    app.core().clock.advance(Duration::from_mins(11));
    let all = routes();
    let sensitive: Vec<_> = all.iter().filter(|route| is_sensitive(route)).collect();
    assert!(sensitive.len() >= 12, "{sensitive:?}");
    for route in sensitive {
        let path = route.path.replace("/panel/admin/accounts/{id}", &account);
        let path = path.replace("/panel/admin/providers/{id}", &provider);
        let page = root.post(&path, form_of(&route.path)).await;
        let text = page.text();
        assert_eq!(page.status(), 401, "{path}: {text}");
        assert!(text.contains("/panel/confirm?next="), "{path}: {text}");
        if route.takes_get {
            let sent = root.get(&path).await.assert(303);
            let location = sent.header("location");
            assert!(
                location.starts_with("/panel/confirm?next="),
                "{path}: {location}"
            );
        }
    }
    let page = root.get(&account).await.assert(200).text();
    assert!(!page.contains("Locked out"), "nothing was changed");
}

fn slow_accounts() -> Setup {
    Setup::with(|setup| {
        (setup.requests_per_second, setup.burst) = (1000, 1000);
        (setup.account_requests_per_second, setup.account_burst) = (1, 12);
    })
}

async fn pages_count_for_the_rate_of_the_account(app: &TestApp) {
    const PASSWORD: &str = "correct horse battery";
    app.new_account_with("ada", PASSWORD).await;
    let mut ada = app.panel();
    ada.sign_in("ada@example.com", PASSWORD).await;
    let mut statuses = Vec::new();
    // One request more is allowed each second, so a slow machine needs some more.
    while statuses.len() < 100 && !statuses.contains(&429) {
        statuses.push(ada.get("/panel/account").await.status());
    }
    assert_eq!(statuses[0], 200);
    assert!(statuses.contains(&429), "{statuses:?}");
}
