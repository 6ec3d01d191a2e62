//! The first hour of somebody who has just installed Estrade, clicked through, with JavaScript and without.

use crate::browser::{Browser, Javascript};
use crate::furnish::PASSWORD;
use crate::viewer::invite_a_viewer;
use estrade_service::bootstrap::ADMIN;
use estrade_service::identity::reset_links::{self, FirstPassword, LinkKind};
use estrade_testkit::{Backend, TestApp, User, eventually, on_both_backends};
use serde_json::json;
use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use tempfile::TempDir;
use zip::ZipWriter;
use zip::write::SimpleFileOptions;

const PROJECT: &str = "my-site";

on_both_backends! {
    the_first_hour;
}

async fn the_first_hour(app: &TestApp) {
    take_the_walk(app, Javascript::On).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_first_hour_without_javascript() {
    let app = TestApp::start(Backend::Sqlite).await;
    take_the_walk(&app, Javascript::Off).await;
    app.finish().await;
}

async fn take_the_walk(app: &TestApp, javascript: Javascript) {
    let walk = Walk {
        app,
        javascript,
        browser: Browser::start(app, javascript).await,
        folder: TempDir::new().expect("a temporary directory"),
    };
    walk.set_password().await;
    walk.make_token().await;
    walk.approve_login().await;
    walk.make_project().await;
    walk.deploy("one").await;
    walk.see_it_live("one").await;
    walk.deploy("two").await;
    walk.see_it_live("two").await;
    walk.roll_back().await;
    walk.see_it_live("one").await;
    let key = walk.make_key().await;
    walk.call(&key).await.assert(200);
    walk.see_usage().await;
    walk.disable_key().await;
    walk.call(&key).await.assert(403);
    invite_a_viewer(app, &walk.browser, javascript, PROJECT).await;
    walk.see_it_live("one").await;
    walk.browser.finish().await;
}

struct Walk<'a> {
    app: &'a TestApp,
    javascript: Javascript,
    browser: Browser,
    folder: TempDir,
}

