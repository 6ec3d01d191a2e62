//! Visitors whose requests hyper reads: HTTP/2, TLS, bodies, upgrades.

use crate::proxy::ProxyTarget;
use crate::proxy::forwarded::Origin;
use crate::proxy::outgoing::OutgoingRequest;
use crate::proxy::request_head::{self, Framing, RequestLine};
use crate::proxy::response_head::{ResponseContext, list_items};
use crate::proxy::retry::{self, UpstreamResponse};
use crate::proxy::upstream_body::{TruncatedBody, UpstreamBody};
use crate::serving::hyper_service::{ResponseBody, host_of};
use crate::serving::logged_body::LogOnDrop;
use crate::serving::tunnel;
use crate::serving::worker::Worker;
use crate::static_files::error_pages::Page;
use crate::static_files::response::header_map;
use bytes::Bytes;
use estrade_listener::peer::SocketPeer;
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode, Version, header};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tokio::sync::OwnedSemaphorePermit;

const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// The body of an answer on its way from an instance to a visitor.
pub(crate) struct ProxiedBody {
    exchange: UpstreamBody,
    noting: LogOnDrop,
}

impl ProxiedBody {
    pub(crate) fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, TruncatedBody>>> {
        let frame = ready!(Pin::new(&mut self.exchange).poll_frame(cx));
        self.noting.bytes = self.exchange.bytes;
        Poll::Ready(frame)
    }

    pub(crate) fn is_end_stream(&self) -> bool {
        self.exchange.is_end_stream()
    }

    pub(crate) fn size_hint(&self) -> SizeHint {
        self.exchange.size_hint()
    }
}

/// What is needed to connect a visitor with an instance for good.
struct Upgrade {
    protocol: Vec<u8>,
    visitor: OnUpgrade,
    permit: OwnedSemaphorePermit,
}

/// Passes a request on, and what comes back.
pub(crate) async fn respond(
    lane: &Arc<Worker>,
    mut noting: LogOnDrop,
    body: Incoming,
    way: ProxyTarget,
) -> Response<ResponseBody> {
    match pass(lane, &mut noting.parts, body, way).await {
        Ok((answered, Some(upgrade)))
            if answered.head.status == StatusCode::SWITCHING_PROTOCOLS =>
        {
            noting.status = Some(answered.head.status);
            switch(lane, answered, upgrade)
        }
        Ok((answered, _)) => {
            let (head, exchange) = answered.into_body(lane);
            noting.status = Some(head.status);
            let (status, headers) = (head.status, header_map(&head.lines));
            let passing = ProxiedBody { exchange, noting };
            let mut response = Response::new(ResponseBody::ProxiedBody(Box::new(passing)));
            *response.status_mut() = status;
            *response.headers_mut() = headers;
            response
        }
        Err(page) => {
            let answer = page.response();
            let method = noting.parts.method.clone();
            noting.status = Some(answer.status);
            noting.bytes = if method == Method::HEAD {
                0
            } else {
                answer.body.length()
            };
            let mut response = crate::serving::hyper_service::into_response(lane, &answer, &method);
            if page == Page::BadRequest && noting.parts.version < Version::HTTP_2 {
                // Where its next request begins is anybody's guess.
                let close = HeaderValue::from_static("close");
                response.headers_mut().insert(header::CONNECTION, close);
            }
            response
        }
    }
}

