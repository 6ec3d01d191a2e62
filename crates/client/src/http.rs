//! Requests to one API: authentication, retries, idempotency keys, errors.

use crate::error::{ClientError, Refusal, Result, status_may_pass};
use crate::url::is_loopback;
use bytes::Bytes;
use estrade_model::secret::Secret;
use reqwest::header::{self, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Body, Method, StatusCode, Url};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Ends a request whose response does not come; uploads and streams have their own.
const RESPONSE_TIMEOUT: Duration = Duration::from_mins(1);
/// How often a request is sent at most.
const MAX_ATTEMPTS: u32 = 4;
/// The same when it is not answered in time: each attempt takes the whole timeout.
const MAX_TIMED_OUT_ATTEMPTS: u32 = 2;
/// Before the second attempt; doubled before each further one.
const RETRY_DELAY: Duration = Duration::from_millis(200);
/// Longest that a server's `Retry-After` is obeyed.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(10);
/// Longest error body that is read.
const MAX_ERROR_BYTES: usize = 16 << 20;
/// Longest document that is read.
const MAX_RESPONSE_BYTES: usize = 64 << 20;

/// A client of one API of one server. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Client {
    http: reqwest::Client,
    server: Arc<str>,
    token: Option<Arc<Secret>>,
    team: Option<Arc<str>>,
}

impl Client {
    /// For the server at this address ([`crate::url::parse_server`]); `team` is sent with every request.
    pub fn new(server: &str, token: Option<Secret>, team: Option<&str>) -> Result<Self> {
        Ok(Self {
            http: connector(server, |http| http)?,
            server: server.into(),
            token: token.map(Arc::new),
            team: team.map(Into::into),
        })
    }

    /// The same credentials for another API of the same installation.
    pub fn at(&self, server: &str) -> Result<Self> {
        Ok(Self {
            http: connector(server, |http| http)?,
            server: server.into(),
            ..self.clone()
        })
    }

    /// The same with another credential.
    #[must_use]
    pub fn with_token(&self, token: Secret) -> Self {
        Self {
            token: Some(Arc::new(token)),
            ..self.clone()
        }
    }

    /// The server's address.
    pub fn server(&self) -> &str {
        &self.server
    }

    /// A request; the path begins with `/`, its segments are encoded ([`crate::url::segment`]).
    pub fn request(&self, method: Method, path: &str) -> Request {
        let has_key = method == Method::POST;
        Request {
            client: self.clone(),
            method,
            path: path.to_owned(),
            query: Vec::new(),
            headers: HeaderMap::new(),
            body: None,
            idempotency_key: has_key.then(new_idempotency_key),
            timeout: Some(RESPONSE_TIMEOUT),
            attempts: MAX_ATTEMPTS,
        }
    }

    /// The JSON of a GET.
    pub async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T> {
        self.request(Method::GET, path).json().await
    }

    /// Posts JSON; the response's JSON, null when it has no body.
    pub async fn post<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> Result<T> {
        self.request(Method::POST, path).body(body)?.json().await
    }

    /// Deletes something.
    pub async fn delete(&self, path: &str) -> Result<()> {
        self.request(Method::DELETE, path).send().await.map(drop)
    }
}

/// What connects to a server; `with` adds to it.
fn connector(
    server: &str,
    with: impl FnOnce(reqwest::ClientBuilder) -> reqwest::ClientBuilder,
) -> Result<reqwest::Client> {
    let mut http = with(reqwest::Client::builder())
        .user_agent(concat!("estrade/", env!("CARGO_PKG_VERSION")))
        .connect_timeout(CONNECT_TIMEOUT)
        .tcp_nodelay(true)
        // A token is for one server: nobody may send it elsewhere.
        .redirect(reqwest::redirect::Policy::none());
    if Url::parse(server).is_ok_and(|url| is_loopback(&url)) {
        // What stays on this machine needs no TLS; a proxy (HTTP_PROXY) would get the token over the network.
        http = http.no_proxy();
    }
    http.build().map_err(|error| unreachable(server, &error))
}

