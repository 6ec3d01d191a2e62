//! What is not simple: HTTP/2, TLS, requests with bodies. hyper reads them, the answers are the same.

use crate::edge::{MatchedProject, Reply};
use crate::serving::forward_hyper::{self, ProxiedBody};
use crate::serving::logged_body::LogOnDrop;
use crate::serving::worker::Worker;
use crate::static_files::content_cache::{Content, FileSlice};
use crate::static_files::error_pages::Page;
use crate::static_files::request::{Headers, Method, StaticRequest};
use crate::static_files::response::{Body, StaticResponse};
use bytes::Bytes;
use estrade_listener::BoxError;
use estrade_listener::peer::PeerAddr;
use futures_util::stream::{BoxStream, StreamExt, try_unfold};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Request, Response, Uri, header};
use http_body::{Body as HttpBody, Frame, SizeHint};
use http_body_util::{Full, StreamBody};
use hyper::body::Incoming;
use hyper::service::Service;
use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::time::Instant;

/// What is read from a file at once.
const FILE_CHUNK: u64 = 64 * 1024;

/// A visitor that nobody has introduced.
pub(crate) const UNKNOWN_PEER: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);

/// A body as hyper takes it.
pub(crate) enum ResponseBody {
    /// It is in memory.
    Whole(Full<Bytes>),
    /// It is read from files.
    Files(StreamBody<BoxStream<'static, io::Result<Frame<Bytes>>>>),
    /// It comes from an instance.
    ProxiedBody(Box<ProxiedBody>),
}

impl Default for ResponseBody {
    fn default() -> Self {
        Self::Whole(Full::default())
    }
}

impl HttpBody for ResponseBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match self.get_mut() {
            Self::Whole(body) => Pin::new(body)
                .poll_frame(cx)
                .map_err(|never| match never {}),
            Self::Files(body) => Pin::new(body).poll_frame(cx).map_err(Into::into),
            Self::ProxiedBody(body) => body.poll_frame(cx).map_err(Into::into),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Whole(body) => body.is_end_stream(),
            Self::Files(body) => body.is_end_stream(),
            Self::ProxiedBody(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(body) => body.size_hint(),
            Self::Files(body) => body.size_hint(),
            Self::ProxiedBody(body) => body.size_hint(),
        }
    }
}

/// Answers requests that hyper has read.
#[derive(Clone)]
pub(crate) struct HyperService(pub(crate) Arc<Worker>);

impl Service<Request<Incoming>> for HyperService {
    type Response = Response<ResponseBody>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        let worker = Arc::clone(&self.0);
        Box::pin(async move { Ok(respond(&worker, request).await) })
    }
}

async fn respond(worker: &Arc<Worker>, request: Request<Incoming>) -> Response<ResponseBody> {
    let started = Instant::now();
    let (parts, body) = request.into_parts();
    let now = worker.edge.now();
    let client = parts
        .extensions
        .get::<PeerAddr>()
        .map_or(UNKNOWN_PEER, |it| it.0);
    let request = read_request(&parts, worker.options.tls.is_some());
    let (reply, matched) = if names_one_host(&parts.headers) {
        worker.edge.respond(&request, now).await
    } else {
        (
            Reply::Local(Page::BadRequest.response()),
            MatchedProject::None,
        )
    };
    let response = match reply {
        Reply::Local(response) => response,
        Reply::Forward(target) => {
            let log = LogOnDrop {
                worker: Arc::clone(worker),
                route: Arc::clone(&target.route),
                client,
                started,
                status: None,
                bytes: 0,
                parts,
            };
            // Boxed: requests for files need not have room for it.
            return Box::pin(forward_hyper::respond(worker, log, body, target)).await;
        }
    };
    let length = if request.method == Method::Head {
        0
    } else {
        response.body.length()
    };
    let (project, client) = (matched.project(), client.to_string());
    let outcome = (response.status, length);
    worker.log_request(
        &worker.second(now),
        now,
        &request,
        project,
        &client,
        outcome,
        started,
    );
    into_response(worker, &response, &parts.method)
}

/// What a request asks for.
pub(crate) fn read_request(parts: &Parts, secure: bool) -> StaticRequest<'_> {
    let mut headers = Headers::default();
    for (name, value) in &parts.headers {
        if let Ok(value) = value.to_str() {
            headers.add(name.as_str(), value);
        }
    }
    StaticRequest {
        method: match parts.method {
            http::Method::GET => Method::Get,
            http::Method::HEAD => Method::Head,
            _ => Method::Other,
        },
        verb: parts.method.as_str(),
        secure,
        host: host_of(&parts.uri, &parts.headers),
        path: parts.uri.path(),
        query: parts.uri.query(),
        headers,
    }
}

/// Whoever stands before us may have believed the other one.
fn names_one_host(headers: &HeaderMap) -> bool {
    headers.get_all(header::HOST).iter().count() <= 1
}

/// HTTP/2 has the host in the request line, and so has a request as a proxy would send it.
pub(crate) fn host_of<'r>(uri: &'r Uri, headers: &'r HeaderMap) -> &'r str {
    let authority = uri.authority().map(http::uri::Authority::as_str);
    let host = || {
        headers
            .get(header::HOST)
            .and_then(|host| host.to_str().ok())
    };
    authority.or_else(host).unwrap_or_default()
}

/// A response of the edge itself, as hyper takes it.
pub(crate) fn into_response(
    worker: &Worker,
    local: &StaticResponse,
    method: &http::Method,
) -> Response<ResponseBody> {
    let mut response = Response::new(match &local.body {
        _ if *method == http::Method::HEAD => ResponseBody::default(),
        Body::Empty => ResponseBody::default(),
        Body::One(Content::Bytes(bytes)) => ResponseBody::Whole(Full::new(bytes.clone())),
        Body::One(Content::File(slice)) => {
            ResponseBody::Files(stream(vec![Content::File(slice.clone())]))
        }
        Body::Many(pieces) => ResponseBody::Files(stream(pieces.clone())),
    });
    *response.status_mut() = local.status;
    *response.headers_mut() = local.header_map();
    if let Ok(date) = HeaderValue::from_str(worker.second(worker.edge.now()).http()) {
        response.headers_mut().insert(header::DATE, date);
    }
    response
}

fn stream(mut pieces: Vec<Content>) -> StreamBody<BoxStream<'static, io::Result<Frame<Bytes>>>> {
    pieces.reverse();
    let chunks = try_unfold(pieces, |mut pieces| async move {
        let Some(piece) = pieces.pop() else {
            return Ok(None);
        };
        let bytes = match piece {
            Content::Bytes(bytes) => bytes,
            Content::File(slice) => {
                let length = slice.length.min(FILE_CHUNK);
                let now = FileSlice {
                    length,
                    ..slice.clone()
                };
                if slice.length > length {
                    let (offset, length) = (slice.offset + length, slice.length - length);
                    pieces.push(Content::File(FileSlice {
                        offset,
                        length,
                        ..slice
                    }));
                }
                now.read().await?
            }
        };
        Ok(Some((Frame::data(bytes), pieces)))
    });
    StreamBody::new(chunks.boxed())
}
