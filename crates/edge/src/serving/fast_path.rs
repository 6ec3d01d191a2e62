//! Fast path of the edge: serves plain HTTP/1.1 requests without hyper.
//!
//! A connection begins here. As long as its requests are supported (GET or HEAD, no body, no upgrade), each takes a
//! read, a look-up and a write, and large files go from the page cache to the socket (`sendfile`). Requests for a
//! running project are forwarded to one of its instances and the response is streamed. The first request that is not
//! supported falls back to hyper, with the bytes that were read. The parts of the loop come from
//! `estrade_http1::server`; routing and responses are here.
//!
//! The line that it is for is nginx: 1.08 to 1.23 × its requests per CPU-second for 1 KiB files, 1.04 × for 16 KiB and
//! 0.96 to 1.09 × for 1 MiB (`./bench edge --only files`, docs/PERFORMANCE.md). hyper takes connections that it cannot.

use crate::edge::Reply;
use crate::serving::forward_fast_path::{self, FastPathRequest, OriginCache, SentResponse};
use crate::serving::worker::Worker;
use crate::static_files::content_cache::{Content, FileSlice};
use crate::static_files::error_pages::Page;
use crate::static_files::request::{Headers, Method, StaticRequest};
use crate::static_files::response::{Body, StaticResponse};
use estrade_http1::DateCache;
use estrade_http1::server::{
    BodyEncoding, Input, KeepAliveTimeout, Parsed, PipelinedInput, RequestReader, ResponseWriter,
    begin_head, end_head, parse_connection, parse_head, writable, write_all, write_more,
};
use estrade_listener::ConnectionHandle;
use std::io;
use std::net::IpAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio::time::Instant;

/// Bodies up to this size are copied behind the head into one buffer; larger ones are sent with `writev`.
const MAX_COPIED_BODY: usize = 8 * 1024;
/// Responses in a row to a client that pipelines, before the task yields to other connections of the thread, and the
/// longest that they may take together: some cost much more than others.
const MAX_RESPONSES_PER_TURN: u32 = 32;
const MAX_TURN: Duration = Duration::from_micros(500);

/// Serves a connection for as long as its requests are supported; returns what was read of the first that is not.
pub(crate) async fn serve(
    worker: &Worker,
    stream: &mut TcpStream,
    peer: IpAddr,
    connection: &Arc<ConnectionHandle>,
) -> Option<Input> {
    let stop = connection.close();
    let mut head = Vec::with_capacity(1024);
    let (mut date, mut turn) = (DateCache::default(), Turn::default());
    let timeout = KeepAliveTimeout::new(
        worker.options.header_timeout,
        worker.options.idle_timeout,
        connection,
    );
    let (stopped, peer_text) = (pin!(stop.cancelled()), peer.to_string());
    let mut reader = RequestReader::new(timeout, stopped);
    // What the client sends while an instance responds.
    let (mut pipelined, mut origins) = (PipelinedInput::default(), OriginCache::new(worker, peer));
    loop {
        let parsed = match parse_head(reader.bytes(), ParsedRequest::from_head) {
            Parsed::Supported(parsed) => parsed,
            Parsed::Unsupported => return Some(reader.into_input()),
            Parsed::Partial => {
                if !reader.read(stream).await {
                    return None;
                }
                continue;
            }
        };
        let started = Instant::now();
        let close = parsed.close || stop.is_cancelled();
        let now = worker.edge.now();
        let (reply, matched) = worker.edge.respond(&parsed.request, now).await;
        date.update(now);
        let outcome = match reply {
            Reply::Local(response) => Err(response),
            Reply::Forward(target) => {
                let forwarded_request = FastPathRequest {
                    bytes: &reader.bytes()[..parsed.length],
                    request: &parsed.request,
                    origin: origins.of(worker, &parsed.forwarded),
                    date: date.http_date(),
                    close,
                };
                pipelined.begin(reader.bytes().len() - parsed.length);
                let writer = ResponseWriter {
                    stream,
                    pipelined: &mut pipelined,
                    output: &mut head,
                };
                // Boxed: keeps the future of idle connections and static files small.
                let sent = Box::pin(forward_fast_path::forward(
                    worker,
                    forwarded_request,
                    target,
                    writer,
                ))
                .await;
                sent.map_err(Page::response)
            }
        };
        let sent = match outcome {
            Ok(sent) => sent,
            Err(response) => {
                let written =
                    send_response(stream, &mut head, &response, &parsed, &date, close).await;
                let Ok(bytes) = written else {
                    return None;
                };
                SentResponse {
                    status: response.status,
                    bytes,
                    complete: true,
                }
            }
        };
        let forwarded = worker.forwarded_client(peer, &parsed.forwarded);
        let forwarded = forwarded.map(|client| client.to_string());
        worker.log_request(
            &date,
            now,
            &parsed.request,
            matched.project(),
            forwarded.as_deref().unwrap_or(&peer_text),
            (sent.status, sent.bytes),
            started,
        );
        if close || !sent.complete {
            return None;
        }
        let length = parsed.length;
        reader.finish(length, &mut pipelined);
        let is_pipelined = !reader.bytes().is_empty();
        if turn.is_over(is_pipelined.then_some(started)) {
            tokio::task::yield_now().await;
        }
    }
}

/// Fairness budget of a connection: what it has used since its task last yielded.
#[derive(Default)]
struct Turn {
    /// When the first response of the present run of pipelined requests began.
    began: Option<Instant>,
    responses: u32,
}

