//! Response heads: parsing with limits, and the body framing that follows from them (RFC 9112, section 6.3).

use crate::framing::{BodyHeaders, Framing, FramingError};
use bytes::{Buf, BytesMut};
use http::StatusCode;
use memchr::memchr_iter;
use std::mem::MaybeUninit;

/// More header fields than this are refused.
pub const MAX_HEADERS: usize = 128;
/// A longer head is refused, interim responses not counted.
pub const MAX_HEAD_BYTES: usize = 64 * 1024;

/// What the meaning of a response depends on besides its own bytes.
#[derive(Debug, Clone, Copy, Default)]
pub struct ResponseContext {
    /// The request was a HEAD: the response has no body, whatever its head says.
    pub head: bool,
    /// The request asked for another protocol: without it, status 101 is refused.
    pub upgrade: bool,
}

/// These bytes are not a response, or its body has no certain end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MalformedResponse;

impl From<FramingError> for MalformedResponse {
    fn from(_: FramingError) -> Self {
        Self
    }
}

/// A complete head, as long as it is in the read buffer.
#[derive(Debug)]
pub struct ResponseHead<'b> {
    pub status: StatusCode,
    pub headers: &'b [httparse::Header<'b>],
    /// Length of the body that a `Content-Length` declares; none when `Transfer-Encoding` overrides it. Responses
    /// without a body (HEAD, 204, 304) may have one, too.
    pub content_length: Option<u64>,
    /// How the body continues.
    pub framing: Framing,
    /// Whether the connection may carry another request after this response.
    pub keep_alive: bool,
    /// Whether a `Connection` header names more than `keep-alive` and `close`.
    lists_headers: bool,
}

/// How far the head of a response has been read that is not complete yet.
///
/// A head is parsed from its first byte, so a peer that sends it byte by byte would have it parsed once per byte. It is
/// parsed again only once another empty line has arrived, which may end it, or as many bytes as the last time, which may
/// show that it is malformed: the work stays linear in its length.
#[derive(Debug, Default)]
pub(super) struct HeadProgress {
    /// Whether a byte of the response has arrived, interim responses included.
    pub(super) begun: bool,
    /// Bytes of the buffer that were parsed the last time.
    parsed: usize,
    /// Bytes of the buffer in which no other empty line is to be found.
    searched: usize,
}

impl HeadProgress {
    /// Whether to parse what has arrived.
    pub(super) fn is_worth_parsing(&mut self, buffer: &[u8]) -> bool {
        let searched = std::mem::replace(&mut self.searched, buffer.len());
        let ends_head = |at: usize| {
            let before = &buffer[..searched + at];
            let before = before.strip_suffix(b"\r").unwrap_or(before);
            before.ends_with(b"\n")
        };
        buffer.len() >= 2 * self.parsed
            || buffer.len() > MAX_HEAD_BYTES
            || memchr_iter(b'\n', &buffer[searched..]).any(ends_head)
    }

    /// What is in the buffer was parsed, and is not complete.
    pub(super) fn set_partial(&mut self, buffer: &BytesMut) {
        self.parsed = buffer.len();
        self.searched = buffer.len();
    }
}

