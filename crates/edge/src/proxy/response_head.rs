//! The head of an instance's answer: where its body ends, and what of it the visitor gets.

use bytes::{Buf, BytesMut};
use estrade_http1::framing::{BodyHeaders, Framing};
use http::StatusCode;
use std::mem::MaybeUninit;

const MAX_HEADERS: usize = 128;
const MAX_HEAD_BYTES: usize = 64 * 1024;

/// What the meaning of an answer depends on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ResponseContext {
    /// Whether it was asked with HEAD: then there is no body, whatever the head says.
    pub(crate) head: bool,
    /// Whether it was asked for another protocol.
    pub(crate) upgrade: bool,
}

/// The head of an answer.
#[derive(Debug)]
pub(crate) struct ResponseHead {
    pub(crate) status: StatusCode,
    /// The header lines that are passed on, each with its line end.
    pub(crate) lines: Vec<u8>,
    /// Whether there is a date among them.
    pub(crate) dated: bool,
    /// Whether there are cookies among them.
    pub(crate) sets_cookies: bool,
    /// How the body goes on.
    pub(crate) framing: Framing,
    /// Whether the connection can be used again afterwards.
    pub(crate) keep_alive: bool,
}

/// What came is no answer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct MalformedResponse;

/// Takes the head off the buffer when it is complete; interim answers are read over.
pub(crate) fn parse(
    buffer: &mut BytesMut,
    context: ResponseContext,
) -> Result<Option<ResponseHead>, MalformedResponse> {
    loop {
        let mut headers = [const { MaybeUninit::uninit() }; MAX_HEADERS];
        let mut response = httparse::Response::new(&mut []);
        let parsed = httparse::ParserConfig::default()
            .parse_response_with_uninit_headers(&mut response, buffer, &mut headers)
            .map_err(|_| MalformedResponse)?;
        let httparse::Status::Complete(length) = parsed else {
            return if buffer.len() > MAX_HEAD_BYTES {
                Err(MalformedResponse)
            } else {
                Ok(None)
            };
        };
        if length > MAX_HEAD_BYTES {
            return Err(MalformedResponse);
        }
        let status = response
            .code
            .and_then(|code| StatusCode::from_u16(code).ok());
        let status = status.ok_or(MalformedResponse)?;
        match status {
            StatusCode::SWITCHING_PROTOCOLS if !context.upgrade => return Err(MalformedResponse),
            status if status.is_informational() && status != StatusCode::SWITCHING_PROTOCOLS => {
                buffer.advance(length);
            }
            status => {
                let modern = response.version == Some(1);
                let head = read(status, modern, response.headers, context)?;
                buffer.advance(length);
                return Ok(Some(head));
            }
        }
    }
}

