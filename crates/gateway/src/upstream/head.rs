//! The head of a provider's answer: what is taken from it, and that nothing else is.

use bytes::{Buf, BytesMut};
use estrade_http1::framing::{BodyHeaders, Framing, parse_digits};
use http::{HeaderName, HeaderValue, header};
use std::mem::MaybeUninit;
use std::time::Duration;

const MAX_HEADERS: usize = 128;
const MAX_HEAD: usize = 64 * 1024;

/// Headers that tell the caller something and nothing of the account that the provider knows us by.
const PASSED_ON: [&str; 4] = [
    "content-language",
    "openai-processing-ms",
    "openai-version",
    "x-should-retry",
];

/// The head of an answer.
#[derive(Debug)]
pub(crate) struct ResponseHead {
    pub(crate) status: u16,
    pub(crate) content_type: Option<HeaderValue>,
    pub(crate) content_encoding: Option<HeaderValue>,
    /// How long to wait before the next try.
    pub(crate) retry_after: Option<Duration>,
    /// Whether the body is a stream of events.
    pub(crate) events: bool,
    /// Headers that are passed on as they are.
    pub(crate) others: Vec<(HeaderName, HeaderValue)>,
    /// How the body goes on.
    pub(super) framing: Framing,
    /// Whether the connection can be used again afterwards.
    pub(super) keep_alive: bool,
}

/// What came is no answer.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Garbage;

/// Takes the head off the buffer when it is complete; interim answers are read over.
pub(super) fn parse(buffer: &mut BytesMut) -> Result<Option<Box<ResponseHead>>, Garbage> {
    loop {
        let mut headers = [const { MaybeUninit::uninit() }; MAX_HEADERS];
        let mut response = httparse::Response::new(&mut []);
        let parsed = httparse::ParserConfig::default()
            .parse_response_with_uninit_headers(&mut response, buffer, &mut headers)
            .map_err(|_| Garbage)?;
        let httparse::Status::Complete(length) = parsed else {
            return if buffer.len() > MAX_HEAD {
                Err(Garbage)
            } else {
                Ok(None)
            };
        };
        let status = response.code.unwrap_or(0);
        match status {
            101 | 0..=99 => return Err(Garbage),
            100..=199 => buffer.advance(length),
            _ => {
                let head = read(status, response.version == Some(1), response.headers)?;
                buffer.advance(length);
                return Ok(Some(head));
            }
        }
    }
}

