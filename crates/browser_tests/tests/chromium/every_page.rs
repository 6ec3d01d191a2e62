//! What must hold on every page.

use crate::accessibility::serious_violations;
use crate::browser::{Browser, DESKTOP, Javascript, PHONE, Theme};
use crate::crawl::{Crawl, shape};
use crate::furnish::{Furnished, SERVICE, SITE, furnish, sign_in};
use estrade_testkit::{Backend, TestApp};
use serde_json::json;
use std::path::PathBuf;

/// Most bytes of a first visit.
const MAX_TRANSFER: u64 = 100 * 1024;
const TEXT: &str = "Summer sale";
/// Pages that are not there, which is a page too.
const MISSING: [&str; 2] = ["/panel/no-such-page", "/panel/welcome/used"];
/// Pages that must be among those that links lead to.
fn expected() -> Vec<String> {
    let pages = [
        "projects",
        "new-project",
        "workspaces",
        "keys",
        "keys/new",
        "keys/{id}",
        "usage",
        "calls",
        "playground",
        "models",
        "team",
        "tokens",
        "tokens/new",
        "device",
        "sessions",
        "account",
        "account/password",
        "account/second-factor",
        "audit",
        "admin/accounts",
        "admin/providers",
        "admin/status",
    ];
    let mut expected: Vec<String> = pages.map(|page| format!("/panel/{page}")).into();
    let tabs = [
        "",
        "/releases",
        "/releases/{id}",
        "/logs",
        "/environment",
        "/domains",
        "/settings",
        "/deploy",
    ];
    expected.extend(tabs.map(|tab| format!("/panel/projects/{SITE}{tab}")));
    expected.push(format!("/panel/projects/{SERVICE}/disks"));
    expected
}

/// Where to begin: what no link leads to, and what differs in a team.
pub(crate) fn beginnings(furnished: &Furnished) -> Vec<String> {
    let team = &furnished.team;
    vec![
        "/panel/projects".to_owned(),
        "/panel/keys".to_owned(),
        MISSING[0].to_owned(),
        MISSING[1].to_owned(),
        format!("/panel/projects?team={team}"),
        format!("/panel/keys?team={team}"),
        format!("/panel/team?team={team}"),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pages_are_small_quiet_and_accessible() {
    let app = TestApp::start(Backend::Sqlite).await;
    let furnished = furnish(&app, TEXT).await;
    let browser = Browser::start(&app, Javascript::On).await;
    let mut problems = Vec::new();
    for path in ["/panel/sign-in", &furnished.invitation] {
        check_page(&browser, path, &mut problems).await;
    }
    sign_in(&browser, furnished.email).await;
    let mut crawl = Crawl::new(beginnings(&furnished));
    while let Some(path) = crawl.next() {
        check_page(&browser, &path, &mut problems).await;
        crawl.note_links(&browser).await;
    }
    check_login(&app, &browser, &mut problems).await;
    let mut missing = expected();
    missing.retain(|page| !crawl.has_seen(page));
    browser.finish().await;
    app.finish().await;
    assert!(problems.is_empty(), "{}", problems.join("\n"));
    assert!(missing.is_empty(), "no link leads to {missing:?}");
}

/// Opens a page as somebody who never was there, and notes what is wrong with it.
async fn check_page(browser: &Browser, path: &str, problems: &mut Vec<String>) {
    browser.clear_cache().await;
    browser.resize(DESKTOP).await;
    browser.open(path).await;
    let activity = browser.take_activity().await;
    problems.extend(activity.problems(path));
    let status = activity.documents.values().max();
    if !MISSING.contains(&path) && status.is_none_or(|status| *status >= 400) {
        problems.push(format!("{path}: status {status:?}"));
    }
    let transferred = activity.transferred;
    if transferred > MAX_TRANSFER {
        problems.push(format!("{path}: {transferred} bytes on the first visit"));
    }
    for theme in Theme::ALL {
        browser.prefer(theme).await;
        for violation in serious_violations(browser).await {
            problems.push(format!("{path}, {}: {violation:#}", theme.name()));
        }
    }
    browser.resize(PHONE).await;
    let overflow = browser.overflow(PHONE).await;
    if overflow > 0.0 {
        problems.push(format!("{path}: {overflow} px wider than a phone"));
    }
    problems.extend(browser.take_activity().await.problems(path));
}

/// The page that no address leads to: it answers the form with the code.
async fn check_login(app: &TestApp, browser: &Browser, problems: &mut Vec<String>) {
    open_login(app, browser).await;
    for theme in Theme::ALL {
        browser.prefer(theme).await;
        for violation in serious_violations(browser).await {
            problems.push(format!("a login, {}: {violation:#}", theme.name()));
        }
    }
    browser.resize(PHONE).await;
    if browser.overflow(PHONE).await > 0.0 {
        problems.push("a login: wider than a phone".to_owned());
    }
    browser.resize(DESKTOP).await;
    problems.extend(browser.take_activity().await.problems("a login"));
}

/// Begins a login of the command line, and opens the question whether to approve it.
async fn open_login(app: &TestApp, browser: &Browser) {
    let host = "a-machine-with-a-long-name".repeat(3);
    let begun = app
        .stranger()
        .post("/v1/device/code", &json!({"host": host}));
    let code = begun.await.assert(200).field("/user_code");
    browser.open(&format!("/panel/device?code={code}")).await;
    browser.click("Continue").await;
    browser.see("Approve this login?").await;
}

/// Pictures for people to look at.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "writes files: ./test screenshots"]
async fn screenshots() {
    let folder = std::env::var_os("ESTRADE_SCREENSHOTS").expect("ESTRADE_SCREENSHOTS: a folder");
    let folder = PathBuf::from(folder);
    std::fs::create_dir_all(&folder).expect("a folder");
    let app = TestApp::start(Backend::Sqlite).await;
    let furnished = furnish(&app, TEXT).await;
    let browser = Browser::start(&app, Javascript::On).await;
    for path in ["/panel/sign-in", &furnished.invitation] {
        photograph_page(&browser, path, &folder).await;
    }
    sign_in(&browser, furnished.email).await;
    let mut crawl = Crawl::new(beginnings(&furnished));
    while let Some(path) = crawl.next() {
        // Whoever is signed in is sent on: the picture would be one of the projects.
        if path.starts_with("/panel/sign-in") {
            continue;
        }
        photograph_page(&browser, &path, &folder).await;
        crawl.note_links(&browser).await;
    }
    open_login(&app, &browser).await;
    photograph(&browser, "device_request", &folder).await;
    browser.finish().await;
    app.finish().await;
}

/// Light and dark, on a phone and on a desktop.
async fn photograph_page(browser: &Browser, path: &str, folder: &std::path::Path) {
    browser.open(path).await;
    let shape = shape(path).replace("{id}", "one");
    let name = shape.trim_start_matches("/panel/").replace('/', "_");
    let scope = if path.contains("team=") {
        "_of_team"
    } else {
        ""
    };
    photograph(browser, &format!("{name}{scope}"), folder).await;
}

async fn photograph(browser: &Browser, name: &str, folder: &std::path::Path) {
    for screen in [DESKTOP, PHONE] {
        browser.resize(screen).await;
        for theme in Theme::ALL {
            browser.prefer(theme).await;
            let (screen_name, theme) = (screen.name, theme.name());
            let file = format!("{name}.{screen_name}.{theme}.png");
            browser.photograph(screen, &folder.join(file)).await;
        }
    }
    browser.take_activity().await;
}
