//! A person's browser: Chromium without a window, which reaches only this machine.

use crate::activity::Activity;
use crate::chromedriver::Chromedriver;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use estrade_testkit::{Api, TestApp, eventually, eventually_or};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use thirtyfour::common::capabilities::desiredcapabilities::Capabilities;
use thirtyfour::prelude::*;

/// Nothing leaves this machine: names do not resolve, proxies are not asked, and Chromium's own services are off.
const ARGUMENTS: [&str; 11] = [
    "--headless=new",
    "--no-sandbox",
    "--disable-dev-shm-usage",
    "--disable-gpu",
    "--hide-scrollbars",
    "--no-first-run",
    "--no-proxy-server",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost, EXCLUDE *.localhost",
];

/// A setting of Chromium: 2 is "block".
const JAVASCRIPT: &str = "profile.managed_default_content_settings.javascript";

/// How long a page may take until what it must have is there.
const LOAD_TIMEOUT: Duration = Duration::from_secs(15);
/// How often a page that is on its way is looked at.
const FIND_INTERVAL: Duration = Duration::from_millis(50);

/// Whether pages may run scripts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Javascript {
    On,
    Off,
}

/// What a person prefers.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Theme {
    Light,
    Dark,
}

impl Theme {
    pub(crate) const ALL: [Self; 2] = [Self::Light, Self::Dark];

    /// As in `prefers-color-scheme`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Light => "light",
            Self::Dark => "dark",
        }
    }
}

/// How large the screen is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Screen {
    pub(crate) name: &'static str,
    pub(crate) width: u32,
    pub(crate) height: u32,
}

/// A phone, held upright.
pub(crate) const PHONE: Screen = Screen {
    name: "phone",
    width: 390,
    height: 844,
};
/// A small laptop.
pub(crate) const DESKTOP: Screen = Screen {
    name: "desktop",
    width: 1280,
    height: 900,
};

/// A browser with a profile of its own. Fields are dropped from the top: the session ends before its driver.
pub(crate) struct Browser {
    driver: WebDriver,
    origin: String,
    _chromedriver: Chromedriver,
    _profile: TempDir,
}

impl Browser {
    /// Starts one that looks at the panel of `app`.
    pub(crate) async fn start(app: &TestApp, javascript: Javascript) -> Self {
        Self::start_at(app.address(Api::Platform), javascript).await
    }

    async fn start_at(server: SocketAddr, javascript: Javascript) -> Self {
        let chromedriver = Chromedriver::start();
        let profile = TempDir::new().expect("a temporary directory");
        let client = reqwest::Client::builder().no_proxy().build();
        let driver =
            WebDriver::builder(chromedriver.url(), capabilities(profile.path(), javascript))
                .client(client.expect("an HTTP client"))
                .await
                .expect("Chromium: `./test browser` installs Debian's chromium when it is missing");
        let browser = Self {
            driver,
            origin: format!("http://{server}"),
            _chromedriver: chromedriver,
            _profile: profile,
        };
        browser.resize(DESKTOP).await;
        browser.prefer(Theme::Light).await;
        // What Chromium does on its own when it starts is nobody's page.
        browser.take_activity().await;
        browser
    }

