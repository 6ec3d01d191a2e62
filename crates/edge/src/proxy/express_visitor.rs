//! Visitors on the express lane: GET and HEAD without a body, passed on without a framework.

use crate::error_pages::Page;
use crate::lane::Lane;
use crate::proxy::ProxyTarget;
use crate::proxy::answer_head::{AnswerHead, Asked};
use crate::proxy::attempt;
use crate::proxy::forwarded::Origin;
use crate::proxy::noting::gone;
use crate::proxy::outgoing::Outgoing;
use crate::proxy::request_head::{self, Framing, Line};
use crate::request::{Method, StaticRequest};
use estrade_listener::express::{begin_head, begin_status};
use estrade_listener::sending::{End, Sending, while_there};
use estrade_listener::spare;
use http::StatusCode;
use std::mem::MaybeUninit;
use std::net::IpAddr;
use std::pin::pin;

/// More headers than this are not for the express lane.
const MOST_HEADERS: usize = 64;

/// A request on the express lane that an instance shall answer.
pub(crate) struct Passing<'r> {
    /// Its bytes.
    pub(crate) bytes: &'r [u8],
    /// What it asks.
    pub(crate) request: &'r StaticRequest<'r>,
    /// Where it comes from.
    pub(crate) origin: &'r Origin,
    /// The present date.
    pub(crate) date: &'r str,
    /// Whether it is the last of its connection.
    pub(crate) close: bool,
}

/// What became of it.
pub(crate) struct Passed {
    /// The status of its answer.
    pub(crate) status: StatusCode,
    /// Bytes of the body that were sent.
    pub(crate) bytes: u64,
    /// Whether all of it was sent, so that another request can follow.
    pub(crate) whole: bool,
}

/// Where requests of a connection come from; those that are behind a trusted proxy differ.
pub(crate) struct Origins {
    peer: IpAddr,
    trusted: bool,
    known: Option<Origin>,
}

impl Origins {
    pub(crate) fn new(lane: &Lane, peer: IpAddr) -> Self {
        Self {
            peer,
            trusted: lane.options.trusted_proxies.contains(peer),
            known: None,
        }
    }

    pub(crate) fn of(&mut self, lane: &Lane, forwarded: &[&[u8]]) -> &Origin {
        if self.trusted {
            self.known = None;
        }
        let (proxies, peer) = (&lane.options.trusted_proxies, self.peer);
        self.known
            .get_or_insert_with(|| Origin::new(proxies, peer, forwarded.iter().rev().copied()))
    }
}

/// Passes a request on, and what comes back. Nothing was sent to the visitor when there is a page
/// instead.
pub(crate) async fn pass(
    lane: &Lane,
    request: Passing<'_>,
    way: ProxyTarget,
    mut sending: Sending<'_>,
) -> Result<Passed, Page> {
    let head = write_head(&request).ok_or(Page::BadRequest)?;
    let asked = Asked {
        head: request.request.method == Method::Head,
        upgrade: false,
    };
    let answered = {
        let answer = attempt::forward(lane, way, Outgoing::head(head), asked, true);
        while_there(sending.stream, sending.ahead, pin!(answer)).await
    };
    let Some(answered) = answered else {
        return Ok(Passed {
            status: gone(),
            bytes: 0,
            whole: false,
        });
    };
    let (head, mut exchange) = answered.map_err(super::Failure::page)?.into_exchange(lane);
    let end = if asked.head || matches!(head.status.as_u16(), 204 | 304) {
        End::Nothing
    } else if head.framing.left().is_some() {
        // Said of the head, not of what is left: a body in chunks may have ended already.
        End::Length
    } else {
        End::Chunks
    };
    *sending.output = spare::take();
    begin_answer(sending.output, &head, &request, end);
    let whole = sending.send_body(&mut exchange, end).await;
    Ok(Passed {
        status: head.status,
        bytes: exchange.bytes,
        whole,
    })
}

/// The head as the instance gets it. It was parsed before: who it is for was not known yet.
fn write_head(request: &Passing<'_>) -> Option<Vec<u8>> {
    let mut slots = [const { MaybeUninit::uninit() }; MOST_HEADERS];
    let mut parsed = httparse::Request::new(&mut []);
    parsed
        .parse_with_uninit_headers(request.bytes, &mut slots)
        .ok()?;
    let line = Line {
        method: parsed.method?,
        target: parsed.path?,
        host: request.request.host,
        // TLS is never express.
        secure: false,
    };
    let headers = || parsed.headers.iter().map(|it| (it.name, it.value));
    let mut head = Vec::with_capacity(request.bytes.len() + 512);
    request_head::write(
        &mut head,
        line,
        headers,
        request.origin,
        Framing::Nothing,
        None,
    );
    Some(head)
}

fn begin_answer(output: &mut Vec<u8>, head: &AnswerHead, request: &Passing<'_>, end: End) {
    output.clear();
    if head.dated {
        begin_status(output, head.status);
    } else {
        begin_head(output, head.status, request.date);
    }
    output.extend_from_slice(&head.lines);
    if end == End::Chunks {
        output.extend_from_slice(b"transfer-encoding: chunked\r\n");
    }
    if request.close {
        output.extend_from_slice(b"connection: close\r\n");
    }
    output.extend_from_slice(b"\r\n");
}
