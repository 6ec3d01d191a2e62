//! The express lane: ordinary calls over plain HTTP/1.1, without a framework.
//!
//! A connection begins here. As long as its requests are ordinary (a POST of a call whose body is
//! small, announced and there) they are read, relayed and answered with as few copies and system
//! calls as it takes. The first request that is anything else hands the connection over to hyper,
//! together with what was read of it.

use crate::body::{Broken, GatewayBody};
use crate::relay::{BETA, CACHE};
use crate::request::{CallBody, CallRequest};
use crate::route::{self, Endpoint, InferenceRoute};
use crate::trace::TRACEPARENT;
use bytes::Bytes;
use estrade_listener::express::{
    self, Input, Next, Parsed, Patience, begin_head, read_more, wants_to_close, write_all,
};
use estrade_listener::{ListenerOptions, Second};
use estrade_model::Timestamp;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response, header};
use http_body::Body;
use std::future::{Future, poll_fn};
use std::io::{self, Write};
use std::ops::Range;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

/// A longer body is not for the express lane: here it is read before the key is looked at.
const LONGEST_BODY: usize = 64 * 1024;
/// How long the rest of a body may take; hyper knows how to wait longer.
const BODY_PATIENCE: Duration = Duration::from_secs(1);
/// What a caller may send before its answer is there.
const MOST_AHEAD: usize = 64 * 1024;
/// A part of an answer that is copied behind what comes before it rather than sent beside it.
const WORTH_COPYING: usize = 8 * 1024;
/// What is collected of an answer before it is sent.
const MOST_COLLECTED: usize = 32 * 1024;

/// How every ordinary request begins.
const METHOD: &[u8] = b"POST ";
const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Who answers calls, and tells the time.
pub trait Answerer: Sync {
    /// Answers a call.
    fn answer(
        &self,
        route: InferenceRoute<'_>,
        request: Box<CallRequest>,
    ) -> impl Future<Output = Response<GatewayBody>> + Send;

    /// The time.
    fn now(&self) -> Timestamp;
}

/// Serves a connection for as long as its requests are ordinary calls.
pub async fn serve(
    answerer: &impl Answerer,
    stream: &mut TcpStream,
    options: &ListenerOptions,
    stop: &CancellationToken,
) -> Next {
    let (mut input, mut output) = (Input::default(), Vec::with_capacity(1024));
    // What a caller sends before its answer is there.
    let mut ahead = Vec::new();
    let (mut second, mut first) = (Second::default(), true);
    let mut patience = Patience::new(options.header_timeout, options.idle_timeout);
    let mut stopped = pin!(stop.cancelled());
    loop {
        // Others get their turn, however many requests one caller sends at once.
        tokio::task::coop::consume_budget().await;
        let head = match Head::parse(input.bytes()) {
            Parsed::Ordinary(head) => head,
            Parsed::Other => return Next::HandOver(input),
            Parsed::Partial => {
                match (input.is_empty(), first) {
                    (true, true) => {}
                    (true, false) => patience.between_requests(),
                    (false, _) => patience.within_request(),
                }
                match read_more(stream, &mut input, &mut patience, stopped.as_mut()).await {
                    Ok(true) => continue,
                    Ok(false) | Err(_) => return Next::Ended,
                }
            }
        };
        let end = head.length + head.body;
        if input.bytes().len() < end {
            let all = timeout(BODY_PATIENCE, read_to(stream, &mut input, end)).await;
            // What never comes is a request as well: hyper sees it through.
            if !all.unwrap_or(false) {
                return Next::HandOver(input);
            }
        }
        let Some(route) = head.route(input.bytes()) else {
            return Next::HandOver(input);
        };
        let request = CallRequest {
            headers: head.headers,
            body: CallBody::Whole(Bytes::copy_from_slice(&input.bytes()[head.length..end])),
        };
        let answering = answerer.answer(route, Box::new(request));
        let Some(response) = while_there(stream, &mut ahead, answering).await else {
            return Next::Ended;
        };
        let close = head.close || stop.is_cancelled();
        second.update(answerer.now());
        let mut sending = Sending {
            stream,
            ahead: &mut ahead,
            output: &mut output,
        };
        if !sending.send(response, second.http(), close).await || close {
            return Next::Ended;
        }
        input.advance(end);
        input.append(&mut ahead);
        first = false;
        patience.next_request();
    }
}

/// Reads until so many bytes are there; false when no more will come.
async fn read_to(stream: &mut TcpStream, input: &mut Input, end: usize) -> bool {
    while input.bytes().len() < end {
        if !input.read(stream).await.unwrap_or(false) {
            return false;
        }
    }
    true
}