    /// Sends a command of the DevTools protocol.
    async fn command(&self, name: &str, parameters: Value) -> Value {
        let sent = self.driver.cdp().send_raw(name, parameters).await;
        sent.unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    /// Changes the size of the screen.
    pub(crate) async fn resize(&self, screen: Screen) {
        let parameters = json!({
            "width": screen.width,
            "height": screen.height,
            "deviceScaleFactor": 1,
            "mobile": screen.width < 600,
        });
        self.command("Emulation.setDeviceMetricsOverride", parameters)
            .await;
    }

    /// Changes what the person prefers. Without motion: colours on their way from one theme to the other are no
    /// colours of a page.
    pub(crate) async fn prefer(&self, theme: Theme) {
        let features = json!([
            {"name": "prefers-color-scheme", "value": theme.name()},
            {"name": "prefers-reduced-motion", "value": "reduce"},
        ]);
        self.command(
            "Emulation.setEmulatedMedia",
            json!({ "features": features }),
        )
        .await;
    }

    /// Forgets what was loaded, so that the next page is a first visit.
    pub(crate) async fn clear_cache(&self) {
        self.command("Network.clearBrowserCache", json!({})).await;
    }

    /// Opens a page by its path, or by its whole address.
    pub(crate) async fn open(&self, path: &str) {
        let url = if path.starts_with('/') {
            format!("{}{path}", self.origin)
        } else {
            path.to_owned()
        };
        let opened = self.driver.goto(url.as_str()).await;
        opened.unwrap_or_else(|error| panic!("{url}: {error}"));
    }

    /// Takes the network away, or gives it back.
    pub(crate) async fn set_offline(&self, offline: bool) {
        // -1 is as fast as the machine.
        let conditions = json!({
            "offline": offline, "latency": 0, "downloadThroughput": -1, "uploadThroughput": -1,
        });
        self.command("Network.emulateNetworkConditions", conditions)
            .await;
    }

    /// Opens the page again.
    pub(crate) async fn reload(&self) {
        self.driver.refresh().await.expect("the page again");
    }

    /// The markup of the page.
    pub(crate) async fn source(&self) -> String {
        self.driver.source().await.expect("the markup")
    }

    /// Path and query of the page.
    pub(crate) async fn path(&self) -> String {
        let url = self.driver.current_url().await.expect("an address");
        let path = url.as_str();
        path.strip_prefix(&self.origin).unwrap_or(path).to_owned()
    }

    /// What the page says, as far as it can be seen.
    pub(crate) async fn text(&self) -> String {
        match self.driver.find(By::Tag("body")).await {
            // The page may be on its way out.
            Ok(body) => body.text().await.unwrap_or_default(),
            Err(_) => String::new(),
        }
    }

    /// The status of the page.
    pub(crate) async fn status(&self) -> u64 {
        const STATUS: &str = "return performance.getEntriesByType('navigation')[0].responseStatus";
        let status = self.run(STATUS, Vec::new()).await;
        status.as_u64().expect("a status")
    }

    /// Waits until the page says something.
    pub(crate) async fn see(&self, text: &str) {
        let last = Arc::new(Mutex::new(String::new()));
        eventually_or(
            || format!("the page says {text:?}: {}", last.lock().expect("no panic")),
            || async {
                let page = format!("{}\n{}", self.path().await, self.text().await);
                let found = page.contains(text);
                *last.lock().expect("no panic") = page;
                found
            },
        )
        .await;
    }

    /// Waits until the page is at a path.
    pub(crate) async fn arrive(&self, path: &str) {
        let last = Arc::new(Mutex::new(String::new()));
        eventually_or(
            || format!("the page is {path}: {}", last.lock().expect("no panic")),
            || async {
                let at = self.path().await;
                let arrived = at.split('?').next() == Some(path);
                *last.lock().expect("no panic") = at;
                arrived
            },
        )
        .await;
    }

    /// The first element of a CSS selector, once there is one: a page may be on its way.
    pub(crate) async fn find(&self, selector: &str) -> WebElement {
        let started = Instant::now();
        loop {
            let found = self.driver.find_all(By::Css(selector)).await;
            if let Some(first) = found.expect("a selector").into_iter().next() {
                return first;
            }
            if started.elapsed() > LOAD_TIMEOUT {
                let (path, text) = (self.path().await, self.text().await);
                panic!("no {selector} on {path}: {text}");
            }
            tokio::time::sleep(FIND_INTERVAL).await;
        }
    }

    /// Whether anything matches a CSS selector.
    pub(crate) async fn has(&self, selector: &str) -> bool {
        let found = self.driver.find_all(By::Css(selector)).await;
        !found.expect("a selector").is_empty()
    }

    /// Types into the field of this name, instead of what it holds.
    pub(crate) async fn fill(&self, name: &str, value: &str) {
        let field = self.find(&format!("[name=\"{name}\"]")).await;
        field.clear().await.expect("an empty field");
        field.send_keys(value).await.expect("a field to type into");
    }

    /// Drops a file or a folder of this machine onto an element.
    pub(crate) async fn drop_onto(&self, selector: &str, path: &Path) {
        let element = self.find(selector).await;
        element.scroll_into_view().await.expect("a place to drop");
        let place = self.run(CENTRE, vec![json!(selector)]).await;
        let data = json!({"items": [], "files": [path], "dragOperationsMask": 1});
        for kind in ["dragEnter", "dragOver", "drop"] {
            let event = json!({"type": kind, "x": place[0], "y": place[1], "data": data});
            self.command("Input.dispatchDragEvent", event).await;
        }
    }

    /// Chooses a file or a folder of this machine in the first field of a CSS selector.
    pub(crate) async fn choose_file(&self, selector: &str, file: &Path) {
        let field = self.find(selector).await;
        let file = file.to_str().expect("a path that is text");
        field.send_keys(file).await.expect("a field for files");
    }

    /// Sends the form with this number among those of the content, with `text` in every field that shows text: also
    /// where the page asks for something shorter. Says whether there was such a form.
    pub(crate) async fn send_form(&self, number: usize, text: &str) -> bool {
        let sent = self.run(SEND_FORM, vec![json!(number), json!(text)]).await;
        if sent == false {
            return false;
        }
        eventually("the answer to a form is shown", || async {
            !self.has("html[data-left]").await
        })
        .await;
        true
    }

    /// What the first element of a CSS selector says.
    pub(crate) async fn text_of(&self, selector: &str) -> String {
        let text = self.find(selector).await.text().await;
        text.unwrap_or_else(|error| panic!("{selector}: {error}"))
    }

    /// What the field of this name holds.
    pub(crate) async fn value(&self, name: &str) -> String {
        let field = self.find(&format!("[name=\"{name}\"]")).await;
        field
            .prop("value")
            .await
            .expect("a field")
            .unwrap_or_default()
    }

    /// Clicks the button or link that says this.
    pub(crate) async fn click(&self, text: &str) {
        let path = format!(
            "//*[self::button or self::a or self::summary or self::label][normalize-space()={0} or @aria-label={0}]",
            quoted(text)
        );
        let started = Instant::now();
        while started.elapsed() < LOAD_TIMEOUT {
            let all = self.driver.find_all(By::XPath(path.as_str())).await;
            for element in all.expect("a path") {
                if element.is_displayed().await.unwrap_or_default() {
                    let clicked = element.click().await;
                    return clicked.unwrap_or_else(|error| panic!("{text}: {error}"));
                }
            }
            tokio::time::sleep(FIND_INTERVAL).await;
        }
        panic!(
            "no {text:?} to click on {}: {}",
            self.path().await,
            self.text().await
        );
    }

    /// Runs a script in the page and waits for its value.
    pub(crate) async fn run(&self, script: &str, arguments: Vec<Value>) -> Value {
        let ran = self.driver.execute(script, arguments).await;
        let value = ran.unwrap_or_else(|error| panic!("a script failed: {error}"));
        value.json().clone()
    }

    /// Runs a script in the page that calls its last argument with its value.
    pub(crate) async fn run_async(&self, script: &str) -> Value {
        let ran = self.driver.execute_async(script, Vec::new()).await;
        let value = ran.unwrap_or_else(|error| panic!("a script failed: {error}"));
        value.json().clone()
    }

    /// What happened since the last look.
    pub(crate) async fn take_activity(&self) -> Activity {
        let performance = self.driver.get_log("performance").await.expect("a log");
        let console = self.driver.get_log("browser").await.expect("a log");
        Activity::read(&performance, &console)
    }

    /// Writes a picture of the whole page, as long as it is.
    pub(crate) async fn photograph(&self, screen: Screen, file: &Path) {
        let size = self.command("Page.getLayoutMetrics", json!({})).await["cssContentSize"].clone();
        let height = size["height"].as_f64().unwrap_or_default();
        let clip = json!({
            "x": 0,
            "y": 0,
            "width": screen.width,
            "height": height.clamp(f64::from(screen.height), MAX_PICTURE_HEIGHT),
            "scale": 1,
        });
        let parameters = json!({"format": "png", "captureBeyondViewport": true, "clip": clip});
        let taken = self.command("Page.captureScreenshot", parameters).await;
        let picture = taken["data"].as_str().expect("a picture");
        let picture = STANDARD.decode(picture).expect("base64");
        std::fs::write(file, picture).expect("a file for the picture");
    }

    /// How wide the page is beyond the screen.
    pub(crate) async fn overflow(&self, screen: Screen) -> f64 {
        let size = self.command("Page.getLayoutMetrics", json!({})).await["cssContentSize"].clone();
        size["width"].as_f64().unwrap_or_default() - f64::from(screen.width)
    }

    /// Demands that nothing went wrong since the last look, and closes the browser.
    pub(crate) async fn finish(self) {
        let path = self.path().await;
        self.take_activity().await.assert_clean(&path);
        self.driver.quit().await.expect("the end of the session");
    }
}

/// The middle of an element on the screen.
const CENTRE: &str = "
    const box = document.querySelector(arguments[0]).getBoundingClientRect();
    return [box.x + box.width / 2, box.y + box.height / 2];";

/// Fills and sends a form without asking the checks of its fields. The page that is left has a mark.
const SEND_FORM: &str = "
    const texts = 'input:not([type]), input[type=text], input[type=email], input[type=url], input[type=search], textarea';
    const forms = [...document.querySelectorAll('main form:not([method=dialog], [enctype], [data-playground])')]
        .filter(form => form.querySelector(texts));
    const form = forms[arguments[0]];
    if (!form) return false;
    for (const field of form.querySelectorAll(texts)) field.value = arguments[1];
    document.documentElement.dataset.left = '';
    HTMLFormElement.prototype.submit.call(form);
    return true;";

/// What fits into a picture; longer pages are cut.
const MAX_PICTURE_HEIGHT: f64 = 6_000.0;

fn capabilities(profile: &Path, javascript: Javascript) -> Capabilities {
    let mut arguments: Vec<String> = ARGUMENTS.map(str::to_owned).into();
    arguments.push(format!("--user-data-dir={}", profile.display()));
    let mut preferences = json!({});
    if javascript == Javascript::Off {
        preferences[JAVASCRIPT] = json!(2);
    }
    let capabilities = json!({
        "browserName": "chrome",
        "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"},
        "goog:chromeOptions": {"args": arguments, "prefs": preferences},
    });
    match capabilities {
        Value::Object(map) => Capabilities::from(map),
        _ => Capabilities::new(),
    }
}

/// A text as XPath writes it, which knows no escapes.
fn quoted(text: &str) -> String {
    let quote = if text.contains('\'') { '"' } else { '\'' };
    format!("{quote}{text}{quote}")
}
