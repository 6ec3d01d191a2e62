//! Administration: accounts, providers and the state of the installation.

use estrade_mock_upstream::{MockUpstream, json as answer_json};
use estrade_testkit::{PanelClient, TestApp, eventually, on_both_backends};
use tokio::sync::Mutex;

on_both_backends! {
    only_administrators_see_these_pages;
    an_account_is_made_locked_out_and_let_in;
    a_provider_is_added_tested_and_removed;
    a_provider_has_its_key_until_another_is_saved;
    the_state_of_the_installation_is_shown;
    nodes_are_shown_where_there_may_be_several;
}

const PASSWORD: &str = "correct horse battery";

/// An administrator who is signed in.
pub(crate) async fn administrator(app: &TestApp) -> PanelClient {
    let root = app.new_account_with("root", PASSWORD).await;
    let made = app.core().db.transact(move |tx| {
        let account = root.account.clone();
        Box::pin(async move {
            tx.query("UPDATE accounts SET admin = TRUE WHERE id = $1")
                .bind(account.as_str())
                .execute()
                .await
        })
    });
    assert_eq!(made.await.unwrap(), 1);
    let mut browser = app.panel();
    browser.sign_in("root@example.com", PASSWORD).await;
    browser
}

async fn only_administrators_see_these_pages(app: &TestApp) {
    let ada = app.new_account_with("ada", PASSWORD).await;
    let mut browser = app.panel();
    browser.sign_in("ada@example.com", PASSWORD).await;
    let account = format!("/panel/admin/accounts/{}", ada.account);
    for path in [
        "/panel/admin/accounts",
        "/panel/admin/accounts/new",
        "/panel/admin/providers",
        "/panel/admin/providers/new",
        "/panel/admin/status",
        &account,
        &format!("{account}/disable"),
        &format!("{account}/reset-link"),
    ] {
        browser.get(path).await.assert(403);
    }
    for action in ["disable", "enable", "reset-link"] {
        let path = format!("{account}/{action}");
        browser.post(&path, &[]).await.assert(403);
    }
    let form = [("email", "new@example.com"), ("fullname", "New")];
    let path = "/panel/admin/accounts/new";
    browser.post(path, &form).await.assert(403);
    let form = [("name", "x"), ("base_url", "http://127.0.0.1:1/v1")];
    browser
        .post("/panel/admin/providers/new", &form)
        .await
        .assert(403);
    let home = browser.get("/panel/account").await.assert(200).text();
    assert!(!home.contains("/panel/admin/"), "no link leads there");
}

async fn an_account_is_made_locked_out_and_let_in(app: &TestApp) {
    let mut root = administrator(app).await;
    let path = "/panel/admin/accounts/new";
    root.get(path).await.assert(200);
    let bad = [("email", "nobody"), ("fullname", "New")];
    root.post(path, &bad).await.assert(400);
    let form = [("email", "new@example.com"), ("fullname", "New <b>Person")];
    let page = root.post(path, &form).await.assert(200).text();
    let (_, rest) = page.split_once("/panel/reset/").expect("a link");
    let code: String = rest.chars().take_while(|c| *c != '<').collect();
    root.post(path, &form).await.assert(400);
    let list = root
        .get("/panel/admin/accounts?q=NEW%40")
        .await
        .assert(200)
        .text();
    assert!(list.contains("New &#60;b&#62;Person"), "{list}");
    assert!(!list.contains("root@example.com</b>"), "{list}");
    let (_, rest) = list.split_once("href=\"/panel/admin/accounts/").unwrap();
    let mut account = rest;
    while !account.starts_with(|c: char| c.is_ascii_hexdigit()) || account.starts_with("new") {
        account = account
            .split_once("href=\"/panel/admin/accounts/")
            .unwrap()
            .1;
    }
    let account = format!("/panel/admin/accounts/{}", &account[..24]);
    root.get(&account).await.assert(200);
    // The new person sets the password, and is in.
    let mut new = app.panel();
    let form = [("password", PASSWORD), ("repeated", PASSWORD)];
    new.send(&format!("/panel/reset/{code}"), &form)
        .await
        .assert(303);
    new.get("/panel/account").await.assert(200);
    root.get(&format!("{account}/disable")).await.assert(200);
    root.post(&format!("{account}/disable"), &[])
        .await
        .assert(303);
    new.get("/panel/account").await.assert(303);
    let refused = root
        .post(&format!("{account}/reset-link"), &[])
        .await
        .text();
    assert!(refused.contains("The account is disabled"), "{refused}");
    root.post(&format!("{account}/enable"), &[])
        .await
        .assert(303);
    let page = root
        .post(&format!("{account}/reset-link"), &[])
        .await
        .assert(200);
    assert!(page.text().contains("/panel/reset/"));
}

