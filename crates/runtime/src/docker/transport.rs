//! The HTTP transport to the engine: one connection for each request.
//!
//! A connection to a local socket costs less than one request on it. In return there are no stale
//! connections to an engine that was restarted, and dropping a response closes its connection, which is how
//! the engine notices that a build, a log or a shell was cancelled.
//!
//! The version of the API is negotiated first and then part of every path, so that a newer engine responds
//! in a format that we know. bollard leaves it out of its addresses.

use crate::docker::host::EngineHost;
use crate::error::Error;
use bollard::{API_DEFAULT_VERSION, BollardRequest, body_full};
use bytes::Bytes;
use http::header::HOST;
use http::{HeaderValue, Request, Response, Uri};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use std::io;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout;
use tokio_util::task::TaskTracker;

/// The oldest supported version of the API, 1.41: Docker 20.10.
const MIN_API_MINOR: u32 = 41;
/// How long an engine may take to accept a connection and to report its API versions.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// The most that is read of a response that is no stream.
const MAX_RESPONSE_BYTES: usize = 32 << 20;

/// The way to the engine.
#[derive(Debug)]
pub(crate) struct Transport {
    host: EngineHost,
    /// The minor version that was agreed on; 0: none yet, or the engine has been away since.
    version: AtomicU32,
    /// One task for each open connection.
    tasks: TaskTracker,
}

impl Transport {
    pub(crate) fn new(host: EngineHost) -> Self {
        Self {
            host,
            version: AtomicU32::new(0),
            tasks: TaskTracker::new(),
        }
    }

    pub(crate) fn host(&self) -> &EngineHost {
        &self.host
    }

    /// The tasks that belong to this engine; its shutdown waits for them.
    pub(crate) fn tasks(&self) -> &TaskTracker {
        &self.tasks
    }

    /// Sends a request; its path has no version.
    pub(crate) async fn send(
        &self,
        mut request: BollardRequest,
    ) -> Result<Response<Incoming>, Error> {
        let version = self.agree().await?;
        let path = request
            .uri()
            .path_and_query()
            .map_or("/", |path| path.as_str());
        *request.uri_mut() = format!("/v1.{version}{path}")
            .parse::<Uri>()
            .map_err(|error| Error::broken("writing a request", error))?;
        self.exchange(request).await
    }

    /// Negotiates the version of the API.
    async fn agree(&self) -> Result<u32, Error> {
        let known = self.version.load(Ordering::Relaxed);
        if known != 0 {
            return Ok(known);
        }
        let agreed = timeout(CONNECT_TIMEOUT, self.negotiate())
            .await
            .map_err(|_| Error::TimedOut("asking for its version"))??;
        self.version.store(agreed, Ordering::Relaxed);
        Ok(agreed)
    }

    async fn negotiate(&self) -> Result<u32, Error> {
        let what = "asking for its version";
        let request = Request::get("/version")
            .body(body_full(Bytes::new()))
            .map_err(|error| Error::broken(what, error))?;
        let response = body_of(what, self.exchange(request).await?).await?;
        let version: bollard::models::SystemVersion =
            serde_json::from_slice(&response).map_err(|error| Error::broken(what, error))?;
        let newest = u32::try_from(API_DEFAULT_VERSION.minor_version).unwrap_or(MIN_API_MINOR);
        let theirs = version.api_version.unwrap_or_default();
        let at_least = version
            .min_api_version
            .as_deref()
            .and_then(minor)
            .unwrap_or(0);
        match minor(&theirs) {
            Some(minor) if minor >= MIN_API_MINOR && at_least <= newest => Ok(minor.min(newest)),
            _ => Err(Error::Version(format!(
                "this Docker Engine speaks API {theirs}; versions from 1.41 (Docker 20.10) are supported"
            ))),
        }
    }

    async fn exchange(&self, request: BollardRequest) -> Result<Response<Incoming>, Error> {
        let connecting = async {
            match &self.host {
                EngineHost::Unix(path) => Ok(Stream::Unix(UnixStream::connect(path).await?)),
                EngineHost::Tcp(authority) => Ok(Stream::Tcp(TcpStream::connect(authority).await?)),
            }
        };
        match timeout(CONNECT_TIMEOUT, connecting).await {
            Ok(Ok(Stream::Unix(stream))) => self.exchange_on(stream, request).await,
            Ok(Ok(Stream::Tcp(stream))) => self.exchange_on(stream, request).await,
            Ok(Err(error)) => Err(self.away(error)),
            Err(_) => Err(Error::TimedOut("connecting")),
        }
    }

    /// The engine is not there; when it returns, it may be another one.
    fn away(&self, source: io::Error) -> Error {
        self.version.store(0, Ordering::Relaxed);
        let host = &self.host;
        match source.kind() {
            io::ErrorKind::PermissionDenied => Error::NoPermission {
                message: format!(
                    "the Docker Engine at {host} may not be used by this user: add it to the group `docker`, or run as root"
                ),
            },
            _ => Error::NoEngine {
                message: format!(
                    "no Docker Engine answers at {host}: install one (Debian and Ubuntu: `apt install docker.io`) and start it, or set `docker.host`"
                ),
                source,
            },
        }
    }

    async fn exchange_on(
        &self,
        stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
        mut request: BollardRequest,
    ) -> Result<Response<Incoming>, Error> {
        let broken = |error: hyper::Error| Error::broken("talking to it", error);
        request
            .headers_mut()
            .insert(HOST, HeaderValue::from_static("docker"));
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .map_err(broken)?;
        // The task ends with the response, or when the response is dropped. The reader sees its errors.
        let connection = connection.with_upgrades();
        self.tasks.spawn(async move {
            let _ = connection.await;
        });
        sender.send_request(request).await.map_err(broken)
    }
}

enum Stream {
    Unix(UnixStream),
    Tcp(TcpStream),
}

/// The minor number of `1.41`.
fn minor(version: &str) -> Option<u32> {
    version.strip_prefix("1.")?.parse().ok()
}

/// Reads the whole body of a response, up to a limit.
pub(crate) async fn body_of(
    what: &'static str,
    response: Response<Incoming>,
) -> Result<Bytes, Error> {
    let body = Limited::new(response.into_body(), MAX_RESPONSE_BYTES)
        .collect()
        .await;
    Ok(body.map_err(|error| Error::broken(what, error))?.to_bytes())
}
