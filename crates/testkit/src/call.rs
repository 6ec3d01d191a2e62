//! A request on its way out.

use crate::api_response::ApiResponse;
use crate::secrets::Secrets;
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use serde::Serialize;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;

/// One of the two APIs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Api {
    /// Projects, releases, teams, accounts.
    Platform,
    /// Keys and workspaces.
    Ai,
}

/// What every request of a test needs.
pub(crate) struct Line {
    pub(crate) http: reqwest::Client,
    pub(crate) platform: SocketAddr,
    pub(crate) ai: SocketAddr,
    pub(crate) secrets: Secrets,
}

impl Line {
    pub(crate) fn address(&self, api: Api) -> SocketAddr {
        match api {
            Api::Platform => self.platform,
            Api::Ai => self.ai,
        }
    }
}

/// A request that is sent when it is awaited.
#[must_use = "await it to send it"]
pub struct Call {
    pub(crate) line: Arc<Line>,
    pub(crate) api: Api,
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Option<Vec<u8>>,
}

impl Call {
    /// Sets a header, replacing what it was.
    pub fn header(mut self, name: &str, value: &str) -> Self {
        let name: HeaderName = name.parse().expect("a header's name");
        let value = HeaderValue::from_bytes(value.as_bytes()).expect("a header's value");
        self.headers.insert(name, value);
        self
    }

    /// Sends it without a credential.
    pub fn anonymous(mut self) -> Self {
        self.headers.remove(AUTHORIZATION);
        self
    }

    /// Sends it with this bearer token.
    pub fn bearer(self, token: &str) -> Self {
        self.header("authorization", &format!("Bearer {token}"))
    }

    /// Sends a JSON body.
    pub fn json(mut self, body: &impl Serialize) -> Self {
        self.body = Some(serde_json::to_vec(body).expect("JSON"));
        let json = HeaderValue::from_static("application/json");
        self.headers.entry(CONTENT_TYPE).or_insert(json);
        self
    }

    /// Sends these bytes as the body, without saying what they are.
    pub fn bytes(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.body = Some(body.into());
        self
    }

    async fn send(self) -> ApiResponse {
        let url = format!("http://{}{}", self.line.address(self.api), self.path);
        let mut request = self.line.http.request(self.method.clone(), &url);
        request = request.headers(self.headers);
        if let Some(body) = self.body {
            request = request.body(body);
        }
        let what = format!("{} {}", self.method, self.path);
        let response = match request.send().await {
            Ok(response) => response,
            Err(error) => panic!("{what}: no response: {error:?}"),
        };
        let (status, headers) = (response.status(), response.headers().clone());
        let body = match response.bytes().await {
            Ok(body) => body.to_vec(),
            Err(error) => panic!("{what}: the body of the response was cut off: {error:?}"),
        };
        self.line.secrets.inspect(&self.method, &self.path, &body);
        ApiResponse::new(self.api, what, status, headers, body)
    }

    /// Sends it and returns the open response, for streams.
    pub async fn stream(self) -> reqwest::Response {
        let url = format!("http://{}{}", self.line.address(self.api), self.path);
        let mut request = self.line.http.request(self.method, &url);
        request = request.headers(self.headers);
        if let Some(body) = self.body {
            request = request.body(body);
        }
        request.send().await.expect("a response")
    }
}

impl IntoFuture for Call {
    type Output = ApiResponse;
    type IntoFuture = Pin<Box<dyn Future<Output = ApiResponse> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.send())
    }
}
