//! What must hold on every page.

use crate::accessibility::serious_violations;
use crate::browser::{Browser, DESKTOP, Javascript, PHONE, Theme};
use crate::crawl::{Crawl, shape};
use crate::entry_points::{everywhere, is_refused};
use crate::form_answers::open_each;
use crate::furnish::{SERVICE, SITE, furnish, sign_in};
use estrade_testkit::{Backend, TestApp};
use std::path::PathBuf;

/// Most bytes of a first visit.
const MAX_TRANSFER: u64 = 100 * 1024;
const TEXT: &str = "Summer sale";

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
        "confirm",
        "team/new",
        "team/invite",
        "team/delete",
        "team/members/{id}",
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
    let mut crawl = Crawl::new(everywhere(&furnished));
    while let Some(path) = crawl.next() {
        check_page(&browser, &path, &mut problems).await;
        crawl.note_links(&browser).await;
    }
    open_each(&app, &browser, &furnished, async |name: &str| {
        check_open(&browser, name, &mut problems).await;
    })
    .await;
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
    browser.take_activity().await;
    browser.open(path).await;
    let status = browser.status().await;
    if is_refused(path) != (status >= 400) {
        problems.push(format!("{path}: status {status}"));
    }
    check_open(browser, path, problems).await;
}

/// Notes what is wrong with the page that is open, and how large it was with what led to it.
async fn check_open(browser: &Browser, name: &str, problems: &mut Vec<String>) {
    let activity = browser.take_activity().await;
    problems.extend(activity.problems(name));
    let transferred = activity.transferred;
    if transferred > MAX_TRANSFER {
        problems.push(format!("{name}: {transferred} bytes on the first visit"));
    }
    for theme in Theme::ALL {
        browser.prefer(theme).await;
        for violation in serious_violations(browser).await {
            problems.push(format!("{name}, {}: {violation:#}", theme.name()));
        }
    }
    browser.resize(PHONE).await;
    let overflow = browser.overflow(PHONE).await;
    if overflow > 0.0 {
        problems.push(format!("{name}: {overflow} px wider than a phone"));
    }
    browser.resize(DESKTOP).await;
    problems.extend(browser.take_activity().await.problems(name));
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
    let mut crawl = Crawl::new(everywhere(&furnished));
    while let Some(path) = crawl.next() {
        // Whoever is signed in is sent on: the picture would be one of the projects.
        if path.starts_with("/panel/sign-in") {
            continue;
        }
        photograph_page(&browser, &path, &folder).await;
        crawl.note_links(&browser).await;
    }
    open_each(&app, &browser, &furnished, async |name: &str| {
        photograph(&browser, name, &folder).await;
        browser.resize(DESKTOP).await;
    })
    .await;
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
