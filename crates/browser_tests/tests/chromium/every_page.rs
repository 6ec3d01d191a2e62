//! What must hold on every page.

use crate::accessibility::serious_violations;
use crate::browser::{Browser, DESKTOP, Javascript, PHONE, Theme};
use crate::crawl::{Crawl, shape};
use crate::furnish::{Furnished, SERVICE, SITE, furnish, sign_in};
use estrade_testkit::{Backend, TestApp};
use std::path::PathBuf;

/// Most bytes of a first visit.
const MAX_TRANSFER: u64 = 100 * 1024;
const TEXT: &str = "Summer sale";
/// Pages that are not there, which is a page too.
const MISSING: [&str; 2] = ["/panel/no-such-page", "/panel/welcome/used"];
/// What somebody writes who wants to run a script in the browser of others.
const HOSTILE: &str =
    r#"'"><img src=x onerror="document.title='owned'"><script>document.title='owned'</script>"#;
/// Whether anything of [`HOSTILE`] is more than text in the page.
const IS_OWNED: &str = "return document.title === 'owned' || document.querySelector('img[src=\"x\"], script:not([src]), [onerror]') !== null";

/// Pages that must be among those that links lead to.
fn expected() -> Vec<String> {
    let pages = [
        "projects",
        "projects/new",
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
fn beginnings(furnished: &Furnished) -> Vec<String> {
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_people_write_stays_text() {
    let app = TestApp::start(Backend::Sqlite).await;
    let furnished = furnish(&app, HOSTILE).await;
    let browser = Browser::start(&app, Javascript::On).await;
    browser.open(&furnished.invitation).await;
    assert_eq!(browser.run(IS_OWNED, Vec::new()).await, false);
    sign_in(&browser, furnished.email).await;
    browser.open("/panel/account").await;
    browser.fill("fullname", HOSTILE).await;
    browser.click("Save").await;

    let mut crawl = Crawl::new(beginnings(&furnished));
    let (mut problems, mut showing) = (Vec::new(), Vec::new());
    while let Some(path) = crawl.next() {
        browser.open(&path).await;
        if browser.run(IS_OWNED, Vec::new()).await != false {
            problems.push(format!("{path} runs what people wrote"));
        }
        problems.extend(browser.take_activity().await.problems(&path));
        if browser.text().await.contains("onerror") {
            showing.push(shape(&path));
        }
        crawl.note_links(&browser).await;
    }
    browser.finish().await;
    app.finish().await;
    assert!(problems.is_empty(), "{}", problems.join("\n"));
    // Otherwise nothing was tried.
    for page in [
        format!("/panel/projects/{SITE}/releases"),
        format!("/panel/projects/{SITE}/releases/{{id}}"),
        format!("/panel/projects/{SERVICE}/logs"),
        "/panel/account".to_owned(),
        "/panel/team".to_owned(),
    ] {
        assert!(showing.contains(&page), "{page} does not show the text");
    }
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
        photograph_page(&browser, &path, &folder).await;
        crawl.note_links(&browser).await;
    }
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
    for screen in [DESKTOP, PHONE] {
        browser.resize(screen).await;
        for theme in Theme::ALL {
            browser.prefer(theme).await;
            let (screen_name, theme) = (screen.name, theme.name());
            let file = format!("{name}{scope}.{screen_name}.{theme}.png");
            browser.photograph(screen, &folder.join(file)).await;
        }
    }
    browser.take_activity().await;
}
