//! That the tests see what they look for: on pages that have it.

use crate::accessibility::serious_violations;
use crate::browser::{Browser, DESKTOP, Javascript, PHONE, Theme};
use estrade_testkit::{Backend, TestApp};
use tempfile::TempDir;

const BAD_PAGE: &str = "data:text/html,<!doctype html><html lang=en><title>Bad</title>\
    <img src=http://tracker.example.com/pixel.png>\
    <script>console.error('something failed')</script>\
    <p id=told>no script ran</p><script>told.textContent = 'a script ran'</script>";

/// Wider than a phone, black in the dark, with a form that leads to another page.
const FORM_PAGE: &str = "data:text/html,<!doctype html><html lang=en><title>Form</title>\
    <style>.dark{display:none} @media (prefers-color-scheme: dark){.dark{display:block}}</style>\
    <div style=width:600px>wide</div><p class=dark>it is dark</p>\
    <form action=about:blank><input name=word value=old><button>Send it</button></form>";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn errors_other_hosts_and_violations_are_seen() {
    let app = TestApp::start(Backend::Sqlite).await;
    let browser = Browser::start(&app, Javascript::On).await;
    browser.open(BAD_PAGE).await;
    browser.see("a script ran").await;
    let violations = serious_violations(&browser).await;
    let found = |id: &str| violations.iter().any(|violation| violation["id"] == id);
    assert!(found("image-alt"), "{violations:#?}");

    let activity = browser.take_activity().await;
    let pixel = "http://tracker.example.com/pixel.png";
    assert_eq!(activity.foreign_requests, [pixel], "{activity:#?}");
    let has_error = |text: &str| activity.errors.iter().any(|error| error.contains(text));
    assert!(has_error("something failed"), "{activity:#?}");
    assert!(activity.transferred < 2_000, "{activity:#?}");
    // The name does not resolve: nothing left this machine.
    assert!(has_error("net::ERR_NAME_NOT_RESOLVED"), "{activity:#?}");
    browser.finish().await;
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_javascript_no_script_runs_and_forms_work() {
    let app = TestApp::start(Backend::Sqlite).await;
    let browser = Browser::start(&app, Javascript::Off).await;
    browser.open(BAD_PAGE).await;
    browser.see("no script ran").await;
    browser.take_activity().await;

    browser.open(FORM_PAGE).await;
    browser.resize(PHONE).await;
    assert!(browser.overflow(PHONE).await > 0.0);
    browser.resize(DESKTOP).await;
    assert!(browser.overflow(DESKTOP).await <= 0.0);
    for theme in Theme::ALL {
        browser.prefer(theme).await;
        let is_dark = browser.text().await.contains("it is dark");
        assert_eq!(is_dark, theme.name() == "dark");
    }

    browser.fill("word", "new").await;
    assert_eq!(browser.value("word").await, "new");
    assert!(browser.has("form button").await && !browser.has("form a").await);
    browser.click("Send it").await;
    browser.arrive("about:blank").await;

    let directory = TempDir::new().expect("a temporary directory");
    let file = directory.path().join(DESKTOP.name);
    browser.photograph(DESKTOP, &file).await;
    let picture = std::fs::read(&file).expect("a picture");
    assert!(picture.starts_with(b"\x89PNG"));
    browser.finish().await;
    app.finish().await;
}