/// Takes the head off the buffer once it is complete and gives it to `read`. Interim responses (1xx except 101) are
/// skipped.
pub fn parse_response_head<T>(
    buffer: &mut BytesMut,
    context: ResponseContext,
    mut read: impl FnMut(&ResponseHead<'_>) -> T,
) -> Result<Option<T>, MalformedResponse> {
    loop {
        skip_empty_lines(buffer);
        let mut headers = [const { MaybeUninit::uninit() }; MAX_HEADERS];
        let mut response = httparse::Response::new(&mut []);
        let parsed = httparse::ParserConfig::default()
            .parse_response_with_uninit_headers(&mut response, buffer, &mut headers)
            .map_err(|_| MalformedResponse)?;
        let length = match parsed {
            httparse::Status::Complete(length) => length,
            httparse::Status::Partial if buffer.len() > MAX_HEAD_BYTES => {
                return Err(MalformedResponse);
            }
            httparse::Status::Partial => return Ok(None),
        };
        if length > MAX_HEAD_BYTES {
            return Err(MalformedResponse);
        }
        let status = response
            .code
            .and_then(|code| StatusCode::from_u16(code).ok())
            .ok_or(MalformedResponse)?;
        match status {
            StatusCode::SWITCHING_PROTOCOLS if !context.upgrade => return Err(MalformedResponse),
            status if status.is_informational() && status != StatusCode::SWITCHING_PROTOCOLS => {
                buffer.advance(length);
            }
            status => {
                let is_http11 = response.version == Some(1);
                let head = ResponseHead::new(status, is_http11, response.headers, context)?;
                let read = read(&head);
                buffer.advance(length);
                return Ok(Some(read));
            }
        }
    }
}

/// Drops empty lines before a head. The parser would ignore them as well, but each would look like the end of a head.
fn skip_empty_lines(buffer: &mut BytesMut) {
    loop {
        match &buffer[..] {
            [b'\r', b'\n', ..] => buffer.advance(2),
            [b'\n', ..] => buffer.advance(1),
            _ => return,
        }
    }
}

impl<'b> ResponseHead<'b> {
    fn new(
        status: StatusCode,
        is_http11: bool,
        headers: &'b [httparse::Header<'b>],
        context: ResponseContext,
    ) -> Result<Self, MalformedResponse> {
        let mut body = BodyHeaders::default();
        let (mut keep_alive, mut lists_headers) = (is_http11, false);
        for header in headers {
            let is = |known: &str| header.name.eq_ignore_ascii_case(known);
            // By length first: most headers are none of these.
            match header.name.len() {
                10 if is("connection") => {
                    let (mut keep, mut close) = (false, false);
                    for option in list_items(header.value) {
                        if option.eq_ignore_ascii_case(b"keep-alive") {
                            keep = true;
                        } else if option.eq_ignore_ascii_case(b"close") {
                            close = true;
                        } else {
                            lists_headers = true;
                        }
                    }
                    keep_alive = (keep_alive || keep) && !close;
                }
                14 if is("content-length") => body.add_content_length(header.value)?,
                17 if is("transfer-encoding") => body.add_transfer_encoding(header.value)?,
                _ => {}
            }
        }
        let switching = status == StatusCode::SWITCHING_PROTOCOLS;
        let bodiless = context.head || switching || matches!(status.as_u16(), 204 | 304);
        let framing = body.response_framing(bodiless);
        // Two different ends: bytes that follow are not trusted to be the next response.
        keep_alive &= !body.is_ambiguous() && framing != Framing::UntilClose && !switching;
        let content_length = body.content_length().filter(|_| !body.is_ambiguous());
        Ok(Self {
            status,
            headers,
            content_length,
            framing,
            keep_alive,
            lists_headers,
        })
    }

    /// Whether a `Connection` header names this header: then it is meant for this hop only.
    pub fn is_connection_option(&self, name: &str) -> bool {
        // Responses that list anything are rare, so the values are split again instead of being collected.
        self.lists_headers
            && self
                .headers
                .iter()
                .filter(|header| header.name.eq_ignore_ascii_case("connection"))
                .flat_map(|header| list_items(header.value))
                .any(|option| option.eq_ignore_ascii_case(name.as_bytes()))
    }
}

