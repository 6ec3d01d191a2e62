//! A deployed site that attacks the panel in the browser of somebody who is signed in there.

use crate::browser::{Browser, Javascript};
use crate::furnish::{Furnished, SERVICE, furnish, sign_in};
use estrade_testkit::{Api, Backend, TestApp, User};
use serde_json::json;

const PROJECT: &str = "free-games";
/// What the site tries to call its visitor.
const NAME: &str = "Owned By Games";

/// A page that reads, frames, streams and changes what it can; it says how that went.
fn attack(app: &TestApp) -> String {
    let panel = format!("http://{}", app.address(Api::Platform));
    format!(
        "<!doctype html><html lang=en><title>Free games</title><link rel=icon href='data:,'><h1 id=told>Loading</h1>
        <iframe src='{panel}/panel/account'></iframe><iframe name=hidden></iframe>
        <form id=change method=post action='{panel}/panel/account' target=hidden><input name=fullname value='{NAME}'></form>
        <form id=leave method=post action='{panel}/panel/account'><input name=fullname value='{NAME}'><button>Play</button></form>
        <script type=module>
        const outcome = (promise) => promise.then(() => 'worked', () => 'refused');
        change.submit();
        const read = await outcome(fetch('{panel}/panel/account', {{ credentials: 'include' }}));
        const api = await outcome(fetch('{panel}/v1/me', {{ credentials: 'include' }}));
        const stream = await outcome(new Promise((resolve, reject) => {{
            const source = new EventSource('{panel}/panel/projects/{SERVICE}/logs/stream', {{ withCredentials: true }});
            source.onopen = resolve;
            source.onerror = reject;
        }}));
        const form = {{ method: 'POST', mode: 'no-cors', credentials: 'include' }};
        await outcome(fetch('{panel}/panel/account', {{ ...form, body: new URLSearchParams({{ fullname: '{NAME}' }}) }}));
        await outcome(fetch('{panel}/panel/sign-out', {{ ...form, body: new URLSearchParams() }}));
        told.textContent = `read ${{read}}, api ${{api}}, stream ${{stream}}`;
        </script>"
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deployed_site_neither_reads_nor_changes_anything() {
    let app = TestApp::start(Backend::Sqlite).await;
    let Furnished { email, .. } = furnish(&app, "Summer sale").await;
    deploy_attack(&app, &app.admin().await).await;
    let browser = Browser::start(&app, Javascript::On).await;
    sign_in(&browser, email).await;

    let port = app.edge().port();
    let site = format!("http://{PROJECT}.localhost:{port}/");
    browser.open(&site).await;
    browser
        .see("read refused, api refused, stream refused")
        .await;
    let activity = browser.take_activity().await;
    let has_error = |text: &str| activity.errors.iter().any(|error| error.contains(text));
    assert!(has_error("frame-ancestors"), "{activity:#?}");
    assert!(has_error("CORS"), "{activity:#?}");

    // A form that leaves the site shows what became of it.
    browser.click("Play").await;
    browser
        .see("This request was not sent by a page of the panel")
        .await;
    browser.take_activity().await;
    // The person is still signed in, and called as before.
    browser.open("/panel/account").await;
    browser.arrive("/panel/account").await;
    assert_ne!(browser.value("fullname").await, NAME);
    browser.finish().await;
    app.finish().await;
}

async fn deploy_attack(app: &TestApp, ada: &User) {
    let new = json!({"name": PROJECT, "platform": "static", "planID": "nano"});
    ada.post("/v1/projects", &new).await.assert(200);
    let body = json!({"files": [{"path": "index.html", "data": attack(app)}]});
    let path = format!("/v2/projects/{PROJECT}/releases");
    let release = ada.post(&path, &body).await.assert(201).field("/releaseID");
    let path = format!("/v1/releases/{release}?wait=READY&timeout=60");
    let read = ada.get(&path).await.assert(200);
    assert_eq!(read.field("/release/state"), "READY");
}