/// Does something for the caller for as long as it is there; what it sends meanwhile is kept.
async fn while_there<T>(
    stream: &mut TcpStream,
    ahead: &mut Vec<u8>,
    work: impl Future<Output = T>,
) -> Option<T> {
    let mut work = pin!(work);
    poll_fn(|cx| {
        if let Poll::Ready(done) = work.as_mut().poll(cx) {
            return Poll::Ready(Some(done));
        }
        poll_gone(stream, ahead, cx).map(|()| None)
    })
    .await
}

/// Ready when the caller has gone.
fn poll_gone(stream: &mut TcpStream, ahead: &mut Vec<u8>, cx: &mut Context<'_>) -> Poll<()> {
    let mut piece = [0; 1024];
    while ahead.len() < MOST_AHEAD {
        let mut buffer = ReadBuf::new(&mut piece);
        match Pin::new(&mut *stream).poll_read(cx, &mut buffer) {
            Poll::Pending => return Poll::Pending,
            Poll::Ready(Ok(())) if !buffer.filled().is_empty() => {
                ahead.extend_from_slice(buffer.filled());
            }
            Poll::Ready(_) => return Poll::Ready(()),
        }
    }
    // It has to wait for its answers first.
    Poll::Pending
}

/// The head of a request.
struct Head {
    /// How many bytes it has.
    length: usize,
    /// How many its body has.
    body: usize,
    /// Where its path is.
    path: Range<usize>,
    /// The headers that a call looks at.
    headers: HeaderMap,
    /// Whether the caller wants no other answer.
    close: bool,
}

impl Head {
    fn parse(input: &[u8]) -> Parsed<Self> {
        express::parse(input, |request, length| {
            // The path is found by its place, and httparse skips empty lines before it.
            let head = Self::ordinary(request, length).filter(|_| input.starts_with(METHOD))?;
            head.route(input).is_some().then_some(head)
        })
    }

    /// What the path asks for, if it is a call.
    fn route<'i>(&self, input: &'i [u8]) -> Option<InferenceRoute<'i>> {
        let path = std::str::from_utf8(&input[self.path.clone()]).ok()?;
        let route = route::parse(&Method::POST, path)?;
        matches!(route.endpoint, Endpoint::Call(_)).then_some(route)
    }

    /// The head, if it is one that we know all about.
    fn ordinary(request: &httparse::Request<'_, '_>, length: usize) -> Option<Self> {
        let target = request.path?;
        let plain = target.starts_with('/') && !target.contains('#');
        if request.method != Some("POST") || request.version != Some(1) || !plain {
            return None;
        }
        let path = target.split_once('?').map_or(target, |(path, _)| path);
        let start = METHOD.len();
        let (mut body, mut close) = (None, false);
        let mut headers = HeaderMap::with_capacity(6);
        for header in request.headers.iter() {
            let is = |known: &str| header.name.eq_ignore_ascii_case(known);
            match header.name.len() {
                14 if is("content-length") => {
                    let said = parse_length(header.value)?;
                    if body.replace(said).is_some() {
                        return None;
                    }
                }
                10 if is("connection") => close |= wants_to_close(header.value)?,
                6 if is("expect") => return None,
                7 if is("upgrade") => return None,
                17 if is("transfer-encoding") => return None,
                _ => {
                    if let Some(name) = looked_at(header.name) {
                        headers.append(name, HeaderValue::from_bytes(header.value).ok()?);
                    }
                }
            }
        }
        Some(Self {
            length,
            body: body.filter(|body| *body <= LONGEST_BODY)?,
            path: start..start + path.len(),
            headers,
            close,
        })
    }
}

/// Digits and nothing else: `+1` is a number for Rust, but not for everybody on the way.
fn parse_length(value: &[u8]) -> Option<usize> {
    let digits = !value.is_empty() && value.iter().all(u8::is_ascii_digit);
    let text = std::str::from_utf8(value).ok().filter(|_| digits)?;
    text.parse().ok()
}

/// The headers that a call looks at.
fn looked_at(name: &str) -> Option<HeaderName> {
    let known = match name.len() {
        6 => header::ACCEPT,
        11 if name.as_bytes()[0] | 0x20 == b't' => TRACEPARENT,
        11 => BETA,
        12 => REQUEST_ID,
        13 => header::AUTHORIZATION,
        15 => CACHE,
        _ => return None,
    };
    name.eq_ignore_ascii_case(known.as_str()).then_some(known)
}

/// An answer on its way to the caller.
struct Sending<'c> {
    stream: &'c mut TcpStream,
    ahead: &'c mut Vec<u8>,
    output: &'c mut Vec<u8>,
}

/// How the end of a body is told.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Framing {
    Length,
    Chunks,
    /// There is no body by definition.
    Nothing,
}