async fn pass(
    lane: &Arc<Worker>,
    parts: &mut Parts,
    body: Incoming,
    way: ProxyTarget,
) -> Result<(UpstreamResponse, Option<Upgrade>), Page> {
    let options = &lane.edge.proxy;
    // Other codings would have to be undone: what is inside may be meant to look like something else.
    let codings = parts.headers.get_all(header::TRANSFER_ENCODING);
    let odd = |value: &HeaderValue| !value.as_bytes().eq_ignore_ascii_case(b"chunked");
    if parts.method == Method::CONNECT || codings.iter().any(odd) {
        return Err(Page::BadRequest);
    }
    let upgrade = match asked_protocol(parts, &body) {
        Some(protocol) => {
            let visitor = parts.extensions.remove::<OnUpgrade>();
            let permit = Arc::clone(&lane.edge.tunnels).try_acquire_owned();
            Some(Upgrade {
                protocol,
                visitor: visitor.ok_or(Page::BadRequest)?,
                permit: permit.map_err(|_| Page::Unavailable)?,
            })
        }
        None => None,
    };
    let length = body.size_hint().exact();
    let framing = match length {
        Some(0) if body.is_end_stream() && !usually_has_body(&parts.method) => Framing::Nothing,
        Some(length) if length > options.body_bytes => return Err(Page::TooLarge),
        Some(length) => Framing::Length(length),
        None => Framing::Chunks,
    };
    let head = write_head(lane, parts, framing, upgrade.as_ref());
    let outgoing = if body.is_end_stream() {
        OutgoingRequest::head(head)
    } else {
        OutgoingRequest::with_body(head, body, length.is_none(), options.body_bytes)
    };
    let asked = ResponseContext {
        head: parts.method == Method::HEAD,
        upgrade: upgrade.is_some(),
    };
    let repeatable = parts.method.is_idempotent();
    match retry::forward(lane, way, outgoing, asked, repeatable).await {
        Ok(answered) => Ok((answered, upgrade)),
        Err(failure) => Err(failure.page()),
    }
}

fn write_head(
    lane: &Worker,
    parts: &Parts,
    framing: Framing,
    upgrade: Option<&Upgrade>,
) -> Vec<u8> {
    let target = parts.uri.path_and_query().map_or("/", |it| it.as_str());
    let first = RequestLine {
        method: parts.method.as_str(),
        target,
        host: host_of(&parts.uri, &parts.headers),
        secure: lane.options.tls.is_some(),
    };
    let socket = parts.extensions.get::<SocketPeer>();
    let socket = socket.map_or(crate::serving::hyper_service::UNKNOWN_PEER, |peer| peer.0);
    let forwarded = parts.headers.get_all(FORWARDED_FOR);
    let forwarded = forwarded.iter().rev().map(HeaderValue::as_bytes);
    let origin = Origin::new(&lane.options.trusted_proxies, socket, forwarded);
    let headers = || {
        let headers = parts.headers.iter();
        headers.map(|(name, value)| (name.as_str(), value.as_bytes()))
    };
    let upgrade = upgrade.map(|upgrade| &*upgrade.protocol);
    let mut head = Vec::with_capacity(1024);
    request_head::write(&mut head, first, headers, &origin, framing, upgrade);
    head
}

/// Methods whose requests many servers want to know the length of, also when there is no body.
fn usually_has_body(method: &Method) -> bool {
    matches!(*method, Method::POST | Method::PUT | Method::PATCH)
}

/// The protocol that a request asks for, if that can be had through us.
fn asked_protocol(parts: &Parts, body: &Incoming) -> Option<Vec<u8>> {
    if parts.version != Version::HTTP_11 || !body.is_end_stream() || !lists_upgrade(&parts.headers)
    {
        return None;
    }
    let mut protocols = parts.headers.get_all(header::UPGRADE).iter();
    let protocol = protocols.next()?.as_bytes();
    // HTTP through a tunnel would be requests that nobody here looks at.
    let is_http = |word: &[u8]| {
        let word = word.to_ascii_lowercase();
        word.starts_with(b"h2") || word.starts_with(b"http/")
    };
    let refused = protocols.next().is_some() || list_items(protocol).any(is_http);
    (!refused && list_items(protocol).next().is_some()).then(|| protocol.to_vec())
}

fn lists_upgrade(headers: &HeaderMap) -> bool {
    let mut values = headers.get_all(header::CONNECTION).iter();
    values
        .any(|value| list_items(value.as_bytes()).any(|word| word.eq_ignore_ascii_case(b"upgrade")))
}

/// Answers that the protocol is switched, and connects both sides as soon as the visitor knows.
fn switch(
    lane: &Arc<Worker>,
    answered: UpstreamResponse,
    upgrade: Upgrade,
) -> Response<ResponseBody> {
    let mut response = Response::new(ResponseBody::default());
    *response.status_mut() = answered.head.status;
    *response.headers_mut() = header_map(&answered.head.lines);
    let (stream, read) = answered.connection.into_stream();
    let held = (answered.in_flight, upgrade.permit);
    let limit = lane.edge.proxy.tunnel_timeout;
    let stop = lane.stop.child_token();
    let visitor = upgrade.visitor;
    lane.tunnels.spawn(async move {
        stop.run_until_cancelled(tunnel::run(visitor, stream, read, limit))
            .await;
        drop(held);
    });
    response
}