/// No two are the same.
pub fn new_idempotency_key() -> String {
    format!("estrade-{:032x}", fastrand::u128(..))
}

/// A request that is being put together.
#[derive(Debug, Clone)]
#[must_use = "it is not sent yet"]
pub struct Request {
    client: Client,
    method: Method,
    path: String,
    query: Vec<(String, String)>,
    headers: HeaderMap,
    body: Option<Bytes>,
    idempotency_key: Option<String>,
    timeout: Option<Duration>,
    attempts: u32,
}

impl Request {
    /// Adds to the query.
    pub fn query(mut self, name: &str, value: impl Display) -> Self {
        self.query.push((name.to_owned(), value.to_string()));
        self
    }

    /// Adds to the query what is given.
    pub fn maybe_query(self, name: &str, value: Option<impl Display>) -> Self {
        match value {
            Some(value) => self.query(name, value),
            None => self,
        }
    }

    /// Adds a header.
    pub fn header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.append(name, value);
        self
    }

    /// Sets the body, as JSON.
    pub fn body(self, body: &impl Serialize) -> Result<Self> {
        let bytes =
            serde_json::to_vec(body).map_err(|error| ClientError::Usage(error.to_string()))?;
        let json = HeaderValue::from_static("application/json");
        Ok(self.bytes(bytes.into()).header(header::CONTENT_TYPE, json))
    }

    /// Sets the body.
    pub fn bytes(mut self, body: Bytes) -> Self {
        self.body = Some(body);
        self
    }

    /// Repeats an earlier request: the server carries out only one of those with this key.
    pub fn idempotency_key(mut self, key: &str) -> Self {
        self.idempotency_key = Some(key.to_owned());
        self
    }

    /// Sends no idempotency key: for what takes no credential.
    pub fn without_key(mut self) -> Self {
        self.idempotency_key = None;
        self
    }

    /// Waits so long for the response; none: for as long as it takes.
    pub fn timeout(mut self, timeout: Option<Duration>) -> Self {
        self.timeout = timeout;
        self
    }

    /// Sends it once, whatever comes of it: for what costs something each time.
    pub fn once(mut self) -> Self {
        self.attempts = 1;
        self
    }

    /// Sends it and reads the JSON of the response; one without a body is null.
    pub async fn json<T: DeserializeOwned>(self) -> Result<T> {
        let url = self.shown_url();
        let bytes = self
            .read_whole()
            .await?
            .ok_or_else(|| ClientError::Malformed {
                url: url.clone(),
                reason: format!("its response is longer than {MAX_RESPONSE_BYTES} bytes"),
            })?;
        let bytes: &[u8] = if bytes.is_empty() { b"null" } else { &bytes };
        serde_json::from_slice(bytes).map_err(|error| ClientError::Malformed {
            url,
            reason: error.to_string(),
        })
    }

    /// Sends it and reads the body of the response; none when that is too long. A response that breaks off counts as
    /// an attempt that failed.
    async fn read_whole(&self) -> Result<Option<Vec<u8>>> {
        let mut attempts = Attempts::default();
        loop {
            let response = self.send_counted(&mut attempts).await?;
            if !response.status().is_success() {
                return Err(refusal(response).await);
            }
            let error = match read_at_most(response, MAX_RESPONSE_BYTES).await {
                Ok(bytes) => return Ok(bytes),
                Err(error) => unreachable(&self.shown_url(), &error),
            };
            attempts.may_be_done = true;
            match self.retry_delay(Err(&error), &attempts) {
                Some(delay) => tokio::time::sleep(delay).await,
                None => return Err(error),
            }
        }
    }

    /// Sends it, again after a failure that may pass. Everything that is sent twice is carried out once: GET, PUT and
    /// DELETE by their nature, and what has an idempotency key. Anything else is sent again only while no attempt can
    /// have been carried out: there was no connection, or the server refused it for the moment (429, 503).
    pub async fn send(self) -> Result<reqwest::Response> {
        let mut attempts = Attempts::default();
        let response = self.send_counted(&mut attempts).await?;
        let status = response.status();
        // Without this a DELETE that was carried out fails: its response was lost, and the next attempt finds nothing.
        let is_deleted = self.method == Method::DELETE
            && attempts.may_be_done
            && matches!(status, StatusCode::NOT_FOUND | StatusCode::GONE);
        if status.is_success() || is_deleted {
            return Ok(response);
        }
        Err(refusal(response).await)
    }

    /// Like [`Self::send`], but an error response is a response.
    pub async fn send_any(self) -> Result<reqwest::Response> {
        self.send_counted(&mut Attempts::default()).await
    }

    async fn send_counted(&self, attempts: &mut Attempts) -> Result<reqwest::Response> {
        let url = self.url()?;
        loop {
            let body = self.body.clone().map(Body::from);
            let sent = self.send_once(url.clone(), body).await;
            attempts.made += 1;
            attempts.may_be_done |= may_be_done(&sent);
            let outcome = sent.map_err(|error| unreachable(url.as_str(), &error));
            match self.retry_delay(outcome.as_ref(), attempts) {
                Some(delay) => tokio::time::sleep(delay).await,
                None => return outcome,
            }
        }
    }

    /// Whether carrying it out twice is the same as once.
    fn is_repeatable(&self) -> bool {
        self.method.is_idempotent() || self.idempotency_key.is_some()
    }

    /// How long to wait before another attempt; none when there shall be none.
    fn retry_delay(
        &self,
        outcome: Result<&reqwest::Response, &ClientError>,
        attempts: &Attempts,
    ) -> Option<Duration> {
        let max_attempts = match outcome {
            Err(ClientError::TimedOut { .. }) => MAX_TIMED_OUT_ATTEMPTS,
            _ => MAX_ATTEMPTS,
        };
        let is_last = attempts.made >= max_attempts.min(self.attempts)
            || (attempts.may_be_done && !self.is_repeatable());
        (!is_last && may_pass(outcome)).then(|| backoff(outcome, attempts.made))
    }

    /// Sends it once, with a body that is made while it is sent.
    pub async fn send_streamed(self, body: Body) -> Result<reqwest::Response> {
        let url = self.url()?;
        let sent = self.send_once(url.clone(), Some(body)).await;
        let response = sent.map_err(|error| unreachable(url.as_str(), &error))?;
        if response.status().is_success() {
            return Ok(response);
        }
        Err(refusal(response).await)
    }

    /// Sends what asks for another protocol, on a connection of its own: HTTP/2 has no such requests.
    pub(crate) async fn send_upgrade(mut self) -> Result<reqwest::Response> {
        self.client.http = connector(&self.client.server, reqwest::ClientBuilder::http1_only)?;
        let response = self.send_any().await?;
        match response.status() {
            status if status.is_success() || status == StatusCode::SWITCHING_PROTOCOLS => {
                Ok(response)
            }
            _ => Err(refusal(response).await),
        }
    }

    /// The address for messages, without its query.
    pub(crate) fn shown_url(&self) -> String {
        format!("{}{}", self.client.server, self.path)
    }

    async fn send_once(&self, url: Url, body: Option<Body>) -> reqwest::Result<reqwest::Response> {
        let mut request = self.client.http.request(self.method.clone(), url);
        request = request.headers(self.headers.clone());
        if let Some(token) = &self.client.token {
            request = request.bearer_auth(token.expose());
        }
        if let Some(key) = &self.idempotency_key {
            request = request.header("idempotency-key", key);
        }
        if let Some(body) = body {
            request = request.body(body);
        }
        if let Some(timeout) = self.timeout {
            request = request.timeout(timeout);
        }
        request.send().await
    }

    fn url(&self) -> Result<Url> {
        let text = format!("{}{}", self.client.server, self.path);
        let refused =
            || ClientError::Usage(format!("`{}` is not a path; it begins with /", self.path));
        if !self.path.starts_with('/') {
            return Err(refused());
        }
        let mut url = Url::parse(&text).map_err(|_| refused())?;
        let team = self.client.team.as_deref().map(|team| ("teamID", team));
        let query = self
            .query
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()));
        for (name, value) in query.chain(team) {
            url.query_pairs_mut().append_pair(name, value);
        }
        Ok(url)
    }
}

