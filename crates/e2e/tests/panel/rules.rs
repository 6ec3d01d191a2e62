//! What holds for every page.

use super::routes::routes;
use estrade_testkit::{Api, TestApp, on_both_backends};

on_both_backends! {
    a_browser_is_sent_to_the_panel_and_a_program_is_not;
    every_page_has_the_security_headers;
    pages_of_people_ask_to_sign_in_and_come_back;
    neither_api_takes_the_cookie_and_the_panel_takes_no_token;
    unknown_paths_are_pages_and_assets_are_kept_for_ever;
}

const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

async fn a_browser_is_sent_to_the_panel_and_a_program_is_not(app: &TestApp) {
    let stranger = app.stranger();
    let accepts = "text/html,application/xhtml+xml,*/*;q=0.8";
    let sent = stranger
        .get("/")
        .header("accept", accepts)
        .await
        .assert(303);
    assert_eq!(sent.header("location"), "/panel");
    stranger
        .get("/")
        .header("accept", "*/*")
        .await
        .refused(404, "not_found");
    stranger.get("/").await.refused(404, "not_found");
    let sent = stranger.get("/panel").await.assert(303);
    assert_eq!(sent.header("location"), "/panel/sign-in");
}

async fn every_page_has_the_security_headers(app: &TestApp) {
    app.new_account_with("ada", "correct horse battery").await;
    let mut ada = app.panel();
    ada.sign_in("ada@example.com", "correct horse battery")
        .await;
    let mut stranger = app.panel();
    let mut paths: Vec<String> = routes()
        .iter()
        .filter(|route| route.takes_get)
        .map(super::routes::Route::example)
        .collect();
    paths.push("/panel/nothing/here".to_owned());
    for path in paths {
        for client in [&mut stranger, &mut ada] {
            let page = client.get(&path).await;
            assert!(page.status() < 500, "{path}: {}", page.status());
            assert_eq!(page.header("content-security-policy"), POLICY, "{path}");
            assert_eq!(page.header("referrer-policy"), "no-referrer", "{path}");
            assert_eq!(page.header("x-frame-options"), "DENY", "{path}");
            assert_eq!(page.header("cross-origin-opener-policy"), "same-origin");
            assert_eq!(page.header("cross-origin-resource-policy"), "same-origin");
            assert!(page.header("cache-control").contains("no-store"), "{path}");
            assert!(!page.has_header("strict-transport-security"), "{path}");
            assert!(!page.has_header("access-control-allow-origin"), "{path}");
            assert!(
                page.body().len() <= 100 << 10,
                "{path}: {}",
                page.body().len()
            );
        }
    }
}

async fn pages_of_people_ask_to_sign_in_and_come_back(app: &TestApp) {
    let mut stranger = app.panel();
    for route in routes()
        .iter()
        .filter(|route| route.takes_get && !route.is_public())
    {
        let path = format!("{}?before=x", route.example());
        let sent = stranger.get(&path).await.assert(303);
        let next = route.example() + "%3Fbefore%3Dx";
        assert_eq!(
            sent.header("location"),
            format!("/panel/sign-in?next={next}")
        );
    }
    for route in routes()
        .iter()
        .filter(|route| route.takes_post && !route.is_public())
    {
        if route.path == "/panel/sign-out" {
            continue;
        }
        let page = stranger
            .send(&route.example(), &[("a", "b")])
            .await
            .assert(401);
        assert!(
            page.text().contains("/panel/sign-in?next="),
            "{}",
            route.path
        );
    }
}

async fn neither_api_takes_the_cookie_and_the_panel_takes_no_token(app: &TestApp) {
    let user = app.new_account_with("ada", "correct horse battery").await;
    let mut ada = app.panel();
    ada.sign_in("ada@example.com", "correct horse battery")
        .await;
    ada.get("/panel/account").await.assert(200);
    let cookie = ada.cookie_header();
    let secret = ada.cookies()["estrade_session"].clone();
    for (api, path) in [(Api::Platform, "/v1/me"), (Api::Ai, "/v1/keys")] {
        let stranger = app.stranger().on(api);
        stranger
            .get(path)
            .header("cookie", &cookie)
            .await
            .refused(401, "unauthenticated");
        stranger
            .get(path)
            .bearer(&secret)
            .await
            .refused(401, "unauthenticated");
    }
    // With a token and no cookie the panel is closed.
    let page = user.platform().get("/panel/account").await.assert(303);
    assert_eq!(
        page.header("location"),
        "/panel/sign-in?next=/panel/account"
    );
    let page = user
        .platform()
        .get("/panel/account")
        .header("cookie", &format!("estrade_session={}", user.token()));
    page.await.assert(303);
}

async fn unknown_paths_are_pages_and_assets_are_kept_for_ever(app: &TestApp) {
    let mut stranger = app.panel();
    let page = stranger.get("/panel/nothing/here").await.assert(404);
    assert!(page.header("content-type").starts_with("text/html"));
    stranger
        .get("/panel/assets/panel.0000000000000000.css")
        .await
        .assert(404);
    let page = stranger.get("/panel/sign-in").await.assert(200).text();
    let assets: Vec<_> = page
        .split('"')
        .filter(|text| text.starts_with("/panel/assets/"))
        .collect();
    assert_eq!(assets.len(), 3, "{assets:?}");
    let mut total = page.len();
    for asset in assets {
        let response = stranger.get(asset).await.assert(200);
        assert_eq!(
            response.header("cache-control"),
            "public, max-age=31536000, immutable"
        );
        total += response.body().len();
    }
    assert!(total <= 100 << 10, "{total}");
}
