//! An installation with something on every page.

use crate::browser::Browser;
use estrade_model::secret::Secret;
use estrade_service::bootstrap::ADMIN;
use estrade_service::identity::accounts::{self, EndedTokens};
use estrade_store::log_blocks::{NewLogBlock, insert_block};
use estrade_testkit::{TestApp, User};
use serde_json::json;

/// What everybody's password is.
pub(crate) const PASSWORD: &str = "correct horse battery staple";
/// A project that serves files.
pub(crate) const SITE: &str = "storefront";
/// A project that would run.
pub(crate) const SERVICE: &str = "billing-api";

/// What the pages are about.
pub(crate) struct Furnished {
    /// The person who has all of it, an administrator.
    pub(crate) email: &'static str,
    pub(crate) team: String,
    /// Where an invitation leads, as a path.
    pub(crate) invitation: String,
}

/// Makes something of every kind, with `text` wherever people may write what they like.
pub(crate) async fn furnish(app: &TestApp, text: &str) -> Furnished {
    let ada = app.admin().await;
    let email = ADMIN.parse().expect("an address");
    let password = Secret(PASSWORD.to_owned());
    accounts::set_password(app.core(), &email, password, EndedTokens::Sessions)
        .await
        .expect("a password");
    add_site(&ada, text).await;
    add_service(app, &ada, text).await;
    add_keys(app, &ada, text).await;
    let (team, invitation) = add_team(app, &ada, text).await;
    Furnished {
        email: ADMIN,
        team,
        invitation,
    }
}

async fn add_site(ada: &User, text: &str) {
    let new = json!({"name": SITE, "platform": "static", "planID": "nano"});
    ada.post("/v1/projects", &new).await.assert(200);
    for version in 1..=2 {
        let body = json!({
            "files": [{"path": "index.html", "data": format!("<h1>Version {version}</h1>")}],
            "message": format!("Version {version}: {text}"),
            "gitInfo": {"branch": text, "commit": text, "message": text, "author": text},
        });
        let path = format!("/v2/projects/{SITE}/releases");
        let release = ada.post(&path, &body).await.assert(201).field("/releaseID");
        let path = format!("/v1/releases/{release}?wait=READY&timeout=60");
        let read = ada.get(&path).await.assert(200);
        assert_eq!(read.field("/release/state"), "READY");
    }
    let set = json!({"project": SITE, "variables": [{"key": "GREETING", "value": text}]});
    ada.post("/v1/projects/update-envs", &set).await.assert(201);
    let domain = json!({"name": "shop.example.com", "project": SITE});
    ada.post("/v1/domains", &domain).await.assert(201);
}

async fn add_service(app: &TestApp, ada: &User, text: &str) {
    let new = json!({"name": SERVICE, "platform": "node", "planID": "nano"});
    let made = ada.post("/v1/projects", &new).await.assert(200);
    let disk = json!({"name": "data", "size": 1});
    let path = format!("/v1/projects/{SERVICE}/disks");
    ada.post(&path, &disk).await.assert(201);
    let network = json!({"name": "backend"});
    ada.post("/v1/networks", &network).await;
    let project = made.field("/project/_id");
    store_log_line(app, &project, text).await;
}

/// Stores a line as the server does: in a block of what an instance of a release wrote.
async fn store_log_line(app: &TestApp, project: &str, text: &str) {
    let now = app.core().now();
    let at = now.millis() * 1_000_000;
    let mut raw = at.to_be_bytes().to_vec();
    raw.push(0);
    let length = u32::try_from(text.len()).expect("a short line");
    raw.extend(length.to_be_bytes());
    raw.extend(text.as_bytes());
    let mut data = vec![1];
    data.extend(zstd::bulk::compress(&raw, 3).expect("a compressed block"));
    let block = NewLogBlock {
        project: project.parse().expect("an id"),
        release: "a".repeat(24).parse().expect("an id"),
        instance: "x".into(),
        first_at: at,
        last_at: at,
        lines: 1,
        data,
    };
    let stored = app.core().db.transact(move |tx| {
        let block = block.clone();
        Box::pin(async move { insert_block(tx, &block, now).await })
    });
    assert!(stored.await.expect("a stored line"));
}

async fn add_keys(app: &TestApp, ada: &User, text: &str) {
    let new = json!({
        "name": "ci-bot", "workspaces": ["main"], "rpm": 60,
        "budget": {"amount": "12.50", "period": "monthly"},
    });
    let made = ada.ai().post("/v1/keys", &new).await.assert(201);
    let call = json!({"model": "estrade/echo", "messages": [{"role": "user", "content": text}]});
    let caller = app.stranger().ai();
    for _ in 0..3 {
        let key = made.field("/key");
        let sent = caller.post("/v1/chat/completions", &call).bearer(&key);
        sent.await.assert(200);
    }
}

async fn add_team(app: &TestApp, ada: &User, text: &str) -> (String, String) {
    let team = app.new_team(ada, text).await;
    let eve = app.new_account("eve").await;
    app.join(&team, ada, &eve, "viewer").await;
    let invite = json!({"email": "grace@example.com", "role": "developer"});
    let path = format!("/v2/teams/{team}/invitations");
    let invited = ada.post(&path, &invite).await.assert(200);
    let link = invited.field("/link");
    let (_, path) = link.split_once("/panel/").expect("a link to the panel");
    (team, format!("/panel/{path}"))
}

/// Signs in with the form.
pub(crate) async fn sign_in(browser: &Browser, email: &str) {
    browser.open("/panel/sign-in").await;
    browser.fill("email", email).await;
    browser.fill("password", PASSWORD).await;
    browser.click("Sign in").await;
    browser.arrive("/panel/projects").await;
}
