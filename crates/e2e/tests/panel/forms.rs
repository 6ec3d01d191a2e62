//! Forms that other sites send, and forms that are too large.

use super::routes::routes;
use estrade_testkit::{TestApp, on_both_backends};
use http::Method;

on_both_backends! {
    forms_without_the_token_are_refused;
    forms_of_other_origins_are_refused;
    forms_have_a_size;
    a_token_of_another_session_is_refused;
}

const PASSWORD: &str = "correct horse battery";
const FORM: &str = "application/x-www-form-urlencoded";

async fn forms_without_the_token_are_refused(app: &TestApp) {
    app.new_account_with("ada", PASSWORD).await;
    let mut ada = app.panel();
    ada.sign_in("ada@example.com", PASSWORD).await;
    let mut tried = 0;
    for route in routes()
        .iter()
        .filter(|route| route.takes_post && !route.is_public())
    {
        for form in [
            &[("name", "x")][..],
            &[("csrf", ""), ("name", "x")],
            &[("csrf", &"0".repeat(64)), ("name", "x")],
        ] {
            let page = ada.send(&route.example(), form).await;
            assert_eq!(page.status(), 403, "{}: {}", route.path, page.text());
            tried += 1;
        }
    }
    assert!(tried > 10, "{tried}");
    // Twice the right one is not the right one.
    let csrf = ada.csrf().await;
    let twice = [("csrf", csrf.as_str()), ("csrf", &csrf), ("fullname", "x")];
    ada.send("/panel/account", &twice).await.assert(403);
    let page = ada.get("/panel/account").await.assert(200).text();
    assert!(page.contains("ada of Example"), "nothing was changed");
}

async fn forms_of_other_origins_are_refused(app: &TestApp) {
    app.new_account_with("ada", PASSWORD).await;
    let mut ada = app.panel();
    ada.sign_in("ada@example.com", PASSWORD).await;
    let (csrf, cookie) = (ada.csrf().await, ada.cookie_header());
    let own = ada.origin().to_owned();
    let site = app.edge().port();
    let foreign: &[&[(&str, &str)]] = &[
        &[],
        &[("origin", "https://evil.example")],
        &[("origin", "null")],
        &[("origin", &format!("http://site.localhost:{site}"))],
        &[("origin", &own), ("sec-fetch-site", "same-site")],
        &[("origin", &own), ("sec-fetch-site", "cross-site")],
        &[("sec-fetch-site", "same-site")],
        &[("sec-fetch-site", "none")],
    ];
    for route in routes().iter().filter(|route| route.takes_post) {
        for headers in foreign {
            let mut call = app.stranger().call(Method::POST, &route.example());
            call = call.header("cookie", &cookie).header("content-type", FORM);
            for (name, value) in *headers {
                call = call.header(name, value);
            }
            let page = call.bytes(format!("csrf={csrf}&fullname=x")).await;
            assert_eq!(page.status(), 403, "{} {headers:?}", route.path);
        }
    }
    // What a page of the panel sends is accepted, also without an origin.
    let call = app.stranger().call(Method::POST, "/panel/account");
    let call = call.header("cookie", &cookie).header("content-type", FORM);
    let call = call
        .header("origin", "null")
        .header("sec-fetch-site", "same-origin");
    call.bytes(format!("csrf={csrf}&fullname=Ada"))
        .await
        .assert(303);
}

async fn forms_have_a_size(app: &TestApp) {
    app.new_account_with("ada", PASSWORD).await;
    let mut ada = app.panel();
    let large = "x".repeat(17 << 10);
    ada.send("/panel/sign-in", &[("email", &large), ("password", "y")])
        .await
        .assert(413);
    ada.sign_in("ada@example.com", PASSWORD).await;
    let larger = "x".repeat(1 << 20);
    let refused = ada
        .post("/panel/account", &[("fullname", &larger)])
        .await
        .assert(413);
    // Its rest is not read, so the next request needs another connection.
    assert_eq!(refused.header("connection"), "close");
    ada.post("/panel/account", &[("fullname", &large)])
        .await
        .assert(400);
    // Another type is none of a form.
    let call = app.stranger().call(Method::POST, "/panel/account");
    let call = call
        .header("cookie", &ada.cookie_header())
        .header("origin", ada.origin());
    call.header("content-type", "application/json")
        .bytes("{}")
        .await
        .assert(415);
}

async fn a_token_of_another_session_is_refused(app: &TestApp) {
    app.new_account_with("ada", PASSWORD).await;
    let (mut one, mut two) = (app.panel(), app.panel());
    one.sign_in("ada@example.com", PASSWORD).await;
    two.sign_in("ada@example.com", PASSWORD).await;
    let token = two.csrf().await;
    one.send("/panel/account", &[("csrf", &token), ("fullname", "x")])
        .await
        .assert(403);
    two.send("/panel/account", &[("csrf", &token), ("fullname", "x")])
        .await
        .assert(303);
}