impl Walk<'_> {
    /// Nothing went wrong in the browser up to here.
    async fn check(&self, what: &str) {
        self.browser.take_activity().await.assert_clean(what);
    }

    async fn set_password(&self) {
        let browser = &self.browser;
        let email = ADMIN.parse().expect("an address");
        let made = reset_links::create_welcome_link(self.app.core(), &email).await;
        let FirstPassword::Link(secret) = made.expect("a link") else {
            panic!("the first start offers a link");
        };
        let path = reset_links::path(LinkKind::Welcome, &secret);
        browser.open(&path).await;
        browser.see("Welcome to Estrade").await;
        browser.fill("password", PASSWORD).await;
        browser.fill("repeated", "something else").await;
        browser.click("Set password and sign in").await;
        browser.see("not the same").await;
        browser.fill("password", PASSWORD).await;
        browser.fill("repeated", PASSWORD).await;
        browser.click("Set password and sign in").await;
        browser.arrive("/panel/projects").await;
        // The link is used up.
        browser.open(&path).await;
        assert!(!browser.has("[name=password]").await);
        self.check("the first password").await;
    }

    async fn make_token(&self) {
        let browser = &self.browser;
        browser.open("/panel").await;
        browser.click("Tokens").await;
        browser.click("New token").await;
        browser.fill("name", "laptop").await;
        browser.click("Create token").await;
        browser.see("laptop is ready").await;
        let token = browser.text_of("#token").await;
        let ada = self.app.stranger().with_token(&token);
        ada.get("/v1/projects").await.assert(200);
        // It is shown once.
        browser.open("/panel/tokens").await;
        browser.see("laptop").await;
        let page = browser.source().await;
        assert!(!page.contains(&token));
        self.check("the token").await;
    }

    /// Lets a command line in.
    async fn approve_login(&self) {
        let (browser, client) = (&self.browser, self.app.stranger());
        let begun = client.post("/v1/device/code", &json!({"host": "laptop-7"}));
        let begun = begun.await.assert(200);
        browser.open("/panel/tokens").await;
        browser.click("Log in a command line").await;
        browser.fill("code", "BBBB-BBBB").await;
        browser.click("Continue").await;
        browser.see("No login waits for this code").await;
        let typed = begun.field("/user_code").to_lowercase();
        browser.fill("code", &typed).await;
        browser.click("Continue").await;
        browser.see("laptop-7").await;
        browser.see("Only approve what you started yourself").await;
        browser.click("Approve").await;
        browser.arrive("/panel/tokens").await;
        let body = json!({"device_code": begun.field("/device_code")});
        client.post("/v1/device/token", &body).await.assert(200);
        browser.open("/panel/tokens").await;
        browser.see("estrade login on laptop-7").await;
        self.check("the login of a command line").await;
    }

    async fn make_project(&self) {
        let browser = &self.browser;
        browser.open("/panel/projects").await;
        browser.click("Create a project").await;
        browser.fill("name", "Not A Name").await;
        browser.click("Create project").await;
        browser.see("May only contain").await;
        assert_eq!(browser.value("name").await, "Not A Name");
        browser.fill("name", PROJECT).await;
        browser.click("Create project").await;
        browser.see(PROJECT).await;
        self.check("the project").await;
    }

    /// Drops a folder, or uploads an archive, and waits until it is served.
    async fn deploy(&self, version: &str) {
        let browser = &self.browser;
        let path = format!("/panel/projects/{PROJECT}/deploy");
        browser.open(&path).await;
        match self.javascript {
            Javascript::On => {
                let folder = self.write_folder(version);
                browser.drop_onto(".drop", &folder).await;
            }
            Javascript::Off => {
                browser
                    .choose_file("[name=file]", &self.write_archive(version))
                    .await;
                browser.click("Upload and deploy").await;
            }
        }
        self.wait_for_release().await;
        self.check("the release").await;
    }

    /// Waits until a release is open, and is current.
    async fn wait_for_release(&self) {
        let browser = &self.browser;
        let releases = format!("/panel/projects/{PROJECT}/releases/");
        eventually("the release is open", || async {
            browser.path().await.starts_with(&releases)
        })
        .await;
        if self.javascript == Javascript::Off {
            eventually("the release is current", || async {
                browser.reload().await;
                browser.text().await.contains("Current")
            })
            .await;
        }
        // With JavaScript the page follows by itself.
        browser.see("Current").await;
    }

    fn write_folder(&self, version: &str) -> PathBuf {
        let folder = self.folder.path().join("site");
        std::fs::create_dir_all(folder.join("css")).expect("a folder");
        std::fs::write(folder.join("index.html"), page(version)).expect("a file");
        std::fs::write(folder.join("css/style.css"), "h1 { color: teal }").expect("a file");
        folder
    }

    fn write_archive(&self, version: &str) -> PathBuf {
        let path = self.folder.path().join("site.zip");
        let mut archive = ZipWriter::new(File::create(&path).expect("a file"));
        let options = SimpleFileOptions::default();
        let started = archive.start_file("index.html", options);
        started.expect("a file in the archive");
        let written = archive.write_all(page(version).as_bytes());
        written.expect("a file in the archive");
        archive.finish().expect("an archive");
        path
    }

    async fn see_it_live(&self, version: &str) {
        let port = self.app.edge().port();
        let url = format!("http://{PROJECT}.localhost:{port}/");
        let browser = &self.browser;
        let wanted = format!("Version {version}");
        eventually(&wanted, || async {
            browser.open(&url).await;
            browser.text().await.contains(&wanted)
        })
        .await;
        self.check("the site").await;
    }

    async fn roll_back(&self) {
        let browser = &self.browser;
        browser.open(&format!("/panel/projects/{PROJECT}")).await;
        browser.click("Releases").await;
        browser.click("Roll back").await;
        let button = "dialog[open] button.primary, main form button.primary";
        let label = browser.text_of(button).await;
        assert!(label.starts_with("Roll back to "), "{label}");
        browser.click(&label).await;
        self.wait_for_release().await;
        browser.see("Why\nRoll back").await;
        self.check("the rollback").await;
    }

    async fn make_key(&self) -> String {
        let browser = &self.browser;
        browser.open("/panel/projects").await;
        browser.click("Keys").await;
        browser.click("Create the first key").await;
        browser.fill("name", "ci-bot").await;
        browser.fill("more_workspaces", "main").await;
        browser.click("Create key").await;
        browser.see("shown once").await;
        let key = browser.text_of("#key-secret").await;
        self.check("the key").await;
        key
    }

    async fn call(&self, key: &str) -> estrade_testkit::ApiResponse {
        let call =
            json!({"model": "estrade/echo", "messages": [{"role": "user", "content": "hello"}]});
        let stranger: User = self.app.stranger().ai();
        stranger
            .post("/v1/chat/completions", &call)
            .bearer(key)
            .await
    }

    async fn see_usage(&self) {
        let browser = &self.browser;
        browser.open("/panel/projects").await;
        browser.click("Usage").await;
        // Calls are written down in batches.
        eventually("the call is in the usage", || async {
            browser.reload().await;
            let text = browser.text().await;
            text.contains("estrade/echo") && browser.has("svg.plot-svg").await
        })
        .await;
        browser.click("Calls").await;
        browser.see("estrade/echo").await;
        self.check("the usage").await;
    }

    async fn disable_key(&self) {
        let browser = &self.browser;
        browser.open("/panel/keys").await;
        browser.click("ci-bot is enabled").await;
        browser.see("ci-bot was disabled").await;
        self.check("the key that is disabled").await;
    }
}

/// A page that asks for nothing else.
fn page(version: &str) -> String {
    format!(
        "<!doctype html><html lang=en><title>Site</title><link rel=icon href='data:,'><h1>Version {version}</h1>"
    )
}