/// The attempts to send one request.
#[derive(Debug, Default)]
struct Attempts {
    made: u32,
    /// Whether one of them may have been carried out although nobody said so.
    may_be_done: bool,
}

/// Whether the server may have carried it out although it did not answer: what was sent was lost with the connection, or
/// a proxy lost the response.
fn may_be_done(sent: &reqwest::Result<reqwest::Response>) -> bool {
    match sent {
        Ok(response) => matches!(
            response.status(),
            StatusCode::BAD_GATEWAY | StatusCode::GATEWAY_TIMEOUT
        ),
        Err(error) => !error.is_connect(),
    }
}

/// Whether the same request may succeed in a moment.
fn may_pass(outcome: Result<&reqwest::Response, &ClientError>) -> bool {
    match outcome {
        Ok(response) => {
            let has_retry_after = response.headers().contains_key(header::RETRY_AFTER);
            status_may_pass(response.status().as_u16(), has_retry_after)
        }
        Err(error) => error.may_pass(),
    }
}

fn backoff(outcome: Result<&reqwest::Response, &ClientError>, attempt: u32) -> Duration {
    let asked = outcome.ok().and_then(|response| {
        let text = response.headers().get(header::RETRY_AFTER)?.to_str().ok()?;
        text.parse().ok().map(Duration::from_secs)
    });
    match asked {
        Some(asked) => asked.min(MAX_RETRY_AFTER),
        // Jitter: clients that failed together do not come back together.
        None => RETRY_DELAY.mul_f64(f64::from(1 << (attempt - 1)) * (0.75 + 0.5 * fastrand::f64())),
    }
}

