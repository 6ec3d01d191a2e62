//! States that people meet: a session that has ended, and no network.

use crate::browser::{Browser, Javascript};
use crate::furnish::{PASSWORD, furnish, sign_in};
use estrade_testkit::{Backend, TestApp, eventually};
use std::time::Duration;

/// Longer than a session may be idle.
const A_NIGHT: Duration = Duration::from_hours(13);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_that_ended_comes_back_to_the_same_page() {
    let app = TestApp::start(Backend::Sqlite).await;
    let furnished = furnish(&app, "Summer sale").await;
    let page = format!("/panel/keys?team={}", furnished.team);
    for javascript in [Javascript::On, Javascript::Off] {
        let browser = Browser::start(&app, javascript).await;
        sign_in(&browser, furnished.email).await;
        browser.open(&page).await;
        browser.see("Keys").await;
        app.core().clock.advance(A_NIGHT);
        browser.reload().await;
        browser.arrive("/panel/sign-in").await;
        browser
            .see("You come back to the page that you asked for")
            .await;
        come_back(&browser, furnished.email).await;
        assert_eq!(browser.path().await, page);

        // What is sent meanwhile is not carried out, and not without a word.
        browser.open("/panel/account").await;
        browser.fill("fullname", "Somebody Else").await;
        app.core().clock.advance(A_NIGHT);
        browser.click("Save").await;
        browser.see("What you sent was not carried out").await;
        browser.click("Sign in").await;
        come_back(&browser, furnished.email).await;
        assert_eq!(browser.path().await, "/panel/account");
        assert_ne!(browser.value("fullname").await, "Somebody Else");
        browser.finish().await;
    }
    app.finish().await;
}

async fn come_back(browser: &Browser, email: &str) {
    browser.arrive("/panel/sign-in").await;
    browser.fill("email", email).await;
    browser.fill("password", PASSWORD).await;
    browser.click("Sign in").await;
    eventually("the page is left", || async {
        !browser.path().await.starts_with("/panel/sign-in")
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_is_offline_is_told() {
    const NOTICE: &str = "You are offline.";
    let app = TestApp::start(Backend::Sqlite).await;
    let furnished = furnish(&app, "Summer sale").await;
    let browser = Browser::start(&app, Javascript::On).await;
    sign_in(&browser, furnished.email).await;
    browser.open("/panel/keys").await;
    assert!(!browser.text().await.contains(NOTICE));
    browser.set_offline(true).await;
    browser.see(NOTICE).await;
    browser.set_offline(false).await;
    eventually("the notice is gone", || async {
        !browser.text().await.contains(NOTICE)
    })
    .await;
    browser.finish().await;
    app.finish().await;
}
