//! Request head as it is sent to an instance.
//!
//! Prevents request smuggling and spoofed origins: framing, host and `Forwarded` headers are written anew from what was
//! understood and never copied, so that edge and instance cannot read them differently.

use crate::proxy::forwarded::Origin;
use estrade_http1::client::{RequestFraming, list_items};

/// Request line and host.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RequestLine<'r> {
    pub(crate) method: &'r str,
    /// Path and query as the client sent them.
    pub(crate) target: &'r str,
    pub(crate) host: &'r str,
    /// Whether the client uses TLS.
    pub(crate) secure: bool,
}

/// What a trusted proxy says of the request that it received.
#[derive(Default)]
struct ForwardedClaims<'h> {
    proto: Option<&'h [u8]>,
    host: Option<&'h [u8]>,
}

/// Writes the head. `headers` is iterated more than once; `upgrade` is the requested protocol.
pub(crate) fn write<'h, I: Iterator<Item = (&'h str, &'h [u8])>>(
    out: &mut Vec<u8>,
    line: RequestLine<'_>,
    headers: impl Fn() -> I,
    origin: &Origin,
    framing: RequestFraming,
    upgrade: Option<&[u8]>,
) {
    let (method, target) = (line.method.as_bytes(), line.target.as_bytes());
    put(
        out,
        &[
            method,
            b" ",
            target,
            b" HTTP/1.1\r\nhost: ",
            line.host.as_bytes(),
            b"\r\n",
        ],
    );
    let (mut listed, mut claims, mut cookies) = (Vec::new(), ForwardedClaims::default(), 0);
    for (name, value) in headers() {
        match name.len() {
            6 if name.eq_ignore_ascii_case("cookie") => cookies += 1,
            // The common values name no header.
            10 if name.eq_ignore_ascii_case("connection") && !names_no_header(value) => {
                listed.extend(list_items(value));
            }
            16 if origin.trusted && name.eq_ignore_ascii_case("x-forwarded-host") => {
                claims.host = claims.host.or(list_items(value).next());
            }
            17 if origin.trusted && name.eq_ignore_ascii_case("x-forwarded-proto") => {
                claims.proto = claims.proto.or(list_items(value).next());
            }
            _ => {}
        }
    }
    for (name, value) in headers() {
        let is_listed = |word: &&[u8]| word.eq_ignore_ascii_case(name.as_bytes());
        let is_split_cookie = cookies > 1 && name.eq_ignore_ascii_case("cookie");
        if !is_stripped(name, origin.trusted) && !is_split_cookie && !listed.iter().any(is_listed) {
            put(out, &[name.as_bytes(), b": ", value, b"\r\n"]);
        }
    }
    if cookies > 1 {
        // HTTP/2 allows several Cookie fields, HTTP/1.1 one.
        put(out, &[b"cookie: "]);
        let is_cookie = |(name, _): &(&str, &[u8])| name.eq_ignore_ascii_case("cookie");
        for (at, (_, value)) in headers().filter(is_cookie).enumerate() {
            put(out, &[if at == 0 { b"" } else { b"; " }, value]);
        }
        put(out, &[b"\r\n"]);
    }
    framing.write(out);
    if let Some(protocol) = upgrade {
        put(
            out,
            &[b"connection: upgrade\r\nupgrade: ", protocol, b"\r\n"],
        );
    }
    let proto = claims.proto.filter(|it| matches!(*it, b"http" | b"https"));
    let own: &[u8] = if line.secure { b"https" } else { b"http" };
    let (proto, host) = (proto.unwrap_or(own), claims.host.filter(|it| is_host(it)));
    let host = host.unwrap_or(line.host.as_bytes());
    put(
        out,
        &[b"x-forwarded-for: ", origin.chain.as_bytes(), b"\r\n"],
    );
    put(
        out,
        &[
            b"x-forwarded-proto: ",
            proto,
            b"\r\nx-forwarded-host: ",
            host,
            b"\r\n",
        ],
    );
    put(
        out,
        &[b"x-real-ip: ", origin.client.as_bytes(), b"\r\nforwarded: "],
    );
    put(
        out,
        &[
            origin.first.as_bytes(),
            b";host=\"",
            host,
            b"\";proto=",
            proto,
        ],
    );
    put(out, &[origin.rest.as_bytes(), b"\r\n\r\n"]);
}

