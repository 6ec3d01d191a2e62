//! What is taken from a provider's response head: an allowlist, so that nothing of the operator's account there reaches a
//! client. Parsing, limits and framing are those of `http1`.

use estrade_http1::client;
use estrade_http1::framing::parse_digits;
use http::{HeaderName, HeaderValue, header};
use std::time::Duration;

/// Headers that are of use to the client and do not identify the account that the provider bills.
const FORWARDED: [&str; 4] = [
    "content-language",
    "openai-processing-ms",
    "openai-version",
    "x-should-retry",
];

#[derive(Debug)]
pub(crate) struct ResponseHead {
    pub(crate) status: u16,
    pub(crate) content_type: Option<HeaderValue>,
    pub(crate) content_encoding: Option<HeaderValue>,
    /// The delay that the provider asks for before a retry.
    pub(crate) retry_after: Option<Duration>,
    /// Whether the body is a stream of server-sent events.
    pub(crate) events: bool,
    /// Those of `FORWARDED` that it has.
    pub(crate) others: Vec<(HeaderName, HeaderValue)>,
}

impl ResponseHead {
    /// Takes what is needed of a head. In a box, because it is handed on from attempt to response.
    #[expect(
        clippy::unnecessary_box_returns,
        reason = "stays in its box from the attempt to the response"
    )]
    pub(crate) fn read(from: &client::ResponseHead<'_>) -> Box<Self> {
        let mut head = Box::new(Self {
            status: from.status.as_u16(),
            content_type: None,
            content_encoding: None,
            retry_after: None,
            events: false,
            others: Vec::new(),
        });
        for header in from.headers {
            let is = |name: &str| header.name.eq_ignore_ascii_case(name);
            let value = header.value;
            // By length first: most headers are none of these.
            match header.name.len() {
                4 | 6 => {}
                11 if is("retry-after") => head.retry_after = seconds(value),
                12 if is("content-type") => {
                    head.events = starts_with(value, b"text/event-stream");
                    head.content_type = content_type(value);
                }
                14 if is("retry-after-ms") => {
                    head.retry_after = parse_digits(value).map(Duration::from_millis);
                }
                16 if is("content-encoding") => {
                    let identity = value.eq_ignore_ascii_case(b"identity");
                    head.content_encoding =
                        HeaderValue::from_bytes(value).ok().filter(|_| !identity);
                }
                _ => {
                    if let Some(name) = FORWARDED.iter().find(|name| is(name))
                        && let Ok(value) = HeaderValue::from_bytes(value)
                    {
                        head.others.push((HeaderName::from_static(name), value));
                    }
                }
            }
        }
        head
    }

    /// The values that the client may see.
    pub(crate) fn shown(&self) -> impl Iterator<Item = &[u8]> {
        let others = self.others.iter().map(|(_, value)| value);
        let named = self.content_type.iter().chain(&self.content_encoding);
        named.chain(others).map(HeaderValue::as_bytes)
    }

    /// Moves what the client may see into the headers of its response.
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

fn content_type(value: &[u8]) -> Option<HeaderValue> {
    // The common ones without a copy.
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

/// `Retry-After` in seconds. A date is ignored.
fn seconds(value: &[u8]) -> Option<Duration> {
    let seconds: f64 = std::str::from_utf8(value).ok()?.trim().parse().ok()?;
    Duration::try_from_secs_f64(seconds).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::BytesMut;
    use estrade_http1::client::{ResponseContext, parse_response_head};

    fn head(text: &str) -> ResponseHead {
        let (mut buffer, context) = (BytesMut::from(text), ResponseContext::default());
        *parse_response_head(&mut buffer, context, ResponseHead::read)
            .unwrap()
            .unwrap()
    }

    #[test]
    fn delays_are_read_in_seconds_and_milliseconds() {
        let after = |text: &str| head(&format!("HTTP/1.1 429 No\r\n{text}\r\n\r\n")).retry_after;
        assert_eq!(after("retry-after: 1.5"), Some(Duration::from_millis(1500)));
        assert_eq!(after("retry-after-ms: 20"), Some(Duration::from_millis(20)));
        assert_eq!(after("retry-after: -1"), None);
        assert_eq!(after("retry-after: Wed, 21 Oct 2015 07:28:00 GMT"), None);
    }

    #[test]
    fn only_harmless_headers_are_passed_on() {
        let text = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nserver: x\r\nset-cookie: a=b\r\n\
            openai-organization: org-1\r\nx-ratelimit-limit-requests: 1\r\nopenai-processing-ms: 12\r\n\
            content-encoding: identity\r\nkeep-alive: timeout=5\r\ncf-ray: 1\r\n\r\n";
        let mut headers = http::HeaderMap::new();
        head(text).pass_on(&mut headers);
        let names: Vec<_> = headers.keys().map(HeaderName::as_str).collect();
        assert_eq!(names, ["content-type", "openai-processing-ms"]);
    }
}
