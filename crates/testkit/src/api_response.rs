//! What came back.

use crate::call::Api;
use http::{HeaderMap, StatusCode};
use serde_json::Value;

/// A response, with what every response must have already checked: a request id, no sniffing, a
/// cache rule, and no failure of ours that a test did not ask for.
#[derive(Debug, Clone)]
pub struct ApiResponse {
    api: Api,
    what: String,
    status: StatusCode,
    headers: HeaderMap,
    body: Vec<u8>,
}

impl ApiResponse {
    pub(crate) fn new(
        api: Api,
        what: String,
        status: StatusCode,
        headers: HeaderMap,
        body: Vec<u8>,
    ) -> Self {
        let response = Self {
            api,
            what,
            status,
            headers,
            body,
        };
        let id = response.header("x-request-id");
        assert!((1..=128).contains(&id.len()), "{response:?}");
        assert_eq!(response.header("x-content-type-options"), "nosniff");
        assert!(response.has_header("cache-control"), "{response:?}");
        assert_ne!(response.status(), 500, "{}", response.describe());
        response
    }

    pub fn status(&self) -> u16 {
        self.status.as_u16()
    }

    pub fn body(&self) -> &[u8] {
        &self.body
    }

    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The body as JSON.
    pub fn json(&self) -> Value {
        match serde_json::from_slice(&self.body) {
            Ok(value) => value,
            Err(error) => panic!("{error}: {}", self.describe()),
        }
    }

    /// A text inside the body: `response.field("/project/_id")`.
    pub fn field(&self, pointer: &str) -> String {
        match self.json().pointer(pointer) {
            Some(Value::String(text)) => text.clone(),
            _ => panic!("no text at {pointer}: {}", self.describe()),
        }
    }

    /// A header; empty when it is not there.
    pub fn header(&self, name: &str) -> &str {
        self.headers
            .get(name)
            .map_or("", |value| value.to_str().expect("a printable header"))
    }

    /// Whether a header is there.
    pub fn has_header(&self, name: &str) -> bool {
        self.headers.contains_key(name)
    }

    pub fn headers(&self) -> &HeaderMap {
        &self.headers
    }

    /// Demands a status.
    #[track_caller]
    pub fn assert(self, status: u16) -> Self {
        assert_eq!(self.status(), status, "{}", self.describe());
        self
    }

    /// Demands a status and a body of exactly no bytes.
    #[track_caller]
    pub fn assert_empty(self, status: u16) -> Self {
        let response = self.assert(status);
        assert_eq!(response.body.len(), 0, "{}", response.describe());
        if !matches!(status, 204 | 304) {
            assert_eq!(
                response.header("content-length"),
                "0",
                "{}",
                response.describe()
            );
        }
        response
    }

    /// Demands an error in the shape of its API: JSON on the platform, headers alone for keys.
    #[track_caller]
    pub fn refused(self, status: u16, code: &str) -> Self {
        match self.api {
            Api::Ai => {
                let response = self.assert_empty(status);
                assert_eq!(
                    response.header("x-error-code"),
                    code,
                    "{}",
                    response.describe()
                );
                let message = response.header("x-error-message");
                let printable = |byte: u8| (b' '..=b'~').contains(&byte);
                assert!(!message.is_empty() && message.bytes().all(printable));
                response
            }
            Api::Platform => {
                let response = self.assert(status);
                assert_eq!(response.header("content-type"), "application/json");
                let body = response.json();
                let mut names: Vec<_> = body.as_object().expect("an object").keys().collect();
                names.sort();
                assert_eq!(names, ["data", "error", "message", "statusCode"]);
                assert_eq!(body["statusCode"], status, "{}", response.describe());
                assert_eq!(body["data"]["code"], code, "{}", response.describe());
                let reason = response.status.canonical_reason().unwrap_or_default();
                assert_eq!(body["error"], reason);
                assert_ne!(response.message(), "", "{}", response.describe());
                response
            }
        }
    }

    /// What an error says to a person.
    pub fn message(&self) -> String {
        match self.api {
            Api::Ai => self.header("x-error-message").to_owned(),
            Api::Platform => self.field("/message"),
        }
    }

    /// Demands an error whose message names something, such as the bad field.
    #[track_caller]
    pub fn naming(self, text: &str) -> Self {
        assert!(self.message().contains(text), "{}", self.describe());
        self
    }

    /// For messages of failed tests.
    pub fn describe(&self) -> String {
        format!(
            "{} answered {} {:?}\n{}",
            self.what,
            self.status,
            self.headers,
            self.text()
        )
    }
}
