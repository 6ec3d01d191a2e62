//! Addresses of servers, as people type them and as requests need them.

use crate::error::{ClientError, Result};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::Url;

/// Everything but unreserved characters (RFC 3986).
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// A text as one segment of a path.
///
/// `.` and `..` would be resolved away by URL parsers, so that a name could choose another route; no resource is named
/// so, and an encoded dot is resolved all the same.
pub fn segment(text: &str) -> Result<String> {
    if matches!(text, "" | "." | "..") {
        return Err(ClientError::Usage(format!("`{text}` is not a name or id")));
    }
    Ok(utf8_percent_encode(text, RESERVED).to_string())
}

/// The address of a server, such as `https://cloud.example.com`, without a slash at its end. Without a scheme it is
/// `https`, on this machine `http`.
pub fn parse_server(text: &str) -> Result<String> {
    let refused =
        |reason: &str| ClientError::Usage(format!("`{text}` is not the URL of a server: {reason}"));
    let text = text.trim();
    let url = match Url::parse(text) {
        Ok(url) if url.has_host() => url,
        // `localhost:3000` reads as a URL with the scheme `localhost`.
        _ => {
            let url = Url::parse(&format!("https://{text}"))
                .map_err(|error| refused(&error.to_string()))?;
            if is_loopback(&url) {
                Url::parse(&format!("http://{text}"))
                    .map_err(|error| refused(&error.to_string()))?
            } else {
                url
            }
        }
    };
    if !matches!(url.scheme(), "http" | "https") {
        return Err(refused("it begins with http:// or https://"));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(refused(
            "a name or password in it is not used; log in with a token",
        ));
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err(refused("it ends with the host, or with a path"));
    }
    Ok(url.as_str().trim_end_matches('/').to_owned())
}

/// Whether a URL leads to this machine.
pub fn is_loopback(url: &Url) -> bool {
    match url.host_str() {
        Some("localhost") => true,
        Some(host) => {
            let host = host.trim_start_matches('[').trim_end_matches(']');
            host.ends_with(".localhost")
                || host
                    .parse::<std::net::IpAddr>()
                    .is_ok_and(|address| address.is_loopback())
        }
        None => false,
    }
}

/// Whether a token that goes to this server can be read on its way.
pub fn is_readable_in_transit(server: &str) -> bool {
    Url::parse(server).is_ok_and(|url| url.scheme() == "http" && !is_loopback(&url))
}

/// Host and port of a server, by which people call it.
pub fn authority(server: &str) -> String {
    let rest = server.split_once("://").map_or(server, |(_, rest)| rest);
    rest.split('/').next().unwrap_or(rest).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_written_in_several_ways() {
        for (text, url) in [
            ("https://cloud.example.com/", "https://cloud.example.com"),
            ("cloud.example.com", "https://cloud.example.com"),
            ("cloud.example.com:8443", "https://cloud.example.com:8443"),
            ("localhost:3000", "http://localhost:3000"),
            ("127.0.0.1:3000", "http://127.0.0.1:3000"),
            ("[::1]:3000", "http://[::1]:3000"),
            ("http://10.0.0.1:3000", "http://10.0.0.1:3000"),
            ("https://example.com/cloud/", "https://example.com/cloud"),
        ] {
            assert_eq!(parse_server(text).unwrap(), url, "{text}");
        }
        for bad in [
            "",
            "ftp://a",
            "https://user:pw@a",
            "https://a/?x=1",
            "https://a/#x",
            "a b",
            "//",
        ] {
            assert!(parse_server(bad).is_err(), "{bad}");
        }
        assert_eq!(authority("http://localhost:3000"), "localhost:3000");
        assert_eq!(authority("https://example.com/cloud"), "example.com");
    }

    #[test]
    fn a_name_stays_one_segment() {
        assert_eq!(segment("my-site").unwrap(), "my-site");
        assert_eq!(segment("a/b?c#d%").unwrap(), "a%2Fb%3Fc%23d%25");
        for bad in ["", ".", ".."] {
            assert!(segment(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn only_other_machines_without_tls_are_readable() {
        for (url, readable) in [
            ("http://127.0.0.1:3000", false),
            ("http://localhost", false),
            ("http://[::1]:1", false),
            ("https://example.com", false),
            ("http://example.com", true),
            ("http://192.0.2.1:3000", true),
        ] {
            assert_eq!(is_readable_in_transit(url), readable, "{url}");
        }
    }
}