/// The error of a response that is none of success: the body's for the platform, the headers' for keys.
async fn refusal(response: reqwest::Response) -> ClientError {
    let (status, headers) = (response.status(), response.headers().clone());
    // A body that is too long or breaks off leaves the status.
    let bytes = read_at_most(response, MAX_ERROR_BYTES).await;
    refusal_of(status, &headers, &bytes.ok().flatten().unwrap_or_default())
}

/// The body, unless it is longer than that: memory is not the server's to fill.
async fn read_at_most(
    mut response: reqwest::Response,
    max: usize,
) -> reqwest::Result<Option<Vec<u8>>> {
    let mut bytes = Vec::new();
    while let Some(piece) = response.chunk().await? {
        if bytes.len() + piece.len() > max {
            return Ok(None);
        }
        bytes.extend_from_slice(&piece);
    }
    Ok(Some(bytes))
}

fn refusal_of(status: StatusCode, headers: &HeaderMap, body: &[u8]) -> ClientError {
    let header = |name: &str| {
        headers
            .get(name)
            .and_then(|value| value.to_str().ok())
            .map(str::to_owned)
    };
    let body: Value = serde_json::from_slice(body).unwrap_or_default();
    let text = |value: &Value| value.as_str().map(str::to_owned);
    // The platform's shape, the headers of the key API, the shape of inference.
    let message = text(&body["message"])
        .or_else(|| header("x-error-message"))
        .or_else(|| text(&body["error"]["message"]));
    let code = text(&body["data"]["code"])
        .or_else(|| header("x-error-code"))
        .or_else(|| text(&body["error"]["code"]));
    let missing = serde_json::from_value(body["data"]["files"].clone()).unwrap_or_default();
    let reason = status.canonical_reason().unwrap_or("an error");
    let message = message.unwrap_or_else(|| {
        if status.is_redirection() {
            let location = header("location").unwrap_or_default();
            return format!("the server redirects to {location}; use that address");
        }
        format!("the server answered {} ({reason})", status.as_u16())
    });
    ClientError::Refused(Box::new(Refusal {
        status: status.as_u16(),
        code: code.unwrap_or_default(),
        message,
        request_id: header("x-request-id"),
        has_retry_after: headers.contains_key(header::RETRY_AFTER),
        missing,
    }))
}