impl Sending<'_> {
    /// Sends all of it; false when that was not possible, and then nothing else may follow.
    async fn send(&mut self, response: Response<GatewayBody>, date: &str, close: bool) -> bool {
        let (parts, body) = response.into_parts();
        let length = body.size_hint().exact();
        self.output.clear();
        begin_head(self.output, parts.status, date);
        for (name, value) in &parts.headers {
            self.output.extend_from_slice(name.as_str().as_bytes());
            self.output.extend_from_slice(b": ");
            self.output.extend_from_slice(value.as_bytes());
            self.output.extend_from_slice(b"\r\n");
        }
        if close {
            self.output.extend_from_slice(b"connection: close\r\n");
        }
        let framing = if matches!(parts.status.as_u16(), 204 | 304) {
            self.output.extend_from_slice(b"\r\n");
            Framing::Nothing
        } else if let Some(length) = length {
            // Writing into memory does not fail.
            let _ = write!(self.output, "content-length: {length}\r\n\r\n");
            Framing::Length
        } else {
            let chunked = b"transfer-encoding: chunked\r\n\r\n";
            self.output.extend_from_slice(chunked);
            Framing::Chunks
        };
        self.send_body(body, framing).await
    }

    /// Sends what has been collected and then the body, each part as soon as it is there.
    async fn send_body(&mut self, body: GatewayBody, framing: Framing) -> bool {
        let mut body = pin!(body);
        loop {
            match self.collect(body.as_mut(), framing).await {
                Collected::Part(large) => {
                    if write_all(self.stream, self.output, &large).await.is_err() {
                        return false;
                    }
                    self.output.clear();
                    if !large.is_empty() && framing == Framing::Chunks {
                        self.output.extend_from_slice(b"\r\n");
                    }
                }
                Collected::All => {
                    if framing == Framing::Chunks {
                        self.output.extend_from_slice(b"0\r\n\r\n");
                    }
                    return write_all(self.stream, self.output, &[]).await.is_ok();
                }
                Collected::Cut => {
                    // The caller gets what there is, and notices by the end that is missing.
                    drop(write_all(self.stream, self.output, &[]).await);
                    return false;
                }
                Collected::Gone => return false,
            }
        }
    }

    /// Sends what was collected, as far as that goes without waiting; whether all of it is out.
    fn write_now(&mut self) -> io::Result<bool> {
        if self.output.is_empty() {
            return Ok(true);
        }
        match self.stream.try_write(self.output) {
            Ok(written) => drop(self.output.drain(..written)),
            Err(error) if is_no_failure(&error) => {}
            Err(error) => return Err(error),
        }
        Ok(self.output.is_empty())
    }

    /// Collects what is there of a body, and waits only when there is nothing to send.
    async fn collect(&mut self, mut body: Pin<&mut GatewayBody>, framing: Framing) -> Collected {
        poll_fn(|cx| {
            while self.output.len() < MOST_COLLECTED {
                let data = match body.as_mut().poll_frame(cx) {
                    Poll::Ready(Some(Ok(frame))) => frame.into_data().unwrap_or_default(),
                    Poll::Ready(Some(Err(Broken(_)))) => return Poll::Ready(Collected::Cut),
                    Poll::Ready(None) => return Poll::Ready(Collected::All),
                    // It wakes us: what is there goes out at once, and nothing is asked twice.
                    Poll::Pending => match self.write_now() {
                        Ok(true) => {
                            let gone = poll_gone(self.stream, self.ahead, cx);
                            return gone.map(|()| Collected::Gone);
                        }
                        Ok(false) => break,
                        Err(_) => return Poll::Ready(Collected::Gone),
                    },
                };
                if data.is_empty() || framing == Framing::Nothing {
                    continue;
                }
                if framing == Framing::Chunks {
                    begin_chunk(self.output, data.len());
                }
                if data.len() > WORTH_COPYING {
                    return Poll::Ready(Collected::Part(data));
                }
                self.output.extend_from_slice(&data);
                if framing == Framing::Chunks {
                    self.output.extend_from_slice(b"\r\n");
                }
            }
            Poll::Ready(Collected::Part(Bytes::new()))
        })
        .await
    }
}

fn is_no_failure(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
    )
}

/// Writes how long a chunk is. By hand: it is done for every event of every stream.
fn begin_chunk(output: &mut Vec<u8>, length: usize) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digits = (usize::BITS - length.leading_zeros()).div_ceil(4);
    let digit = |place: u32| DIGITS[(length >> (4 * place)) & 15];
    output.extend((0..digits).rev().map(digit));
    output.extend_from_slice(b"\r\n");
}

/// What was collected of a body.
enum Collected {
    /// What is in the output, and this after it.
    Part(Bytes),
    /// What is in the output is the last of it.
    All,
    /// The same, but it was cut there.
    Cut,
    /// There is nobody to send it to.
    Gone,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_of_chunks_are_hexadecimal() {
        for length in [
            1,
            9,
            10,
            15,
            16,
            255,
            256,
            4095,
            65_535,
            1 << 20,
            usize::MAX,
        ] {
            let mut output = Vec::new();
            begin_chunk(&mut output, length);
            assert_eq!(output, format!("{length:x}\r\n").into_bytes());
        }
    }
}
