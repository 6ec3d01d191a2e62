//! Getting a token through a browser (RFC 8628): the client's side.
//!
//! The server says which address to open and what code to show. Both go to a terminal and the address to a browser, so
//! that they are checked: a server that is not what it seems must not make a machine open a file or run a program.

use crate::error::{ClientError, Result};
use crate::http::Client;
use crate::url::{authority, is_loopback, is_readable_in_transit};
use estrade_model::secret::Secret;
use estrade_model::token_scope::TokenScope;
use reqwest::{Method, Url};
use serde::Deserialize;
use serde_json::json;
use std::time::Duration;
use tokio::time::Instant;

const START: &str = "/v1/device/code";
const TOKEN: &str = "/v1/device/token";
/// What is added to the wait when the server says that it was too short (RFC 8628, 3.5).
const SLOW_DOWN: Duration = Duration::from_secs(5);
/// A server may make a client wait longer than this between two polls, but the client does not.
const MAX_INTERVAL: Duration = Duration::from_mins(1);
const MIN_INTERVAL: Duration = Duration::from_secs(1);
/// Longest that a login waits, whatever the server says.
const MAX_LIFETIME: Duration = Duration::from_mins(30);
/// How long one poll may take.
const POLL_TIMEOUT: Duration = Duration::from_secs(15);
/// Longest code and address that are shown.
const MAX_CODE_CHARS: usize = 20;
const MAX_ADDRESS_BYTES: usize = 500;

/// What the server answers to a login that begins.
#[derive(Deserialize)]
struct Started {
    device_code: Secret,
    user_code: String,
    verification_uri: String,
    #[serde(default)]
    verification_uri_complete: Option<String>,
    expires_in: u64,
    #[serde(default)]
    interval: Option<u64>,
}

/// A login that waits for its person.
#[derive(Debug)]
pub struct DeviceLogin {
    client: Client,
    device_code: Secret,
    /// What the person types or compares.
    pub user_code: String,
    /// The page that asks for it.
    pub page: String,
    /// The same page with the code filled in.
    pub page_with_code: String,
    /// The host of the page, with its port, when it is another one than the server's. A server that is not what it seems could show
    /// the code of a login that it began elsewhere, to get the token itself.
    pub other_host: Option<String>,
    /// Whether the page is without TLS and the server is not: others on the way could read the password that the person
    /// enters there.
    pub page_without_tls: bool,
    /// How long the code is good.
    pub lifetime: Duration,
    interval: Duration,
    ends_at: Instant,
}

/// The token that came of it.
#[derive(Debug, Deserialize)]
pub struct DeviceToken {
    #[serde(rename = "_id")]
    pub id: String,
    pub api_token: Secret,
    pub scope: TokenScope,
    #[serde(rename = "expiresAt")]
    pub expires_at: String,
}

impl DeviceLogin {
    /// Begins a login at the client's server.
    pub async fn start(client: &Client, scope: TokenScope, host: &str) -> Result<Self> {
        let body = json!({"scope": scope.to_string(), "host": host});
        let request = client.request(Method::POST, START).body(&body)?;
        // No key: it would need a credential. Not again: each request makes another code.
        let started = request.without_key().once().json().await;
        let started: Started = started.map_err(|error| unsupported(client.server(), error))?;
        let malformed = |reason: &str| ClientError::Malformed {
            url: format!("{}{START}", client.server()),
            reason: reason.to_owned(),
        };
        let is_shown = |c: char| c.is_ascii_alphanumeric() || c == '-';
        let code = started.user_code;
        if code.is_empty() || code.len() > MAX_CODE_CHARS || !code.chars().all(is_shown) {
            return Err(malformed("its code has characters that none has"));
        }
        let page = page_address(&started.verification_uri)
            .ok_or_else(|| malformed("the page that it names is not an address of the web"))?;
        let complete = started.verification_uri_complete.as_deref();
        // The code is filled in on the same page, or not at all.
        let complete = complete
            .and_then(page_address)
            .filter(|complete| complete.starts_with(&page));
        let lifetime = Duration::from_secs(started.expires_in).min(MAX_LIFETIME);
        let interval = started.interval.unwrap_or(5);
        Ok(Self {
            client: client.clone(),
            device_code: started.device_code,
            user_code: code,
            other_host: other_host(client.server(), &page),
            page_without_tls: loses_tls(client.server(), &page),
            page_with_code: complete.unwrap_or_else(|| page.clone()),
            page,
            lifetime,
            interval: Duration::from_secs(interval).clamp(MIN_INTERVAL, MAX_INTERVAL),
            ends_at: Instant::now() + lifetime,
        })
    }

    /// Waits until the person has answered, or the code has ended.
    pub async fn wait(&self) -> Result<DeviceToken> {
        let mut interval = self.interval;
        loop {
            if Instant::now() + interval >= self.ends_at {
                tokio::time::sleep_until(self.ends_at).await;
                return Err(self.ended("nobody approved it in time"));
            }
            tokio::time::sleep(interval).await;
            let error = match self.poll().await {
                Ok(token) => return Ok(token),
                Err(error) => error,
            };
            match error.refusal().map(|refusal| refusal.code.as_str()) {
                Some("authorization_pending") => {}
                Some("slow_down") => interval = (interval + SLOW_DOWN).min(MAX_INTERVAL),
                Some("access_denied") => return Err(self.ended("it was denied in the panel")),
                Some("expired_token") => {
                    return Err(self.ended("the code has expired, or was used before; if you approved it, the page Tokens may list a token \
                         that nobody has: revoke it there"));
                }
                // The network of a laptop comes and goes within ten minutes.
                _ if error.may_pass() => interval = (interval + SLOW_DOWN).min(MAX_INTERVAL),
                _ => return Err(error),
            }
        }
    }