impl Turn {
    /// Counts a response; true when the task has to yield, which begins a new turn. `pipelined` is when the
    /// response began, if the next request has already arrived: only then no other task ran in between.
    fn is_over(&mut self, pipelined: Option<Instant>) -> bool {
        self.began = pipelined.map(|started| self.began.unwrap_or(started));
        self.responses += 1;
        let is_long = self.began.is_some_and(|began| began.elapsed() >= MAX_TURN);
        let over = self.responses >= MAX_RESPONSES_PER_TURN || is_long;
        if over {
            *self = Self::default();
        }
        over
    }
}

/// A request that the fast path supports.
struct ParsedRequest<'r> {
    request: StaticRequest<'r>,
    /// Bytes of its head.
    length: usize,
    /// Whether the client sent `Connection: close`.
    close: bool,
    /// All values of `X-Forwarded-For`.
    forwarded: Vec<&'r [u8]>,
}

impl<'r> ParsedRequest<'r> {
    /// The request, if the fast path supports it.
    fn from_head(request: &httparse::Request<'_, 'r>, length: usize) -> Option<Self> {
        let verb = request.method?;
        let method = match verb {
            "GET" => Method::Get,
            "HEAD" => Method::Head,
            _ => return None,
        };
        let target = request.path.filter(|target| target.starts_with('/'))?;
        let (path, query) = match target.split_once('?') {
            Some((path, query)) => (path, Some(query)),
            None => (target, None),
        };
        if request.version != Some(1) || target.contains('#') {
            return None;
        }
        let (mut host, mut close, mut forwarded) = (None, false, Vec::new());
        let mut headers = Headers::default();
        for header in request.headers.iter() {
            let name = header.name;
            let is = |known: &str| name.eq_ignore_ascii_case(known);
            match name.len() {
                4 if is("host") => {
                    let earlier = host.replace(std::str::from_utf8(header.value).ok()?);
                    if earlier.is_some() {
                        return None;
                    }
                }
                10 if is("connection") => close |= parse_connection(header.value)?,
                6 if is("expect") => return None,
                7 if is("upgrade") => return None,
                14 if is("content-length") => return None,
                17 if is("transfer-encoding") => return None,
                15 if is("x-forwarded-for") => forwarded.push(header.value),
                _ => headers.add(name, std::str::from_utf8(header.value).unwrap_or_default()),
            }
        }
        let static_request = StaticRequest {
            method,
            verb,
            // TLS never takes the fast path.
            secure: false,
            host: host?,
            path,
            query,
            headers,
        };
        Some(Self {
            request: static_request,
            length,
            close,
            forwarded,
        })
    }
}

/// Sends a local response; returns the length of its body.
async fn send_response(
    stream: &TcpStream,
    head: &mut Vec<u8>,
    response: &StaticResponse,
    parsed: &ParsedRequest<'_>,
    date: &DateCache,
    close: bool,
) -> io::Result<u64> {
    head.clear();
    write_head(
        head,
        response.status,
        date.http_date(),
        response.lines(),
        close,
    );
    let body = if parsed.request.method == Method::Head {
        &Body::Empty
    } else {
        &response.body
    };
    send(stream, head, body).await?;
    Ok(body.length())
}

fn write_head(head: &mut Vec<u8>, status: http::StatusCode, date: &str, lines: &[u8], close: bool) {
    begin_head(head, status, date);
    head.extend_from_slice(lines);
    // The length is among the lines.
    end_head(head, BodyEncoding::ContentLength, close);
}

async fn send(stream: &TcpStream, head: &mut Vec<u8>, body: &Body) -> io::Result<()> {
    match body.pieces() {
        [] => write_all(stream, head, &[]).await,
        // One buffer is cheaper to send than two, up to where copying costs more.
        [Content::Bytes(bytes)] if bytes.len() <= MAX_COPIED_BODY => {
            head.extend_from_slice(bytes);
            write_all(stream, head, &[]).await
        }
        [Content::Bytes(bytes)] => write_all(stream, head, bytes).await,
        pieces => {
            write_more(stream, head).await?;
            for piece in pieces {
                match piece {
                    Content::Bytes(bytes) => write_all(stream, bytes, &[]).await?,
                    Content::File(slice) => send_file(stream, slice).await?,
                }
            }
            Ok(())
        }
    }
}

/// Sends a part of a file with `sendfile`.
async fn send_file(stream: &TcpStream, slice: &FileSlice) -> io::Result<()> {
    let (mut offset, end) = (slice.offset, slice.offset + slice.length);
    while offset < end {
        let count = usize::try_from(end - offset).unwrap_or(usize::MAX);
        let written = stream.try_io(Interest::WRITABLE, || {
            Ok(rustix::fs::sendfile(
                stream,
                &*slice.file,
                Some(&mut offset),
                count,
            )?)
        });
        match written {
            // The file was truncated: the announced length cannot be met.
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => writable(stream).await?,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costly_responses_end_a_turn_early() {
        let mut turn = Turn::default();
        let few = (1..MAX_RESPONSES_PER_TURN).map(|_| turn.is_over(None));
        assert_eq!(few.filter(|over| *over).count(), 0);
        assert!(turn.is_over(None));
        let costly = Instant::now().checked_sub(MAX_TURN).unwrap();
        assert!(turn.is_over(Some(costly)));
        assert!(!turn.is_over(None));
    }

    #[test]
    fn a_second_word_on_the_connection_does_not_undo_the_first() {
        let head =
            "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nConnection: keep-alive\r\n\r\n";
        let Parsed::Supported(parsed) = parse_head(head.as_bytes(), ParsedRequest::from_head)
        else {
            panic!("it is simple");
        };
        assert!(parsed.close);
    }
}