fn read(
    status: u16,
    modern: bool,
    headers: &[httparse::Header<'_>],
) -> Result<Box<ResponseHead>, Garbage> {
    // In a box, because it goes from hand to hand.
    let mut head = Box::new(ResponseHead {
        status,
        content_type: None,
        content_encoding: None,
        retry_after: None,
        events: false,
        others: Vec::new(),
        framing: Framing::UntilClose,
        keep_alive: modern,
    });
    let mut body = BodyHeaders::default();
    for header in headers {
        let is = |name: &str| header.name.eq_ignore_ascii_case(name);
        let value = header.value;
        // By length first: most headers are none of these.
        match header.name.len() {
            4 | 6 => {}
            10 if is("connection") => {
                let says = |word: &[u8]| {
                    value
                        .split(|b| *b == b',')
                        .any(|part| part.trim_ascii().eq_ignore_ascii_case(word))
                };
                head.keep_alive = (head.keep_alive || says(b"keep-alive")) && !says(b"close");
            }
            11 if is("retry-after") => head.retry_after = seconds(value),
            12 if is("content-type") => {
                head.events = starts_with(value, b"text/event-stream");
                head.content_type = content_type(value);
            }
            14 if is("content-length") => {
                body.add_content_length(value).map_err(|_| Garbage)?;
            }
            14 if is("retry-after-ms") => {
                head.retry_after = parse_digits(value).map(Duration::from_millis);
            }
            16 if is("content-encoding") => {
                let identity = value.eq_ignore_ascii_case(b"identity");
                head.content_encoding = HeaderValue::from_bytes(value).ok().filter(|_| !identity);
            }
            17 if is("transfer-encoding") => {
                body.add_transfer_encoding(value).map_err(|_| Garbage)?;
            }
            _ => {
                if let Some(name) = PASSED_ON.iter().find(|name| is(name))
                    && let Ok(value) = HeaderValue::from_bytes(value)
                {
                    head.others.push((HeaderName::from_static(name), value));
                }
            }
        }
    }
    head.framing = body.response_framing(matches!(status, 204 | 304));
    head.keep_alive &= !body.is_ambiguous() && head.framing != Framing::UntilClose;
    Ok(head)
}

fn content_type(value: &[u8]) -> Option<HeaderValue> {
    // The usual ones without a copy.
    match value {
        b"application/json" => Some(HeaderValue::from_static("application/json")),
        b"text/event-stream" => Some(HeaderValue::from_static("text/event-stream")),
        b"text/event-stream; charset=utf-8" => {
            Some(HeaderValue::from_static("text/event-stream; charset=utf-8"))
        }
        other => HeaderValue::from_bytes(other).ok(),
    }
}

fn starts_with(value: &[u8], prefix: &[u8]) -> bool {
    value
        .get(..prefix.len())
        .is_some_and(|start| start.eq_ignore_ascii_case(prefix))
}

/// `Retry-After` in seconds; a date is not worth reading here.
fn seconds(value: &[u8]) -> Option<Duration> {
    let seconds: f64 = std::str::from_utf8(value).ok()?.trim().parse().ok()?;
    Duration::try_from_secs_f64(seconds).ok()
}

impl ResponseHead {
    /// What the caller may see of it.
    pub(crate) fn shown(&self) -> impl Iterator<Item = &[u8]> {
        let others = self.others.iter().map(|(_, value)| value);
        let named = self.content_type.iter().chain(&self.content_encoding);
        named.chain(others).map(HeaderValue::as_bytes)
    }

    /// Puts what the caller may see into the headers of its answer.
    pub(crate) fn pass_on(&mut self, headers: &mut http::HeaderMap) {
        if let Some(value) = self.content_type.take() {
            headers.insert(header::CONTENT_TYPE, value);
        }
        if let Some(value) = self.content_encoding.take() {
            headers.insert(header::CONTENT_ENCODING, value);
        }
        for (name, value) in self.others.drain(..) {
            headers.insert(name, value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(text: &str) -> Result<Option<Box<ResponseHead>>, Garbage> {
        parse(&mut BytesMut::from(text))
    }

    #[test]
    fn bodies_end_as_the_head_says() {
        let framing = |text: &str| {
            let head = head(&format!("HTTP/1.1 200 OK\r\n{text}\r\n"))
                .unwrap()
                .unwrap();
            (head.framing, head.keep_alive)
        };
        assert_eq!(framing("Content-Length: 5\r\n"), (Framing::Length(5), true));
        assert_eq!(
            framing("content-length: 5\r\ncontent-length: 5\r\n"),
            (Framing::Length(5), true)
        );
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
            "content-length: -5\r\n",
            "content-length: 99999999999999999999\r\n",
            "transfer-encoding: gzip\r\n",
            "transfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n",
            "no colon\r\n",
        ] {
            assert!(
                head(&format!("HTTP/1.1 200 OK\r\n{bad}\r\n")).is_err(),
                "{bad}"
            );
        }
    }

    #[test]
    fn interim_answers_are_read_over_and_others_need_to_be_complete() {
        let text = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early\r\nlink: x\r\n\r\nHTTP/1.0 429 No\r\nretry-after: 1.5\r\n\r\nrest";
        let mut buffer = BytesMut::from(text);
        let head = parse(&mut buffer).unwrap().unwrap();
        assert_eq!(
            (head.status, head.retry_after),
            (429, Some(Duration::from_millis(1500)))
        );
        assert!(!head.keep_alive);
        assert_eq!(&buffer[..], b"rest");
        for at in 0..text.len() - 5 {
            assert!(
                parse(&mut BytesMut::from(&text[..at])).unwrap().is_none(),
                "{at}"
            );
        }
        assert!(parse(&mut BytesMut::from("SSH-2.0-x\r\n\r\n")).is_err());
        assert!(parse(&mut BytesMut::from("HTTP/1.1 101 Up\r\n\r\n")).is_err());
        let long = format!("HTTP/1.1 200 OK\r\nx: {}", "x".repeat(MAX_HEAD));
        assert!(parse(&mut BytesMut::from(&*long)).is_err());
    }

    #[test]
    fn only_harmless_headers_are_passed_on() {
        let text = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nserver: x\r\nset-cookie: a=b\r\n\
            openai-organization: org-1\r\nx-ratelimit-limit-requests: 1\r\nopenai-processing-ms: 12\r\n\
            content-encoding: identity\r\nkeep-alive: timeout=5\r\ncf-ray: 1\r\n\r\n";
        let mut headers = http::HeaderMap::new();
        head(text).unwrap().unwrap().pass_on(&mut headers);
        let names: Vec<_> = headers.keys().map(HeaderName::as_str).collect();
        assert_eq!(names, ["content-type", "openai-processing-ms"]);
    }
}
