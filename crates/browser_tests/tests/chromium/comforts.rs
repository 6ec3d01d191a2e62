//! What scripts add for people who have them: keys of the keyboard, and copies where there is no clipboard.

use crate::browser::{Browser, Javascript};
use crate::furnish::{furnish, sign_in};
use estrade_testkit::{Backend, TestApp, eventually};
use serde_json::json;

/// As on a page that comes without TLS from another machine.
const NO_CLIPBOARD: &str =
    "Object.defineProperty(navigator, 'clipboard', { value: undefined, configurable: true });";
/// What a copy would hold.
const SELECTED: &str = "
    const at = document.activeElement;
    return at.selectionEnd ? at.value.slice(at.selectionStart, at.selectionEnd) : getSelection().toString();";
/// What an authenticator app makes of the secret on the page (RFC 6238).
const CODE: &str = "
    const done = arguments[arguments.length - 1];
    const letters = 'ABCDEFGHIJKLMNOPQRSTUVWXYZ234567';
    const secret = document.getElementById('factor-secret').textContent.trim();
    const bits = [...secret].map((letter) => letters.indexOf(letter).toString(2).padStart(5, '0')).join('');
    const bytes = bits.match(/.{8}/g).map((byte) => parseInt(byte, 2));
    const step = new DataView(new ArrayBuffer(8));
    step.setUint32(4, Math.floor(Date.now() / 30000));
    const algorithm = { name: 'HMAC', hash: 'SHA-1' };
    crypto.subtle.importKey('raw', new Uint8Array(bytes), algorithm, false, ['sign'])
        .then((key) => crypto.subtle.sign('HMAC', key, step))
        .then((tag) => {
            const view = new DataView(tag);
            const number = view.getUint32(view.getUint8(19) & 15) & 0x7fffffff;
            done(String(number % 1000000).padStart(6, '0'));
        });";
const CODES: &str =
    "return [...document.querySelectorAll('.codes li')].map((code) => code.textContent);";

/// Answers the page that sets it up as an app would; the recovery codes are shown then.
pub(crate) async fn switch_on_second_factor(browser: &Browser) {
    let code = browser.run_async(CODE).await;
    browser.fill("code", code.as_str().expect("a code")).await;
    browser.click("Switch on").await;
    browser.see("Your recovery codes").await;
}

async fn press(browser: &Browser, keys: &str) {
    let body = browser.find("body").await;
    body.send_keys(keys).await.expect("a page with a keyboard");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_lead_to_pages_and_to_the_search() {
    let app = TestApp::start(Backend::Sqlite).await;
    let furnished = furnish(&app, "Summer sale").await;
    let browser = Browser::start(&app, Javascript::On).await;
    sign_in(&browser, furnished.email).await;
    let of_team = format!("?team={}", furnished.team);
    browser.open(&format!("/panel/audit{of_team}")).await;
    for (keys, path) in [
        ("gk", "/panel/keys"),
        ("gu", "/panel/usage"),
        ("gp", "/panel/projects"),
    ] {
        press(&browser, keys).await;
        browser.arrive(path).await;
        assert_eq!(browser.path().await, format!("{path}{of_team}"));
    }

    // What is typed into a field is text.
    browser.open("/panel/projects").await;
    press(&browser, "/gk?").await;
    eventually("the search has the keys", || async {
        browser.value("q").await == "gk?"
    })
    .await;
    assert!(!browser.has("dialog[open]").await);
    assert_eq!(browser.path().await, "/panel/projects");

    browser.open("/panel/account").await;
    press(&browser, "?").await;
    browser.see("Keyboard shortcuts").await;
    press(&browser, "gk").await;
    browser.click("Close").await;
    assert!(!browser.has("dialog[open]").await);
    assert_eq!(browser.path().await, "/panel/account");
    browser
        .take_activity()
        .await
        .assert_clean("keys of the keyboard");
    browser.finish().await;
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_clipboard_the_text_is_selected() {
    let app = TestApp::start(Backend::Sqlite).await;
    let furnished = furnish(&app, "Summer sale").await;
    let browser = Browser::start(&app, Javascript::On).await;
    sign_in(&browser, furnished.email).await;
    browser.open("/panel/projects/storefront/deploy").await;
    browser.run(NO_CLIPBOARD, vec![]).await;
    browser.click("Copy").await;
    browser.find(".toast").await;
    let selected = browser.run(SELECTED, vec![]).await;
    assert_eq!(selected, json!("estrade deploy --project storefront"));

    // All recovery codes are in a field, whose text is no part of the page's.
    browser.open("/panel/account/second-factor").await;
    switch_on_second_factor(&browser).await;
    let codes = browser.run(CODES, vec![]).await;
    assert_eq!(codes.as_array().map(Vec::len), Some(10), "{codes}");
    browser.run(NO_CLIPBOARD, vec![]).await;
    browser.click("Copy all").await;
    browser.find(".toast").await;
    let selected = browser.run(SELECTED, vec![]).await;
    let selected = selected.as_str().expect("a text").lines();
    assert_eq!(json!(selected.collect::<Vec<_>>()), codes);
    browser
        .take_activity()
        .await
        .assert_clean("copies without a clipboard");
    browser.finish().await;
    app.finish().await;
}
