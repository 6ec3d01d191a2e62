//! What is not simple: HTTP/2, TLS, requests with bodies. hyper reads them, the answers are the same.

use crate::answer::{Answer, Body};
use crate::ask::{Ask, Headers, Method};
use crate::contents::{Content, FileSlice};
use crate::lane::Lane;
use crate::pages::Page;
use bytes::Bytes;
use estrade_listener::Second;
use estrade_listener::peer::PeerAddr;
use futures_util::stream::{BoxStream, StreamExt, try_unfold};
use http::{HeaderMap, HeaderValue, Request, Response, Uri, header};
use http_body::Frame;
use http_body_util::{Either, Full, StreamBody};
use hyper::body::Incoming;
use hyper::service::Service;
use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::pin::Pin;
use std::sync::Arc;
use tokio::time::Instant;

/// What is read from a file at once.
const CHUNK: u64 = 64 * 1024;

/// A body as hyper takes it.
pub(crate) type HyperBody =
    Either<Full<Bytes>, StreamBody<BoxStream<'static, io::Result<Frame<Bytes>>>>>;

/// Answers requests that hyper has read.
#[derive(Clone)]
pub(crate) struct Visitors(pub(crate) Arc<Lane>);

impl Service<Request<Incoming>> for Visitors {
    type Response = Response<HyperBody>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        let lane = Arc::clone(&self.0);
        Box::pin(async move { Ok(respond(&lane, &request).await) })
    }
}

async fn respond(lane: &Lane, request: &Request<Incoming>) -> Response<HyperBody> {
    let started = Instant::now();
    let ask = read_ask(request, lane.options.tls.is_some());
    let now = lane.edge.now();
    let (answer, route) = if names_one_host(request) {
        lane.edge.answer(&ask, now).await
    } else {
        (Page::BadRequest.answer(), None)
    };
    let mut second = Second::default();
    second.update(now);
    let peer = request.extensions().get::<PeerAddr>();
    let client = peer.map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |peer| peer.0);
    let length = if ask.method == Method::Head {
        0
    } else {
        answer.body.length()
    };
    lane.note(
        &second,
        now,
        &ask,
        route.as_deref(),
        &client.to_string(),
        (answer.status, length),
        started,
    );
    into_response(&answer, ask.method, second.http())
}

fn read_ask(request: &Request<Incoming>, secure: bool) -> Ask<'_> {
    let mut headers = Headers::default();
    for (name, value) in request.headers() {
        if let Ok(value) = value.to_str() {
            headers.note(name.as_str(), value);
        }
    }
    Ask {
        method: match *request.method() {
            http::Method::GET => Method::Get,
            http::Method::HEAD => Method::Head,
            _ => Method::Other,
        },
        secure,
        host: host_of(request.uri(), request.headers()),
        path: request.uri().path(),
        query: request.uri().query(),
        headers,
    }
}

/// Whoever stands before us may have believed the other one.
fn names_one_host(request: &Request<Incoming>) -> bool {
    request.headers().get_all(header::HOST).iter().count() <= 1
}

/// HTTP/2 has the host in the request line, and so has a request as a proxy would send it.
fn host_of<'r>(uri: &'r Uri, headers: &'r HeaderMap) -> &'r str {
    let authority = uri.authority().map(http::uri::Authority::as_str);
    let host = || {
        headers
            .get(header::HOST)
            .and_then(|host| host.to_str().ok())
    };
    authority.or_else(host).unwrap_or_default()
}

fn into_response(answer: &Answer, method: Method, date: &str) -> Response<HyperBody> {
    let mut response = Response::new(match &answer.body {
        _ if method == Method::Head => Either::Left(Full::default()),
        Body::Empty => Either::Left(Full::default()),
        Body::One(Content::Bytes(bytes)) => Either::Left(Full::new(bytes.clone())),
        Body::One(Content::File(slice)) => {
            Either::Right(stream(vec![Content::File(slice.clone())]))
        }
        Body::Many(pieces) => Either::Right(stream(pieces.clone())),
    });
    *response.status_mut() = answer.status;
    *response.headers_mut() = answer.header_map();
    if let Ok(date) = HeaderValue::from_str(date) {
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
                let length = slice.length.min(CHUNK);
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
