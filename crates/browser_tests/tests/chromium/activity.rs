//! What a browser did since somebody last looked: its requests, and what its console says.

use serde_json::Value;
use std::collections::HashMap;
use thirtyfour::BrowserLogEntry;

/// What happened.
#[derive(Debug, Default)]
pub(crate) struct Activity {
    /// Requests to anything but loopback.
    pub(crate) foreign_requests: Vec<String>,
    /// Errors of the console.
    pub(crate) errors: Vec<String>,
    /// Bytes that came over the network, heads of responses included.
    pub(crate) transferred: u64,
    /// How many contents were uploaded.
    pub(crate) uploads: usize,
    /// The status of each document, by its address.
    pub(crate) documents: HashMap<String, u64>,
}

impl Activity {
    /// Reads chromedriver's logs `performance` and `browser`.
    pub(crate) fn read(performance: &[BrowserLogEntry], console: &[BrowserLogEntry]) -> Self {
        let mut activity = Self::default();
        for entry in performance {
            let entry: Value = serde_json::from_str(&entry.message).expect("an event");
            activity.note_event(&entry["message"]);
        }
        for entry in console.iter().filter(|entry| entry.level == "SEVERE") {
            if !activity.is_status_of_document(entry) {
                activity.errors.push(entry.message.clone());
            }
        }
        activity
    }

    fn note_event(&mut self, event: &Value) {
        let parameters = &event["params"];
        match event["method"].as_str().unwrap_or_default() {
            "Network.requestWillBeSent" => {
                let url = text(&parameters["request"]["url"]);
                self.uploads += usize::from(parameters["request"]["method"] == "PUT");
                if !is_ours(url) {
                    self.foreign_requests.push(url.to_owned());
                }
            }
            "Network.webSocketCreated" if !is_ours(text(&parameters["url"])) => {
                self.foreign_requests
                    .push(text(&parameters["url"]).to_owned());
            }
            "Network.responseReceived" if parameters["type"] == "Document" => {
                let response = &parameters["response"];
                let status = response["status"].as_u64().unwrap_or_default();
                let url = text(&response["url"]).to_owned();
                self.documents.insert(url, status);
            }
            "Network.loadingFinished" => {
                // A number with a fraction in the protocol.
                let bytes = parameters["encodedDataLength"].as_f64().unwrap_or_default();
                #[expect(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    reason = "a number of bytes"
                )]
                let bytes = bytes as u64;
                self.transferred += bytes;
            }
            _ => {}
        }
    }

    /// Chromium calls it an error when the page itself is, say, a 404. Pages may be; what they load may not.
    fn is_status_of_document(&self, entry: &BrowserLogEntry) -> bool {
        let is_status = entry.message.contains("responded with a status of");
        let url = entry.message.split(' ').next().unwrap_or_default();
        is_status && self.documents.contains_key(url)
    }

    /// What must not happen on a page and did.
    pub(crate) fn problems(&self, page: &str) -> Vec<String> {
        let foreign = self.foreign_requests.iter();
        let foreign = foreign.map(|url| format!("{page} asks another host: {url}"));
        let errors = self.errors.iter();
        let errors = errors.map(|error| format!("{page}, console: {error}"));
        foreign.chain(errors).collect()
    }

    /// Demands that no other host was asked and nothing went wrong.
    pub(crate) fn assert_clean(&self, page: &str) {
        let problems = self.problems(page);
        assert!(problems.is_empty(), "{}", problems.join("\n"));
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// Whether an address stays on this machine: on loopback, or in the browser itself.
fn is_ours(url: &str) -> bool {
    let Some((scheme, rest)) = url.split_once(':') else {
        return false;
    };
    if !matches!(scheme, "http" | "https" | "ws" | "wss") {
        return matches!(scheme, "data" | "blob" | "about" | "chrome");
    }
    let authority = rest.trim_start_matches('/').split(['/', '?', '#']).next();
    let host = authority.unwrap_or_default().rsplit('@').next();
    let host = host.unwrap_or_default().split(':').next();
    let host = host.unwrap_or_default();
    host == "127.0.0.1" || host == "localhost" || host.ends_with(".localhost")
}

#[test]
fn only_loopback_is_ours() {
    assert!(is_ours("http://127.0.0.1:3000/panel"));
    assert!(is_ours("ws://shop.localhost:80/"));
    assert!(is_ours("data:image/svg+xml,x"));
    assert!(!is_ours("https://fonts.example.com/a.woff2"));
    assert!(!is_ours("http://127.0.0.1@example.com/"));
    assert!(!is_ours("//example.com/"));
    assert!(!is_ours("ftp://127.0.0.1/"));
}
