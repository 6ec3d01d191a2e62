//! The head of a request as an instance gets it.
//!
//! Written anew from what was understood of the visitor's: where the body ends, which host is meant
//! and where the request comes from are our words, so that nothing that is read differently by two
//! servers gets through.

use crate::proxy::forwarded::Origin;
use crate::proxy::response_head::list_items;

/// The first line and the host.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RequestLine<'r> {
    pub(crate) method: &'r str,
    /// Path and query, as they came.
    pub(crate) target: &'r str,
    pub(crate) host: &'r str,
    /// Whether the visitor came over TLS.
    pub(crate) secure: bool,
}

/// How the end of the body is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Framing {
    Nothing,
    Length(u64),
    Chunks,
}

/// What a trusted proxy says that it was asked for.
#[derive(Default)]
struct ForwardedClaims<'h> {
    proto: Option<&'h [u8]>,
    host: Option<&'h [u8]>,
}

/// Writes the head. The headers are looked through more than once; `upgrade` is the protocol that is
/// asked for.
pub(crate) fn write<'h, I: Iterator<Item = (&'h str, &'h [u8])>>(
    out: &mut Vec<u8>,
    line: RequestLine<'_>,
    headers: impl Fn() -> I,
    origin: &Origin,
    framing: Framing,
    upgrade: Option<&[u8]>,
) {
    let mut put = |parts: &[&[u8]]| parts.iter().for_each(|part| out.extend_from_slice(part));
    let (method, target) = (line.method.as_bytes(), line.target.as_bytes());
    put(&[
        method,
        b" ",
        target,
        b" HTTP/1.1\r\nhost: ",
        line.host.as_bytes(),
        b"\r\n",
    ]);
    let (mut listed, mut claims, mut cookies) = (Vec::new(), ForwardedClaims::default(), 0);
    for (name, value) in headers() {
        match name.len() {
            6 if name.eq_ignore_ascii_case("cookie") => cookies += 1,
            // What is usual names no header.
            10 if name.eq_ignore_ascii_case("connection") && !is_usual(value) => {
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
            put(&[name.as_bytes(), b": ", value, b"\r\n"]);
        }
    }
    if cookies > 1 {
        // HTTP/2 lets clients split it, HTTP/1.1 does not.
        put(&[b"cookie: "]);
        let is_cookie = |(name, _): &(&str, &[u8])| name.eq_ignore_ascii_case("cookie");
        for (at, (_, value)) in headers().filter(is_cookie).enumerate() {
            put(&[if at == 0 { b"" } else { b"; " }, value]);
        }
        put(&[b"\r\n"]);
    }
    match framing {
        Framing::Nothing => {}
        Framing::Length(length) => {
            let mut number = itoa::Buffer::new();
            put(&[
                b"content-length: ",
                number.format(length).as_bytes(),
                b"\r\n",
            ]);
        }
        Framing::Chunks => put(&[b"transfer-encoding: chunked\r\n"]),
    }
    if let Some(protocol) = upgrade {
        put(&[b"connection: upgrade\r\nupgrade: ", protocol, b"\r\n"]);
    }
    let proto = claims.proto.filter(|it| matches!(*it, b"http" | b"https"));
    let own: &[u8] = if line.secure { b"https" } else { b"http" };
    let (proto, host) = (proto.unwrap_or(own), claims.host.filter(|it| is_host(it)));
    let host = host.unwrap_or(line.host.as_bytes());
    put(&[b"x-forwarded-for: ", origin.chain.as_bytes(), b"\r\n"]);
    put(&[
        b"x-forwarded-proto: ",
        proto,
        b"\r\nx-forwarded-host: ",
        host,
        b"\r\n",
    ]);
    put(&[b"x-real-ip: ", origin.client.as_bytes(), b"\r\nforwarded: "]);
    put(&[
        origin.first.as_bytes(),
        b";host=\"",
        host,
        b"\";proto=",
        proto,
    ]);
    put(&[origin.rest.as_bytes(), b"\r\n\r\n"]);
}

fn is_usual(value: &[u8]) -> bool {
    value.eq_ignore_ascii_case(b"keep-alive") || value.eq_ignore_ascii_case(b"close")
}

/// Whether a text can stand in quotes as it is, and be a host.
fn is_host(text: &[u8]) -> bool {
    let fits = |byte: &u8| byte.is_ascii_alphanumeric() || b".-_:[]".contains(byte);
    !text.is_empty() && text.iter().all(fits)
}

/// Headers that are between the visitor and us, or that only we write.
fn is_stripped(name: &str, trusted: bool) -> bool {
    const FORWARDED: &str = "x-forwarded-";
    let known = match (name.len(), name.as_bytes()[0] | 0x20) {
        (2, _) => "te",
        (4, _) => "host",
        // Some servers make HTTP_PROXY of it, which some clients in them believe.
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

/// Whether servers that know headers by the names of variables would take it for the other.
fn is_same_variable(name: &[u8], known: &str) -> bool {
    let same = |(a, b): (&u8, u8)| a.eq_ignore_ascii_case(&b) || (*a == b'_' && b == b'-');
    name.len() == known.len() && name.iter().zip(known.bytes()).all(same)
}

#[cfg(test)]
mod tests {
    use super::*;
    use estrade_listener::peer::TrustedProxies;

    fn written(trusted: &[&str], headers: &[(&str, &str)], framing: Framing) -> String {
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
    fn what_strangers_say_about_themselves_is_not_passed_on() {
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
        let head = written(&[], &spoofed, Framing::Nothing);
        assert_eq!(
            head,
            format!("GET /a?b HTTP/1.1\r\nhost: a.localhost:8080\r\n{PLAIN}")
        );
    }

    #[test]
    fn what_is_of_the_connection_stays_there_and_the_rest_goes_on() {
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
        let head = written(&[], &headers, Framing::Length(5));
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
        let head = written(&["10.0.0.0/8"], &headers, Framing::Chunks);
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
        let head = written(&["10.0.0.0/8"], &odd, Framing::Nothing);
        assert!(head.ends_with(PLAIN), "{head}");
    }

    #[test]
    fn split_cookies_are_one_again() {
        let headers = [("cookie", "a=b"), ("accept", "x"), ("cookie", "c=d")];
        let head = written(&[], &headers, Framing::Nothing);
        assert!(
            head.contains("\r\naccept: x\r\ncookie: a=b; c=d\r\n"),
            "{head}"
        );
        assert_eq!(head.matches("cookie").count(), 1);
    }
}