fn put(out: &mut Vec<u8>, parts: &[&[u8]]) {
    for part in parts {
        out.extend_from_slice(part);
    }
}

fn names_no_header(value: &[u8]) -> bool {
    value.eq_ignore_ascii_case(b"keep-alive") || value.eq_ignore_ascii_case(b"close")
}

/// Whether it can be a host and needs no escaping in quotes.
fn is_host(text: &[u8]) -> bool {
    let fits = |byte: &u8| byte.is_ascii_alphanumeric() || b".-_:[]".contains(byte);
    !text.is_empty() && text.iter().all(fits)
}

/// Headers of the hop between client and edge, and those that only the edge writes.
fn is_stripped(name: &str, trusted: bool) -> bool {
    const FORWARDED: &str = "x-forwarded-";
    let known = match (name.len(), name.as_bytes()[0] | 0x20) {
        (2, _) => "te",
        (4, _) => "host",
        // httpoxy: CGI turns it into the variable HTTP_PROXY, which HTTP clients of the instance would use.
        (5, _) => "proxy",
        (6, _) => "expect",
        (7, b'u') => "upgrade",
        (7, _) => "trailer",
        (9, b'f') => "forwarded",
        (9, _) => "x-real-ip",
        (10, b'k') => "keep-alive",
        (10, _) => "connection",
        (14, b'h') => "http2-settings",
        (14, _) => "content-length",
        (16, b'p') => "proxy-connection",
        (17, b't') => "transfer-encoding",
        (19, b'p') => "proxy-authorization",
        (15.., b'x') if is_same_variable(&name.as_bytes()[..FORWARDED.len()], FORWARDED) => {
            let rest = &name.as_bytes()[FORWARDED.len()..];
            return !trusted
                || ["for", "proto", "host"]
                    .iter()
                    .any(|it| is_same_variable(rest, it));
        }
        _ => return false,
    };
    is_same_variable(name.as_bytes(), known)
}

/// Whether both have the same name as a CGI variable, where `-` becomes `_`.
fn is_same_variable(name: &[u8], known: &str) -> bool {
    let same = |(a, b): (&u8, u8)| a.eq_ignore_ascii_case(&b) || (*a == b'_' && b == b'-');
    name.len() == known.len() && name.iter().zip(known.bytes()).all(same)
}

#[cfg(test)]
mod tests {
    use super::*;
    use estrade_listener::peer::TrustedProxies;

    fn written(trusted: &[&str], headers: &[(&str, &str)], framing: RequestFraming) -> String {
        let proxies: TrustedProxies = trusted.iter().map(|it| it.parse().unwrap()).collect();
        let forwarded = headers.iter().rev().filter(|it| it.0 == "x-forwarded-for");
        let forwarded = forwarded.map(|it| it.1.as_bytes());
        let origin = Origin::new(&proxies, "10.0.0.1".parse().unwrap(), forwarded);
        let line = RequestLine {
            method: "GET",
            target: "/a?b",
            host: "a.localhost:8080",
            secure: false,
        };
        let mut out = Vec::new();
        let headers = || {
            let headers = headers.iter();
            headers.map(|(name, value)| (*name, value.as_bytes()))
        };
        write(&mut out, line, headers, &origin, framing, None);
        String::from_utf8(out).unwrap()
    }

    const PLAIN: &str = "x-forwarded-for: 10.0.0.1\r\nx-forwarded-proto: http\r\n\
        x-forwarded-host: a.localhost:8080\r\nx-real-ip: 10.0.0.1\r\n\
        forwarded: for=10.0.0.1;host=\"a.localhost:8080\";proto=http\r\n\r\n";