    async fn poll(&self) -> Result<DeviceToken> {
        let body = json!({"device_code": self.device_code.expose()});
        let request = self.client.request(Method::POST, TOKEN).body(&body)?;
        let request = request.timeout(Some(POLL_TIMEOUT));
        request.without_key().once().json().await
    }

    fn ended(&self, reason: &str) -> ClientError {
        ClientError::LoginEnded {
            server: self.client.server().to_owned(),
            reason: reason.to_owned(),
        }
    }
}

/// An earlier version knows nothing of this route: it is not there, or wants a credential as all of those do.
fn unsupported(server: &str, error: ClientError) -> ClientError {
    match error.refusal().map(|refusal| refusal.status) {
        Some(401 | 404 | 405) => ClientError::NoBrowserLogin(server.to_owned()),
        _ => error,
    }
}

/// An address that is good for a terminal and for a browser.
fn page_address(text: &str) -> Option<String> {
    let url = Url::parse(text).ok()?;
    let is_web = matches!(url.scheme(), "http" | "https") && url.has_host();
    let is_bare = url.username().is_empty() && url.password().is_none() && url.fragment().is_none();
    // What a URL parser writes has no control characters; what it was given may.
    let shown = url.to_string();
    let is_plain = shown.bytes().all(|byte| byte.is_ascii_graphic());
    (is_web && is_bare && is_plain && shown.len() <= MAX_ADDRESS_BYTES).then_some(shown)
}

/// The host of a page, unless it is the server's; this machine has several names. Of the same scheme the port counts, too:
/// on one machine are servers of several people.
fn other_host(server: &str, page: &str) -> Option<String> {
    let (from, to) = (Url::parse(server).ok()?, Url::parse(page).ok()?);
    let is_same_host =
        from.host_str() == to.host_str() || (is_this_machine(&from) && is_this_machine(&to));
    let is_same_port =
        from.scheme() != to.scheme() || from.port_or_known_default() == to.port_or_known_default();
    (!is_same_host || !is_same_port).then(|| authority(page))
}

/// One of the names that every machine has for itself: names that end with `.localhost` are of different servers.
fn is_this_machine(url: &Url) -> bool {
    is_loopback(url)
        && url
            .host_str()
            .is_some_and(|host| !host.ends_with(".localhost"))
}

fn loses_tls(server: &str, page: &str) -> bool {
    server.starts_with("https:") && is_readable_in_transit(page)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_at_another_host_is_told_apart() {
        let host = |server: &str, page: &str| other_host(server, page);
        let page = "https://cloud.example.com/panel/device";
        assert_eq!(host("https://cloud.example.com", page), None);
        assert_eq!(host("http://cloud.example.com:3000", page), None);
        assert_eq!(
            host("http://localhost:3000", "http://127.0.0.1:3000/x"),
            None
        );
        assert_eq!(
            host("https://evil.example", page).as_deref(),
            Some("cloud.example.com")
        );
        for (server, page, other) in [
            (
                "http://localhost:3000",
                "http://localhost:4000/x",
                "localhost:4000",
            ),
            (
                "http://a.localhost:3000",
                "http://b.localhost:3000/x",
                "b.localhost:3000",
            ),
            (
                "https://cloud.example.com",
                "https://cloud.example.com:8443/x",
                "cloud.example.com:8443",
            ),
        ] {
            assert_eq!(host(server, page).as_deref(), Some(other));
        }
    }

    #[test]
    fn a_page_without_tls_is_told_apart() {
        assert!(loses_tls(
            "https://cloud.example.com",
            "http://cloud.example.com/x"
        ));
        assert!(!loses_tls(
            "https://cloud.example.com",
            "https://cloud.example.com/x"
        ));
        assert!(!loses_tls("http://10.0.0.1:3000", "http://10.0.0.1:3000/x"));
        assert!(!loses_tls("https://localhost", "http://localhost:3000/x"));
    }

    #[test]
    fn only_pages_of_the_web_are_opened() {
        for good in [
            "https://cloud.example.com/panel/device",
            "http://127.0.0.1:3000/panel/device?code=WDJB-MJHT",
        ] {
            assert_eq!(page_address(good).as_deref(), Some(good));
        }
        for bad in [
            "",
            "--help",
            "/etc/passwd",
            "file:///etc/passwd",
            "javascript:alert(1)",
            "vscode://x/y",
            "https://user:pw@cloud.example.com/",
            "https://a/#b",
        ] {
            assert_eq!(page_address(bad), None, "{bad}");
        }
        assert_eq!(
            page_address(&format!("https://a/{}", "x".repeat(600))),
            None
        );
        let steered = page_address("https://a/\u{1b}]0;x\u{7}\u{202e}").unwrap();
        assert!(
            steered.is_ascii() && !steered.contains('\u{1b}'),
            "{steered}"
        );
    }
}
