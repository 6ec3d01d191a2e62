//! Wraps the service of every connection that hyper serves. Each request gets the client's address in
//! its extensions, must name exactly one host, and keeps its connection busy until its response has ended.

use crate::peer::{SocketPeer, TrustedProxies};
use crate::{AllowedHosts, ConnectionHandle, HttpBody, HttpService, ListenerOptions};
use bytes::Bytes;
use estrade_http1::server::ConnectionState;
use http::uri::Authority;
use http::{HeaderValue, Request, Response, StatusCode, Version, header};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::service::Service;
use std::convert::Infallible;
use std::marker::PhantomData;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll};
use tokio::time::Instant;

const NEEDS_ONE_HOST: &str = r#"{"statusCode":400,"error":"Bad Request","message":"a request names exactly one host; send one Host header","data":{"code":"host_invalid"}}"#;
const UNKNOWN_HOST: &str = r#"{"statusCode":421,"error":"Misdirected Request","message":"this listener does not answer to that host; name it in allowed_hosts or public_url of the configuration","data":{"code":"host_not_allowed"}}"#;

/// A service whose requests are counted.
pub(crate) struct TrackedService<S, B> {
    service: S,
    peer: IpAddr,
    trusted: TrustedProxies,
    allowed_hosts: Option<AllowedHosts>,
    requests: Arc<Requests>,
    body: PhantomData<fn() -> B>,
}

/// The requests of one connection.
#[derive(Debug)]
pub(crate) struct Requests {
    connection: Arc<ConnectionHandle>,
    have_begun: AtomicBool,
    active: AtomicUsize,
    upgraded: AtomicBool,
}

impl Requests {
    /// Whether the connection has had a request.
    pub(crate) fn have_begun(&self) -> bool {
        self.have_begun.load(Ordering::Relaxed)
    }

    /// Whether a request has switched the connection to another protocol.
    pub(crate) fn is_upgraded(&self) -> bool {
        self.upgraded.load(Ordering::Relaxed)
    }

    fn begin(self: &Arc<Self>) -> ActiveRequest {
        self.have_begun.store(true, Ordering::Relaxed);
        if self.active.fetch_add(1, Ordering::AcqRel) == 0 {
            self.connection.set_busy();
        }
        ActiveRequest(Arc::clone(self))
    }
}

/// Guard: counts a request as active until its response body is dropped.
#[derive(Debug)]
struct ActiveRequest(Arc<Requests>);

impl Drop for ActiveRequest {
    fn drop(&mut self) {
        // After an upgrade the connection never counts as idle, so that admission does not evict it.
        if self.0.active.fetch_sub(1, Ordering::AcqRel) == 1 && !self.0.is_upgraded() {
            self.0.connection.set_idle(Instant::now());
        }
    }
}

impl<S, B> TrackedService<S, B> {
    pub(crate) fn new(
        service: S,
        peer: IpAddr,
        options: &ListenerOptions,
        connection: Arc<ConnectionHandle>,
    ) -> Self {
        let requests = Arc::new(Requests {
            connection,
            have_begun: AtomicBool::new(false),
            active: AtomicUsize::new(0),
            upgraded: AtomicBool::new(false),
        });
        Self {
            service,
            peer,
            trusted: options.trusted_proxies.clone(),
            allowed_hosts: options.allowed_hosts.clone(),
            requests,
            body: PhantomData,
        }
    }

    pub(crate) fn requests(&self) -> &Arc<Requests> {
        &self.requests
    }

    /// Any host is accepted from a trusted proxy, which forwards the name that it was reached under.
    fn allows_host(&self, request: &Request<Incoming>) -> bool {
        let Some(allowed) = &self.allowed_hosts else {
            return true;
        };
        let header = request.headers().get(header::HOST);
        let header = header.and_then(|host| host.to_str().ok());
        let authority = request.uri().authority().map(Authority::as_str);
        let allows = |host: Option<&str>| host.is_none_or(|host| allowed.allows(host));
        (allows(header) && allows(authority)) || self.trusted.contains(self.peer.to_canonical())
    }
}

impl<S, B> Service<Request<Incoming>> for TrackedService<S, B>
where
    S: HttpService<B>,
    S::Future: Send + 'static,
    B: HttpBody,
{
    type Response = Response<TrackedBody<B>>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn call(&self, mut request: Request<Incoming>) -> Self::Future {
        let active = self.requests.begin();
        if !names_one_host(&request) {
            let response = refuse(StatusCode::BAD_REQUEST, NEEDS_ONE_HOST, active);
            return Box::pin(async move { Ok(response) });
        }
        if !self.allows_host(&request) {
            let response = refuse(StatusCode::MISDIRECTED_REQUEST, UNKNOWN_HOST, active);
            return Box::pin(async move { Ok(response) });
        }
        let client = self.trusted.client(self.peer, request.headers());
        request.extensions_mut().insert(client);
        request
            .extensions_mut()
            .insert(SocketPeer(self.peer.to_canonical()));
        let response = self.service.call(request);
        Box::pin(async move {
            let Ok(response) = response.await;
            if response.status() == StatusCode::SWITCHING_PROTOCOLS {
                active.0.upgraded.store(true, Ordering::Relaxed);
            }
            Ok(response.map(|body| TrackedBody {
                body: Content::Service(body),
                _active: active,
            }))
        })
    }
}

/// Whether the request names its host unambiguously: with two, a proxy in front of us may have routed by the other one.
fn names_one_host(request: &Request<Incoming>) -> bool {
    let hosts = request
        .headers()
        .get_all(header::HOST)
        .iter()
        .take(2)
        .count();
    match request.version() {
        Version::HTTP_11 => hosts == 1,
        _ => hosts <= 1,
    }
}

/// An error response of the listener itself, in the format of the API's errors.
fn refuse<B>(
    status: StatusCode,
    text: &'static str,
    active: ActiveRequest,
) -> Response<TrackedBody<B>> {
    let mut response = Response::new(TrackedBody {
        body: Content::Own(Some(Bytes::from_static(text.as_bytes()))),
        _active: active,
    });
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/json"),
    );
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    // HTTP/2 has no such header, and hyper leaves it out there.
    headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    response
}

/// A response body that holds the guard of its request.
pub(crate) struct TrackedBody<B> {
    body: Content<B>,
    _active: ActiveRequest,
}

enum Content<B> {
    /// From the service.
    Service(B),
    /// From the listener itself.
    Own(Option<Bytes>),
}

impl<B: HttpBody> Body for TrackedBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        match &mut self.get_mut().body {
            Content::Service(body) => Pin::new(body).poll_frame(cx),
            Content::Own(text) => Poll::Ready(text.take().map(|text| Ok(Frame::data(text)))),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.body {
            Content::Service(body) => body.is_end_stream(),
            Content::Own(text) => text.is_none(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.body {
            Content::Service(body) => body.size_hint(),
            Content::Own(text) => {
                SizeHint::with_exact(text.as_ref().map_or(0, |text| text.len() as u64))
            }
        }
    }
}