/// The items of a comma-separated list, without the empty ones.
pub fn list_items(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    let items = value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
    items.filter(|item| !item.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    const GET: ResponseContext = ResponseContext {
        head: false,
        upgrade: false,
    };

    #[test]
    fn listed_headers_belong_to_the_connection() {
        let text =
            "HTTP/1.1 200 OK\r\nConnection: keep-alive, X-Hop\r\nX-Hop: 1\r\nX-End: 1\r\n\r\n";
        let options = |head: &ResponseHead<'_>| {
            ["x-hop", "X-Hop", "x-end", "keep-alive"].map(|name| head.is_connection_option(name))
        };
        let found = parse_response_head(&mut BytesMut::from(text), GET, options).unwrap();
        assert_eq!(found, Some([true, true, false, true]));
        let text = "HTTP/1.1 200 OK\r\nConnection: close\r\nX-End: 1\r\n\r\n";
        let found = parse_response_head(&mut BytesMut::from(text), GET, options).unwrap();
        assert_eq!(found, Some([false; 4]));
    }

    #[test]
    fn interim_responses_are_skipped_and_others_need_to_be_complete() {
        let text = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early\r\nlink: x\r\n\r\nHTTP/1.0 429 No\r\na: b\r\n\r\nrest";
        let read = |head: &ResponseHead<'_>| (head.status.as_u16(), head.keep_alive);
        let mut buffer = BytesMut::from(text);
        assert_eq!(
            parse_response_head(&mut buffer, GET, read),
            Ok(Some((429, false)))
        );
        assert_eq!(&buffer[..], b"rest");
        for at in 0..text.len() - 5 {
            let part = parse_response_head(&mut BytesMut::from(&text[..at]), GET, read);
            assert_eq!(part, Ok(None), "{at}");
        }
    }

    /// Feeds a head byte by byte; how often it was parsed, and how many bytes that was in all.
    fn parse_bytewise(text: &str) -> (usize, usize) {
        let (mut buffer, mut progress) = (BytesMut::new(), HeadProgress::default());
        let (mut parses, mut bytes) = (0, 0);
        for byte in text.bytes() {
            buffer.extend_from_slice(&[byte]);
            if !progress.is_worth_parsing(&buffer) {
                continue;
            }
            (parses, bytes) = (parses + 1, bytes + buffer.len());
            match parse_response_head(&mut buffer, GET, |_| ()) {
                Ok(None) => progress.set_partial(&buffer),
                found => {
                    assert_eq!(found, Ok(Some(())));
                    assert!(buffer.is_empty());
                    return (parses, bytes);
                }
            }
        }
        panic!("{text:?} is not complete");
    }

    #[test]
    fn the_work_on_a_head_that_comes_byte_by_byte_is_linear() {
        let fields = "x-field: value\r\n".repeat(100);
        let interim = "HTTP/1.1 103 Early\r\nlink: x\r\n\r\n".repeat(100);
        for text in [
            format!("HTTP/1.1 200 OK\r\n{fields}\r\n"),
            format!("HTTP/1.1 200 OK\nx: {}\n\n", "x".repeat(60_000)),
            format!("{}HTTP/1.1 200 OK\r\n\r\n", "\r\n".repeat(10_000)),
            format!("{}HTTP/1.1 200 OK\n\r\n", "\n".repeat(10_000)),
            format!("{interim}HTTP/1.1 200 OK\r\n{fields}\r\n"),
        ] {
            let (parses, bytes) = parse_bytewise(&text);
            assert!(bytes < 6 * text.len(), "{parses} parses of {bytes} bytes");
        }
    }

    #[test]
    fn heads_have_a_largest_size() {
        let refused =
            |text: &str| parse_response_head(&mut BytesMut::from(text), GET, |_| ()).is_err();
        let long = format!("HTTP/1.1 200 OK\r\nx: {}", "x".repeat(MAX_HEAD_BYTES));
        assert!(refused(&long));
        assert!(refused(&format!("{long}\r\n\r\n")));
        let many = |count| format!("HTTP/1.1 200 OK\r\n{}\r\n", "a: b\r\n".repeat(count));
        assert!(!refused(&many(MAX_HEADERS)));
        assert!(refused(&many(MAX_HEADERS + 1)));
    }
}
