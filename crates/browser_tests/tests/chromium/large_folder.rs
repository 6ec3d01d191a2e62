//! Folders with many files: all of them arrive, and afterwards only what has changed.

use crate::browser::{Browser, Javascript};
use crate::furnish::{furnish, sign_in};
use estrade_testkit::{Backend, Setup, TestApp};
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};
use tempfile::TempDir;

const PROJECT: &str = "atlas";
/// A bound for what hangs, far above what a busy machine takes.
const UPLOAD_TIMEOUT: Duration = Duration::from_mins(8);

/// The limits of an installation that nobody has configured.
fn usual_limits() -> Setup {
    Setup::with(|setup| {
        setup.requests_per_second = 500;
        setup.burst = 2000;
        setup.account_requests_per_second = 2000;
        setup.account_burst = 8000;
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_folder_is_deployed() {
    let is_full = std::env::var_os("ESTRADE_TEST_FULL").is_some_and(|value| value == "1");
    let files = if is_full { 10_000 } else { 1_000 };
    let app = TestApp::start_with(Backend::Sqlite, usual_limits()).await;
    let furnished = furnish(&app, "Summer sale").await;
    let new = serde_json::json!({"name": PROJECT, "platform": "static", "planID": "nano"});
    let ada = app.admin().await;
    ada.post("/v1/projects", &new).await.assert(200);
    let directory = TempDir::new().expect("a temporary directory");
    let folder = directory.path().join("atlas");
    write_pages(&folder, files);
    let browser = Browser::start(&app, Javascript::On).await;
    sign_in(&browser, furnished.email).await;

    browser
        .open(&format!("/panel/projects/{PROJECT}/deploy"))
        .await;
    browser.drop_onto(".drop", &folder).await;
    assert_eq!(wait_for_release(&browser).await, files);
    see_page(&app, &browser, files - 1, "As it was").await;

    // The other way, with one file changed.
    let last = page_path(&folder, files - 1);
    fs::write(last, page(files - 1, "As it is")).expect("a file");
    browser
        .open(&format!("/panel/projects/{PROJECT}/deploy"))
        .await;
    browser.choose_file("input[data-folder]", &folder).await;
    assert_eq!(wait_for_release(&browser).await, 1);
    see_page(&app, &browser, files - 1, "As it is").await;
    see_page(&app, &browser, 0, "As it was").await;
    browser.finish().await;
    app.finish().await;
}

/// A hundred pages to a folder, each with a text of its own.
fn write_pages(folder: &Path, count: usize) {
    for number in 0..count {
        let path = page_path(folder, number);
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        fs::write(path, page(number, "As it was")).expect("a file");
    }
}

fn page_path(folder: &Path, number: usize) -> std::path::PathBuf {
    folder.join(format!("{}/{number}.html", number / 100))
}

fn page(number: usize, text: &str) -> String {
    format!(
        "<!doctype html><html lang=en><title>{number}</title><link rel=icon href='data:,'><h1>{text}: {number}</h1>"
    )
}

/// Waits until the release is current; returns how many contents were sent for it.
async fn wait_for_release(browser: &Browser) -> usize {
    let started = Instant::now();
    let releases = format!("/panel/projects/{PROJECT}/releases/");
    let mut uploads = 0;
    loop {
        // Often: the browser keeps a note of every request until somebody looks.
        let activity = browser.take_activity().await;
        activity.assert_clean("the upload");
        uploads += activity.uploads;
        let text = browser.text().await;
        if browser.path().await.starts_with(&releases) && text.contains("Current") {
            return uploads;
        }
        assert!(started.elapsed() < UPLOAD_TIMEOUT, "{text}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

async fn see_page(app: &TestApp, browser: &Browser, number: usize, text: &str) {
    let port = app.edge().port();
    let folder = number / 100;
    browser
        .open(&format!(
            "http://{PROJECT}.localhost:{port}/{folder}/{number}.html"
        ))
        .await;
    browser.see(&format!("{text}: {number}")).await;
}
