//! Forwards requests that hyper reads (HTTP/2, TLS, bodies, upgrades) to an instance.

use crate::proxy::ProxyTarget;
use crate::proxy::forwarded::Origin;
use crate::proxy::outgoing::OutgoingRequest;
use crate::proxy::request_head::{self, RequestLine};
use crate::proxy::retry::{self, UpstreamResponse};
use crate::serving::hyper_body::{ResponseBody, into_response};
use crate::serving::hyper_request::{UNKNOWN_PEER, host_of};
use crate::serving::logged_body::{LogOnDrop, LoggedBody};
use crate::serving::tunnel;
use crate::serving::worker::Worker;
use crate::static_files::error_pages::Page;
use crate::static_files::response::header_map;
use estrade_http1::client::{RequestFraming, ResponseContext, list_items};
use estrade_http1::framing::BodyHeaders;
use estrade_listener::peer::SocketPeer;
use estrade_model::ProjectId;
use estrade_model::keyed_limit::KeyedPermit;
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode, Version, header};
use http_body::Body;
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;
use std::sync::Arc;

const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// A requested protocol upgrade, and the permit of its tunnel.
struct Upgrade {
    protocol: Vec<u8>,
    client: OnUpgrade,
    permit: KeyedPermit<ProjectId>,
}

/// Forwards a request and its response.
pub(crate) async fn respond(
    worker: &Arc<Worker>,
    mut log: LogOnDrop,
    body: Incoming,
    target: ProxyTarget,
) -> Response<ResponseBody> {
    match forward(worker, &mut log.parts, body, target).await {
        Ok((upstream, Some(upgrade)))
            if upstream.head.status == StatusCode::SWITCHING_PROTOCOLS =>
        {
            log.status = Some(upstream.head.status);
            switch(worker, upstream, upgrade)
        }
        Ok((upstream, _)) => {
            let (head, body) = upstream.into_body(worker.upstream());
            log.status = Some(head.status);
            let (status, headers) = (head.status, header_map(&head.lines));
            let body = LoggedBody { body, log };
            let mut response = Response::new(ResponseBody::Proxied(Box::new(body)));
            *response.status_mut() = status;
            *response.headers_mut() = headers;
            response
        }
        Err(page) => {
            let local = page.response();
            let method = log.parts.method.clone();
            log.status = Some(local.status);
            log.bytes = if method == Method::HEAD {
                0
            } else {
                local.body.length()
            };
            let mut response = into_response(worker, &local, &method);
            if page == Page::BadRequest && log.parts.version < Version::HTTP_2 {
                // The rest of the request was not read, so the start of the next one is unknown.
                let close = HeaderValue::from_static("close");
                response.headers_mut().insert(header::CONNECTION, close);
            }
            response
        }
    }
}

async fn forward(
    worker: &Arc<Worker>,
    parts: &mut Parts,
    body: Incoming,
    target: ProxyTarget,
) -> Result<(UpstreamResponse, Option<Upgrade>), Page> {
    let options = &worker.edge.proxy;
    // A coding that is not decoded here could smuggle a second request to the instance.
    let mut body_headers = BodyHeaders::default();
    let codings = parts.headers.get_all(header::TRANSFER_ENCODING);
    let mut codings = codings.iter().map(HeaderValue::as_bytes);
    let is_unknown = |value: &[u8]| body_headers.add_transfer_encoding(value).is_err();
    if parts.method == Method::CONNECT || codings.any(is_unknown) {
        return Err(Page::BadRequest);
    }
    let upgrade = match requested_protocol(parts, &body) {
        Some(protocol) => {
            let client = parts.extensions.remove::<OnUpgrade>();
            let permit = worker.edge.tunnels.try_acquire(target.route.project);
            Some(Upgrade {
                protocol,
                client: client.ok_or(Page::BadRequest)?,
                permit: permit.map_err(|_| Page::Unavailable)?,
            })
        }
        None => None,
    };
    let length = body.size_hint().exact();
    let framing = match length {
        Some(0) if body.is_end_stream() && !usually_has_body(&parts.method) => RequestFraming::None,
        Some(length) if length > options.body_bytes => return Err(Page::TooLarge),
        Some(length) => RequestFraming::Length(length),
        None => RequestFraming::Chunked,
    };
    let head = write_head(worker, parts, framing, upgrade.as_ref());
    let outgoing = if body.is_end_stream() {
        OutgoingRequest::head(head)
    } else {
        OutgoingRequest::with_body(head, body, length.is_none(), options.body_bytes)
    };
    let context = ResponseContext {
        head: parts.method == Method::HEAD,
        upgrade: upgrade.is_some(),
    };
    let repeatable = parts.method.is_idempotent();
    match retry::forward(worker.upstream(), target, outgoing, context, repeatable).await {
        Ok(upstream) => Ok((upstream, upgrade)),
        Err(failure) => Err(failure.page()),
    }
}

fn write_head(
    worker: &Worker,
    parts: &Parts,
    framing: RequestFraming,
    upgrade: Option<&Upgrade>,
) -> Vec<u8> {
    let path = parts.uri.path_and_query().map_or("/", |it| it.as_str());
    let first = RequestLine {
        method: parts.method.as_str(),
        target: path,
        host: host_of(&parts.uri, &parts.headers),
        secure: worker.options.tls.is_some(),
    };
    let socket = parts.extensions.get::<SocketPeer>();
    let socket = socket.map_or(UNKNOWN_PEER, |peer| peer.0);
    let forwarded = parts.headers.get_all(FORWARDED_FOR);
    let forwarded = forwarded.iter().rev().map(HeaderValue::as_bytes);
    let origin = Origin::new(&worker.options.trusted_proxies, socket, forwarded);
    let headers = || {
        let headers = parts.headers.iter();
        headers.map(|(name, value)| (name.as_str(), value.as_bytes()))
    };
    let upgrade = upgrade.map(|upgrade| &*upgrade.protocol);
    let mut head = Vec::with_capacity(1024);
    request_head::write(&mut head, first, headers, &origin, framing, upgrade);
    head
}

/// Methods for which many servers require a `Content-Length`, even without a body.
fn usually_has_body(method: &Method) -> bool {
    matches!(*method, Method::POST | Method::PUT | Method::PATCH)
}

/// The protocol that a request wants to upgrade to, if it may be tunnelled.
fn requested_protocol(parts: &Parts, body: &Incoming) -> Option<Vec<u8>> {
    if parts.version != Version::HTTP_11 || !body.is_end_stream() || !lists_upgrade(&parts.headers)
    {
        return None;
    }
    let mut protocols = parts.headers.get_all(header::UPGRADE).iter();
    let protocol = protocols.next()?.as_bytes();
    // HTTP in a tunnel would bypass routing, limits and the access log.
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

/// Sends the 101 response and starts the tunnel once hyper has completed the upgrade.
fn switch(
    worker: &Arc<Worker>,
    upstream: UpstreamResponse,
    upgrade: Upgrade,
) -> Response<ResponseBody> {
    let mut response = Response::new(ResponseBody::default());
    *response.status_mut() = upstream.head.status;
    *response.headers_mut() = header_map(&upstream.head.lines);
    let (stream, read) = upstream.connection.into_stream();
    let held = (upstream.in_flight, upgrade.permit);
    let limit = worker.edge.proxy.tunnel_timeout;
    let stop = worker.stop.child_token();
    let client = upgrade.client;
    worker.tunnels.spawn(async move {
        stop.run_until_cancelled(tunnel::run(client, stream, read, limit))
            .await;
        drop(held);
    });
    response
}