fn read(
    status: StatusCode,
    modern: bool,
    headers: &[httparse::Header<'_>],
    context: ResponseContext,
) -> Result<ResponseHead, MalformedResponse> {
    let mut head = ResponseHead {
        status,
        lines: Vec::with_capacity(512),
        dated: false,
        sets_cookies: false,
        framing: Framing::UntilClose,
        keep_alive: modern,
    };
    let switching = status == StatusCode::SWITCHING_PROTOCOLS;
    let (mut body, mut listed) = (BodyHeaders::default(), Vec::new());
    for header in headers.iter().filter(|it| it.name.len() == 10) {
        if header.name.eq_ignore_ascii_case("connection") {
            let (mut keep, mut close) = (false, false);
            for word in list_items(header.value) {
                if word.eq_ignore_ascii_case(b"keep-alive") {
                    keep = true;
                } else if word.eq_ignore_ascii_case(b"close") {
                    close = true;
                } else {
                    listed.push(word);
                }
            }
            head.keep_alive = (head.keep_alive || keep) && !close;
        }
    }
    for header in headers {
        let (name, value) = (header.name, header.value);
        let is = |known: &str| name.eq_ignore_ascii_case(known);
        // By length first: most headers are none of these.
        let passed = match name.len() {
            4 if is("date") => {
                head.dated = true;
                true
            }
            7 if is("upgrade") => switching,
            10 if is("set-cookie") => {
                head.sets_cookies = true;
                true
            }
            14 if is("content-length") => {
                body.add_content_length(value)
                    .map_err(|_| MalformedResponse)?;
                false
            }
            17 if is("transfer-encoding") => {
                body.add_transfer_encoding(value)
                    .map_err(|_| MalformedResponse)?;
                false
            }
            _ => !is_hop_by_hop(name),
        };
        let is_listed = |word: &&[u8]| word.eq_ignore_ascii_case(name.as_bytes());
        if passed && (switching || !listed.iter().any(is_listed)) {
            put(&mut head.lines, name, value);
        }
    }
    let bodiless = context.head || switching || matches!(status.as_u16(), 204 | 304);
    head.framing = body.response_framing(bodiless);
    match body.content_length() {
        Some(_) if body.is_ambiguous() => head.keep_alive = false,
        Some(length) if !matches!(status.as_u16(), 101 | 204 | 304) => {
            put(
                &mut head.lines,
                "content-length",
                itoa::Buffer::new().format(length).as_bytes(),
            );
        }
        _ => {}
    }
    if switching {
        put(&mut head.lines, "connection", b"upgrade");
    }
    head.keep_alive &= head.framing != Framing::UntilClose && !switching;
    Ok(head)
}

/// Headers that are between us and the instance.
fn is_hop_by_hop(name: &str) -> bool {
    let known = match name.len() {
        2 => "te",
        7 => "trailer",
        10 if name.as_bytes()[0] | 0x20 == b'k' => "keep-alive",
        10 => "connection",
        16 => "proxy-connection",
        18 => "proxy-authenticate",
        _ => return false,
    };
    name.eq_ignore_ascii_case(known)
}

fn put(lines: &mut Vec<u8>, name: &str, value: &[u8]) {
    lines.extend_from_slice(name.as_bytes());
    lines.extend_from_slice(b": ");
    lines.extend_from_slice(value);
    lines.extend_from_slice(b"\r\n");
}

/// The words of a list with commas.
pub(crate) fn list_items(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    let words = value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
    words.filter(|word| !word.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    const GET: ResponseContext = ResponseContext {
        head: false,
        upgrade: false,
    };

    fn head(
        text: &str,
        context: ResponseContext,
    ) -> Result<Option<ResponseHead>, MalformedResponse> {
        parse(&mut BytesMut::from(text), context)
    }

    fn lines(text: &str, context: ResponseContext) -> String {
        let head = head(text, context).unwrap().unwrap();
        String::from_utf8(head.lines).unwrap()
    }

    #[test]
    fn bodies_end_as_the_head_says() {
        let framing = |text: &str| {
            let head = head(&format!("HTTP/1.1 200 OK\r\n{text}\r\n"), GET)
                .unwrap()
                .unwrap();
            (head.framing, head.keep_alive)
        };
        assert_eq!(framing("Content-Length: 5\r\n"), (Framing::Length(5), true));
        assert_eq!(framing("content-length: 0\r\n"), (Framing::Done, true));
        assert_eq!(
            framing("transfer-encoding: Chunked\r\n"),
            (Framing::ChunkSize, true)
        );
        assert_eq!(
            framing("transfer-encoding: chunked\r\ncontent-length: 5\r\n"),
            (Framing::ChunkSize, false)
        );
        assert_eq!(
            framing("connection: close\r\ncontent-length: 5\r\n"),
            (Framing::Length(5), false)
        );
        assert_eq!(framing(""), (Framing::UntilClose, false));
        for bad in [
            "content-length: 5\r\ncontent-length: 6\r\n",
            "content-length: +5\r\n",
            "transfer-encoding: gzip, chunked\r\n",
            "transfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n",
            "no colon\r\n",
        ] {
            let text = format!("HTTP/1.1 200 OK\r\n{bad}\r\n");
            assert!(head(&text, GET).is_err(), "{bad}");
        }
    }

    #[test]
    fn what_has_no_body_has_none_whatever_it_says() {
        let context = ResponseContext { head: true, ..GET };
        let text = "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n";
        assert_eq!(head(text, context).unwrap().unwrap().framing, Framing::Done);
        assert_eq!(lines(text, context), "content-length: 5\r\n");
        let text = "HTTP/1.1 304 X\r\ncontent-length: 5\r\netag: x\r\n\r\n";
        assert_eq!(head(text, GET).unwrap().unwrap().framing, Framing::Done);
        assert_eq!(lines(text, GET), "etag: x\r\n");
    }

    #[test]
    fn what_is_of_the_connection_stays_there() {
        let text = "HTTP/1.1 200 OK\r\nConnection: keep-alive, X-Hop\r\nX-Hop: 1\r\nKeep-Alive: timeout=5\r\n\
            Trailer: x\r\nUpgrade: h2c\r\nProxy-Authenticate: Basic\r\nTE: trailers\r\n\
            Transfer-Encoding: chunked\r\nContent-Length: 7\r\nSet-Cookie: a=b\r\nset-cookie: c=d\r\nDate: now\r\n\r\n";
        assert_eq!(
            lines(text, GET),
            "Set-Cookie: a=b\r\nset-cookie: c=d\r\nDate: now\r\n"
        );
        assert!(head(text, GET).unwrap().unwrap().dated);
    }

    #[test]
    fn protocols_are_switched_only_when_that_was_asked_for() {
        let text = "HTTP/1.1 101 Go\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nsec-websocket-accept: x\r\n\r\n";
        assert_eq!(head(text, GET).unwrap_err(), MalformedResponse);
        let context = ResponseContext {
            upgrade: true,
            ..GET
        };
        assert_eq!(
            lines(text, context),
            "Upgrade: websocket\r\nsec-websocket-accept: x\r\nconnection: upgrade\r\n"
        );
    }

    #[test]
    fn interim_answers_are_read_over_and_others_need_to_be_complete() {
        let text = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early\r\nlink: x\r\n\r\nHTTP/1.0 429 No\r\na: b\r\n\r\nrest";
        let mut buffer = BytesMut::from(text);
        let found = parse(&mut buffer, GET).unwrap().unwrap();
        assert_eq!((found.status.as_u16(), found.keep_alive), (429, false));
        assert_eq!(&buffer[..], b"rest");
        for at in 0..text.len() - 5 {
            assert!(head(&text[..at], GET).unwrap().is_none(), "{at}");
        }
        assert!(head("SSH-2.0-x\r\n\r\n", GET).is_err());
        let long = format!("HTTP/1.1 200 OK\r\nx: {}", "x".repeat(MAX_HEAD_BYTES));
        assert!(head(&long, GET).is_err());
        assert!(head(&format!("{long}\r\n\r\n"), GET).is_err());
    }
}
