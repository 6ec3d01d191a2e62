//! Forwards fast-path requests (GET and HEAD without a body) to an instance, without hyper.

use crate::proxy::ProxyTarget;
use crate::proxy::forwarded::Origin;
use crate::proxy::outgoing::OutgoingRequest;
use crate::proxy::request_head::{self, RequestLine};
use crate::proxy::response_head::ResponseHead;
use crate::proxy::retry;
use crate::serving::logged_body::client_closed_request;
use crate::serving::worker::Worker;
use crate::static_files::error_pages::Page;
use crate::static_files::request::{Method, StaticRequest};
use estrade_http1::buffer_pool;
use estrade_http1::client::{RequestFraming, ResponseContext};
use estrade_http1::server::{
    BodyEncoding, ResponseWriter, begin_head, begin_status, end_head, while_connected,
};
use http::StatusCode;
use std::mem::MaybeUninit;
use std::net::IpAddr;
use std::pin::pin;

/// Requests with more headers do not take the fast path.
const MAX_HEADERS: usize = 64;

/// A fast-path request to forward to an instance.
pub(crate) struct FastPathRequest<'r> {
    /// The head as the client sent it.
    pub(crate) bytes: &'r [u8],
    pub(crate) request: &'r StaticRequest<'r>,
    pub(crate) origin: &'r Origin,
    /// The value of the `Date` header.
    pub(crate) date: &'r str,
    /// Whether it is the last request of its connection.
    pub(crate) close: bool,
}

/// The outcome of a response, for the access log.
pub(crate) struct SentResponse {
    pub(crate) status: StatusCode,
    /// Bytes of the body that were sent.
    pub(crate) bytes: u64,
    /// Whether all of it was sent, so that another request can follow.
    pub(crate) complete: bool,
}

/// Caches the origin of a connection's requests; behind a trusted proxy each request has its own.
pub(crate) struct OriginCache {
    peer: IpAddr,
    trusted: bool,
    known: Option<Origin>,
}

impl OriginCache {
    pub(crate) fn new(worker: &Worker, peer: IpAddr) -> Self {
        Self {
            peer,
            trusted: worker.options.trusted_proxies.contains(peer),
            known: None,
        }
    }

    pub(crate) fn of(&mut self, worker: &Worker, forwarded: &[&[u8]]) -> &Origin {
        if self.trusted {
            self.known = None;
        }
        let (proxies, peer) = (&worker.options.trusted_proxies, self.peer);
        self.known
            .get_or_insert_with(|| Origin::new(proxies, peer, forwarded.iter().rev().copied()))
    }
}

/// Forwards a request and its response. On `Err`, nothing was sent to the client and the page is the
/// response.
pub(crate) async fn forward(
    worker: &Worker,
    request: FastPathRequest<'_>,
    target: ProxyTarget,
    mut writer: ResponseWriter<'_>,
) -> Result<SentResponse, Page> {
    let head = write_head(&request).ok_or(Page::BadRequest)?;
    let context = ResponseContext {
        head: request.request.method == Method::Head,
        upgrade: false,
    };
    let response = {
        let upstream = retry::forward(
            worker.upstream(),
            target,
            OutgoingRequest::head(head),
            context,
            true,
        );
        while_connected(writer.stream, writer.pipelined, pin!(upstream)).await
    };
    let Some(response) = response else {
        return Ok(SentResponse {
            status: client_closed_request(),
            bytes: 0,
            complete: false,
        });
    };
    let (head, mut body) = response
        .map_err(crate::proxy::Failure::page)?
        .into_body(worker.upstream());
    // Decided by the head, not by the remaining bytes: a chunked body may have ended already.
    let has_length = head.framing.remaining().is_some();
    let end = BodyEncoding::of_response(head.status, context.head, has_length);
    *writer.output = buffer_pool::acquire();
    begin_response(writer.output, &head, &request, end);
    let complete = writer.send_body(&mut body, end).await;
    Ok(SentResponse {
        status: head.status,
        bytes: body.bytes,
        complete,
    })
}

/// Writes the head for the instance. It is parsed a second time: the first parse did not know the target yet.
fn write_head(request: &FastPathRequest<'_>) -> Option<Vec<u8>> {
    let mut slots = [const { MaybeUninit::uninit() }; MAX_HEADERS];
    let mut parsed = httparse::Request::new(&mut []);
    parsed
        .parse_with_uninit_headers(request.bytes, &mut slots)
        .ok()?;
    let line = RequestLine {
        method: parsed.method?,
        target: parsed.path?,
        host: request.request.host,
        // TLS never takes the fast path.
        secure: false,
    };
    let headers = || parsed.headers.iter().map(|it| (it.name, it.value));
    let mut head = Vec::with_capacity(request.bytes.len() + 512);
    request_head::write(
        &mut head,
        line,
        headers,
        request.origin,
        RequestFraming::None,
        None,
    );
    Some(head)
}

fn begin_response(
    output: &mut Vec<u8>,
    head: &ResponseHead,
    request: &FastPathRequest<'_>,
    end: BodyEncoding,
) {
    output.clear();
    if head.dated {
        begin_status(output, head.status);
    } else {
        begin_head(output, head.status, request.date);
    }
    output.extend_from_slice(&head.lines);
    end_head(output, end, request.close);
}
