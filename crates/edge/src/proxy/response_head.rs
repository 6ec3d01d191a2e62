//! What the client of a site gets of an instance's response head: all headers except those of this hop.
//!
//! Parsing, limits and framing are those of `http1`. The end of the body is declared anew from what was understood, not
//! copied, so that two servers cannot read it differently.

use estrade_http1::client;
use estrade_http1::framing::Framing;
use http::StatusCode;

#[derive(Debug)]
pub(crate) struct ResponseHead {
    pub(crate) status: StatusCode,
    /// The header lines that are forwarded, each with its line end.
    pub(crate) lines: Vec<u8>,
    /// Whether `lines` has a `Date`.
    pub(crate) dated: bool,
    /// Whether `lines` has a `Set-Cookie`.
    pub(crate) sets_cookies: bool,
    /// How the body continued after the head.
    pub(crate) framing: Framing,
}

impl ResponseHead {
    pub(crate) fn read(from: &client::ResponseHead<'_>) -> Self {
        let mut head = Self {
            status: from.status,
            lines: Vec::with_capacity(512),
            dated: false,
            sets_cookies: false,
            framing: from.framing,
        };
        let switching = from.status == StatusCode::SWITCHING_PROTOCOLS;
        for header in from.headers {
            let name = header.name;
            let is = |known: &str| name.eq_ignore_ascii_case(known);
            // By length first: most headers are none of these.
            let forwarded = match name.len() {
                4 if is("date") => {
                    head.dated = true;
                    true
                }
                7 if is("upgrade") => switching,
                10 if is("set-cookie") => {
                    head.sets_cookies = true;
                    true
                }
                _ => !is_hop_by_hop(name),
            };
            if forwarded && (switching || !from.is_connection_option(name)) {
                put(&mut head.lines, name, header.value);
            }
        }
        if let Some(length) = from.content_length
            && !matches!(from.status.as_u16(), 101 | 204 | 304)
        {
            let mut digits = itoa::Buffer::new();
            let length = digits.format(length).as_bytes();
            put(&mut head.lines, "content-length", length);
        }
        if switching {
            put(&mut head.lines, "connection", b"upgrade");
        }
        head
    }
}

/// Headers of the hop between an instance and the edge, and those that declare the end of a body.
fn is_hop_by_hop(name: &str) -> bool {
    let known = match name.len() {
        2 => "te",
        7 => "trailer",
        10 if name.as_bytes()[0] | 0x20 == b'k' => "keep-alive",
        10 => "connection",
        14 => "content-length",
        16 => "proxy-connection",
        17 => "transfer-encoding",
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

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::BytesMut;
    use estrade_http1::client::{MalformedResponse, ResponseContext, parse_response_head};

    const GET: ResponseContext = ResponseContext {
        head: false,
        upgrade: false,
    };

    fn head(
        text: &str,
        context: ResponseContext,
    ) -> Result<Option<ResponseHead>, MalformedResponse> {
        parse_response_head(&mut BytesMut::from(text), context, ResponseHead::read)
    }

    fn lines(text: &str, context: ResponseContext) -> String {
        let head = head(text, context).unwrap().unwrap();
        String::from_utf8(head.lines).unwrap()
    }

    #[test]
    fn the_length_of_a_body_is_forwarded_and_not_where_none_may_be() {
        let context = ResponseContext { head: true, ..GET };
        let text = "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n";
        assert_eq!(head(text, context).unwrap().unwrap().framing, Framing::Done);
        assert_eq!(lines(text, context), "content-length: 5\r\n");
        assert_eq!(lines(text, GET), "content-length: 5\r\n");
        let text = "HTTP/1.1 304 X\r\ncontent-length: 5\r\netag: x\r\n\r\n";
        assert_eq!(head(text, GET).unwrap().unwrap().framing, Framing::Done);
        assert_eq!(lines(text, GET), "etag: x\r\n");
        let text = "HTTP/1.1 200 X\r\ncontent-length: 5\r\ncontent-length: 5\r\n\r\n";
        assert_eq!(lines(text, GET), "content-length: 5\r\n");
    }

    #[test]
    fn hop_by_hop_headers_are_not_forwarded() {
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
    fn protocols_are_switched_only_on_request() {
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
}