    #[test]
    fn forwarding_headers_of_clients_are_not_forwarded() {
        let spoofed = [
            ("host", "other"),
            ("X-Forwarded-For", "6.6.6.6"),
            ("x-forwarded-for", "6.6.6.6"),
            ("X_Forwarded_For", "6.6.6.6"),
            ("x-forwarded_proto", "https"),
            ("X-Forwarded-Host", "evil"),
            ("X-Forwarded-Port", "1"),
            ("x-forwarded-prefix", "/x"),
            ("X-Real-IP", "6.6.6.6"),
            ("x_real_ip", "6.6.6.6"),
            ("Forwarded", "for=6.6.6.6"),
            ("Proxy", "http://evil"),
        ];
        let head = written(&[], &spoofed, RequestFraming::None);
        assert_eq!(
            head,
            format!("GET /a?b HTTP/1.1\r\nhost: a.localhost:8080\r\n{PLAIN}")
        );
    }

    #[test]
    fn hop_by_hop_headers_are_not_forwarded_and_others_are() {
        let headers = [
            ("Accept", "*/*"),
            ("Connection", "keep-alive, X-Hop,cookie"),
            ("connection", "x-too"),
            ("X-Hop", "1"),
            ("x-too", "1"),
            ("Cookie", "a=b"),
            ("Keep-Alive", "1"),
            ("TE", "trailers"),
            ("Trailer", "x"),
            ("Transfer-Encoding", "chunked"),
            ("Content-Length", "99"),
            ("Upgrade", "h2c"),
            ("HTTP2-Settings", "x"),
            ("Expect", "100-continue"),
            ("Proxy-Connection", "x"),
            ("Proxy-Authorization", "x"),
            ("Authorization", "x"),
            ("X_Custom", "stays"),
        ];
        let head = written(&[], &headers, RequestFraming::Length(5));
        assert_eq!(
            head,
            format!(
                "GET /a?b HTTP/1.1\r\nhost: a.localhost:8080\r\nAccept: */*\r\nAuthorization: x\r\n\
                 X_Custom: stays\r\ncontent-length: 5\r\n{PLAIN}"
            )
        );
    }

    #[test]
    fn trusted_proxies_say_where_a_request_came_from() {
        let headers = [
            ("x-forwarded-for", "6.6.6.6, 2001:db8::1"),
            ("x-forwarded-for", "10.0.0.2"),
            ("x-forwarded-proto", "https"),
            ("x-forwarded-host", "www.example.com"),
            ("x-forwarded-port", "443"),
            ("forwarded", "for=6.6.6.6"),
        ];
        let head = written(&["10.0.0.0/8"], &headers, RequestFraming::Chunked);
        assert_eq!(
            head,
            "GET /a?b HTTP/1.1\r\nhost: a.localhost:8080\r\nx-forwarded-port: 443\r\n\
             transfer-encoding: chunked\r\n\
             x-forwarded-for: 2001:db8::1, 10.0.0.2, 10.0.0.1\r\nx-forwarded-proto: https\r\n\
             x-forwarded-host: www.example.com\r\nx-real-ip: 2001:db8::1\r\n\
             forwarded: for=\"[2001:db8::1]\";host=\"www.example.com\";proto=https, for=10.0.0.2, for=10.0.0.1\r\n\r\n"
        );
        let odd = [
            ("x-forwarded-proto", "gopher"),
            ("x-forwarded-host", "a\";b"),
        ];
        let head = written(&["10.0.0.0/8"], &odd, RequestFraming::None);
        assert!(head.ends_with(PLAIN), "{head}");
    }

    #[test]
    fn split_cookies_are_one_again() {
        let headers = [("cookie", "a=b"), ("accept", "x"), ("cookie", "c=d")];
        let head = written(&[], &headers, RequestFraming::None);
        assert!(
            head.contains("\r\naccept: x\r\ncookie: a=b; c=d\r\n"),
            "{head}"
        );
        assert_eq!(head.matches("cookie").count(), 1);
    }
}