async fn a_provider_is_added_tested_and_removed(app: &TestApp) {
    let mut root = administrator(app).await;
    let path = "/panel/admin/providers/new";
    root.get(path).await.assert(200);
    let bad = [("name", "local"), ("base_url", "nowhere")];
    let page = root.post(path, &bad).await.assert(400).text();
    assert!(
        page.contains("Base URL: must be an http or https URL"),
        "{page}"
    );
    let form = [
        ("name", "local"),
        ("base_url", "http://127.0.0.1:1/v1"),
        ("api_key", "sk-very-secret-key-0123456789"),
        ("model", "one"),
        ("upstream", ""),
        ("prompt", "1.5"),
        ("completion", "2"),
        ("context", "128000"),
        ("model", ""),
        ("upstream", ""),
        ("prompt", ""),
        ("completion", ""),
        ("context", ""),
    ];
    let made = root.post(path, &form).await.assert(303);
    let provider = made.header("location").to_owned();
    let page = root.get(&provider).await.assert(200).text();
    assert!(page.contains("128000") && page.contains("1.5"), "{page}");
    assert!(!page.contains("sk-very-secret"), "the key is never shown");
    // Nobody listens there.
    let page = root
        .post(&format!("{provider}/test"), &[])
        .await
        .assert(200)
        .text();
    assert!(
        page.contains("The connection fails: it cannot be reached"),
        "{page}"
    );
    let list = root.get("/panel/admin/providers").await.assert(200).text();
    assert!(list.contains("local") && list.contains("Stored"), "{list}");
    let form = [
        ("name", "renamed"),
        ("base_url", "http://127.0.0.1:1/v1"),
        ("remove_key", "yes"),
    ];
    root.post(&provider, &form).await.assert(303);
    let list = root.get("/panel/admin/providers").await.assert(200).text();
    assert!(list.contains("renamed") && list.contains("None"), "{list}");
    root.get(&format!("{provider}/delete")).await.assert(200);
    root.post(&format!("{provider}/delete"), &[])
        .await
        .assert(303);
    root.get(&provider).await.assert(404);
}

async fn a_provider_has_its_key_until_another_is_saved(app: &TestApp) {
    let models = r#"{"object": "list", "data": []}"#;
    let upstream = MockUpstream::new(move |_| answer_json(200, models)).await;
    let address = format!("http://{}/v1", upstream.address);
    let mut root = administrator(app).await;
    let mut provider = "/panel/admin/providers/new".to_owned();
    let (first, second) = ("sk-first-0123456789abcdef", "sk-second-0123456789abcdef");
    for (typed, sent) in [(first, first), ("", first), (second, second)] {
        let form = [
            ("name", "local"),
            ("base_url", address.as_str()),
            ("api_key", typed),
        ];
        let saved = root.post(&provider, &form).await.assert(303);
        provider = saved.header("location").to_owned();
        let tested = root.post(&format!("{provider}/test"), &[]).await;
        let page = tested.assert(200).text();
        assert!(page.contains("It answers, and takes the key."), "{page}");
        let head = upstream.requests().pop().unwrap().head;
        assert!(head.contains(&format!("Bearer {sent}")), "{typed}: {head}");
    }
}

async fn the_state_of_the_installation_is_shown(app: &TestApp) {
    let mut root = administrator(app).await;
    let page = root.get("/panel/admin/status").await.assert(200).text();
    for text in [
        "Database",
        "Docker Engine",
        "Certificates",
        "are free",
        "Calls of an earlier run to be closed",
        "Background jobs",
        "Remove old calls",
        "Remove unused files",
        "Order certificates",
        "Last warnings",
    ] {
        assert!(page.contains(text), "{text}: {page}");
    }
}

async fn nodes_are_shown_where_there_may_be_several(app: &TestApp) {
    let mut root = administrator(app).await;
    let page = root.get("/panel/admin/status").await.assert(200).text();
    let Some(database) = app.database() else {
        assert!(!page.contains("Nodes"), "{page}");
        return;
    };
    assert!(page.contains("<h2>Nodes</h2>") && page.contains("This one"));
    assert_eq!(page.matches(">Alive<").count(), 1, "{page}");
    // The name of a machine is whatever its owner calls it.
    database
        .query(
            "INSERT INTO nodes SELECT 'ffffffffffffffffffffffff', '<script>alert(1)</script>', '<b>', '<i>', '<i>', '<i>',
             FALSE, started_at, 0 FROM nodes",
        )
        .await;
    let root = Mutex::new(root);
    eventually("the other node is shown", || async {
        let page = root.lock().await.get("/panel/admin/status").await;
        let page = page.assert(200).text();
        assert!(!page.contains("<script>alert") && !page.contains("<b><"));
        page.contains("&#60;script&#62;alert(1)") && page.contains(">Down<")
    })
    .await;
}
