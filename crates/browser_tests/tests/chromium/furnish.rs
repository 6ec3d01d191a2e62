//! An installation with something on every page.

use crate::browser::Browser;
use estrade_model::ReleaseId;
use estrade_model::secret::Secret;
use estrade_service::bootstrap::ADMIN;
use estrade_service::identity::accounts::{self, EndedTokens};
use estrade_store::build_logs::append_lines;
use estrade_store::log_blocks::{NewLogBlock, insert_block};
use estrade_testkit::{TestApp, User};
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;

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
    /// The id of the project that would run.
    pub(crate) service: String,
    /// The id of the site's first release.
    pub(crate) release: String,
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
    let release = add_site(&ada, text).await;
    let service = add_service(app, &ada, text).await;
    add_keys(app, &ada, text).await;
    let (team, invitation) = add_team(app, &ada, text).await;
    Furnished {
        email: ADMIN,
        team,
        service,
        release,
        invitation,
    }
}

/// Returns the id of its first release.
async fn add_site(ada: &User, text: &str) -> String {
    let mut releases = Vec::new();
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
        releases.push(release);
    }
    let set = json!({"project": SITE, "variables": [{"key": "GREETING", "value": text}]});
    ada.post("/v1/projects/update-envs", &set).await.assert(201);
    let domain = json!({"name": "shop.example.com", "project": SITE});
    ada.post("/v1/domains", &domain).await.assert(201);
    releases.swap_remove(0)
}

/// Returns its id.
async fn add_service(app: &TestApp, ada: &User, text: &str) -> String {
    let new = json!({"name": SERVICE, "platform": "node", "planID": "nano"});
    let made = ada.post("/v1/projects", &new).await.assert(200);
    let disk = json!({"name": "data", "size": 1});
    let path = format!("/v1/projects/{SERVICE}/disks");
    ada.post(&path, &disk).await.assert(201);
    let network = json!({"name": "backend"});
    ada.post("/v1/networks", &network).await;
    let project = made.field("/project/_id");
    store_log_line(app, &project, text).await;
    project
}

/// Stores a line as the server does: in a block of what an instance of a release wrote.
pub(crate) async fn store_log_line(app: &TestApp, project: &str, text: &str) {
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

/// Puts a release into a state, as if it were built now by a server that is not there, and adds lines to its log.
pub(crate) async fn write_build_log(app: &TestApp, release: &str, state: &str, lines: &[String]) {
    let now = app.core().now();
    let end = now.after(Duration::from_hours(1));
    let finished_at = (state == "READY").then_some(now);
    let id: ReleaseId = release.parse().expect("an id");
    let job = Arc::new((state.to_owned(), lines.to_vec()));
    let written = app.core().db.transact(move |tx| {
        let job = Arc::clone(&job);
        Box::pin(async move {
            let (state, lines) = &*job;
            tx.query(
                "UPDATE releases SET state = $2, finished_at = $3, lease_until = $4, deadline = $4 WHERE id = $1",
            )
            .bind(id)
            .bind(state)
            .bind(finished_at)
            .bind(end)
            .execute()
            .await?;
            append_lines(tx, id, lines, now).await
        })
    });
    written.await.expect("a build log");
}

async fn add_keys(app: &TestApp, ada: &User, text: &str) {
    let new = json!({
        "name": "ci-bot", "workspaces": ["main"], "rpm": 60,
        "budget": {"amount": "12.50", "period": "monthly"},
    });
    let made = ada.ai().post("/v1/keys", &new).await.assert(201);
    // As long as the label of a workspace may be.
    let label: String = text.chars().take(50).collect();
    let other = json!({"name": "batch", "workspaces": [label]});
    ada.ai().post("/v1/keys", &other).await.assert(201);
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