/// An address for messages.
pub(crate) fn without_query(url: &str) -> String {
    url.split('?').next().unwrap_or(url).to_owned()
}

/// An error of the connection, with the cause that a person can do something about and without the query.
pub(crate) fn unreachable(url: &str, error: &reqwest::Error) -> ClientError {
    let url = without_query(url);
    let mut cause: &dyn std::error::Error = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    if error.is_timeout() && !error.is_connect() {
        return ClientError::TimedOut { url };
    }
    let cause = if error.is_timeout() {
        "no connection in time".to_owned()
    } else {
        cause.to_string()
    };
    ClientError::Unreachable { url, cause }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(status: u16, headers: &[(&'static str, &'static str)], body: &str) -> Refusal {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.insert(*name, HeaderValue::from_static(value));
        }
        let status = StatusCode::from_u16(status).unwrap();
        refusal_of(status, &map, body.as_bytes())
            .refusal()
            .unwrap()
            .clone()
    }

    #[test]
    fn every_shape_of_error_is_read() {
        let body = r#"{"statusCode":409,"error":"Conflict","message":"the name is taken","data":{"code":"project_exists"}}"#;
        let platform = refused(409, &[("x-request-id", "r1")], body);
        assert_eq!(
            (platform.code.as_str(), platform.message.as_str()),
            ("project_exists", "the name is taken")
        );
        assert_eq!(platform.request_id.as_deref(), Some("r1"));
        let keys = refused(
            400,
            &[
                ("x-error-code", "invalid"),
                ("x-error-message", "name: too long"),
            ],
            "",
        );
        assert_eq!(
            (keys.code.as_str(), keys.message.as_str()),
            ("invalid", "name: too long")
        );
        let inference = refused(
            404,
            &[],
            r#"{"error":{"message":"no such model","code":"model_not_found"}}"#,
        );
        assert_eq!(
            (inference.code.as_str(), inference.message.as_str()),
            ("model_not_found", "no such model")
        );
        let other = refused(500, &[], "<html>");
        assert_eq!(
            other.message,
            "the server answered 500 (Internal Server Error)"
        );
        let moved = refused(308, &[("location", "https://b/")], "");
        assert!(moved.message.contains("https://b/"), "{moved:?}");
        let body = r#"{"message":"m","data":{"code":"missing_files","files":[{"path":"a","digest":"d"}]}}"#;
        assert_eq!(refused(409, &[], body).missing[0].path, "a");
    }

    #[test]
    fn a_path_never_leaves_the_server() {
        let client = Client::new("http://127.0.0.1:1", None, Some("t")).unwrap();
        for bad in [
            "",
            "x",
            "@evil.example/",
            ".evil.example/",
            "http://evil.example/",
        ] {
            assert!(client.request(Method::GET, bad).url().is_err(), "{bad}");
        }
        let url = client
            .request(Method::GET, "/v1/x?a=b")
            .query("c", "d e&f")
            .url()
            .unwrap();
        assert_eq!(
            url.as_str(),
            "http://127.0.0.1:1/v1/x?a=b&c=d+e%26f&teamID=t"
        );
        let url = client
            .request(Method::GET, "//evil.example/")
            .url()
            .unwrap();
        assert_eq!(url.host_str(), Some("127.0.0.1"));
    }

    #[test]
    fn posts_have_a_key_of_their_own() {
        let client = Client::new("http://127.0.0.1:1", None, None).unwrap();
        let first = client.request(Method::POST, "/").idempotency_key.unwrap();
        let second = client.request(Method::POST, "/").idempotency_key.unwrap();
        assert_ne!(first, second);
        assert_eq!(client.request(Method::GET, "/").idempotency_key, None);
    }
}
