//! Public URLs and origins.

use super::text::{Invalid, serde_as_text};
use http::Uri;
use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;

/// An `http://` or `https://` base URL, without a slash at its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpUrl(Uri);

impl HttpUrl {
    /// The URL as the HTTP libraries take it.
    pub fn uri(&self) -> &Uri {
        &self.0
    }

    /// The scheme, host and port, as in an `Origin` header.
    pub fn origin(&self) -> String {
        let scheme = self.0.scheme_str().unwrap_or("http");
        let authority = self
            .0
            .authority()
            .map_or("", |authority| authority.as_str());
        format!("{scheme}://{authority}")
    }

    /// The host name alone, without a port.
    pub fn host(&self) -> &str {
        self.0.host().unwrap_or_default()
    }

    /// Whether browsers reach it over TLS.
    pub fn is_https(&self) -> bool {
        self.0.scheme() == Some(&http::uri::Scheme::HTTPS)
    }

    /// The URL at which a bound listener is reached when nobody configured one. An address
    /// that means "every interface" becomes the loopback's.
    pub fn of_listener(bound: SocketAddr, tls: bool) -> Option<Self> {
        let host = match bound {
            SocketAddr::V4(_) if bound.ip().is_unspecified() => "127.0.0.1".to_owned(),
            SocketAddr::V6(_) if bound.ip().is_unspecified() => "[::1]".to_owned(),
            SocketAddr::V4(_) => bound.ip().to_string(),
            SocketAddr::V6(_) => format!("[{}]", bound.ip()),
        };
        let scheme = if tls { "https" } else { "http" };
        format!("{scheme}://{host}:{}", bound.port()).parse().ok()
    }
}

impl FromStr for HttpUrl {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        let refuse = |reason: &str| Invalid(format!("`{text}` {reason}"));
        if text.contains('@') {
            // Not repeated: what stands before the @ may be a password.
            return Err("the URL must not hold a user name or password".into());
        }
        if text.contains(['?', '#']) {
            return Err(refuse("must not have a query or fragment"));
        }
        let uri: Uri = text
            .trim_end_matches('/')
            .parse()
            .map_err(|_| refuse("is not a URL"))?;
        if !matches!(uri.scheme_str(), Some("http" | "https")) {
            return Err(refuse("must start with http:// or https://"));
        }
        let authority = uri.authority().map_or("", |authority| authority.as_str());
        let after_host = authority
            .strip_prefix(uri.host().unwrap_or_default())
            .unwrap_or_default();
        if uri.host().is_none_or(str::is_empty) || !(after_host.is_empty() || is_port(after_host)) {
            return Err(refuse(
                "needs a host, and a port between 1 and 65535 if any",
            ));
        }
        Ok(Self(uri))
    }
}

/// Whether this is `:1` to `:65535`.
fn is_port(text: &str) -> bool {
    text.strip_prefix(':')
        .and_then(|port| port.parse::<u16>().ok())
        .is_some_and(|port| port > 0)
}

impl fmt::Display for HttpUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.origin())?;
        f.write_str(self.0.path().trim_end_matches('/'))
    }
}

serde_as_text!(HttpUrl);

/// An origin as browsers write it in the `Origin` header: `https://app.example.com`, `http://localhost:5173`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebOrigin(String);

impl WebOrigin {
    /// As browsers write it.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for WebOrigin {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        let refuse = |reason: &str| Invalid(format!("`{text}` {reason}"));
        if text.contains('*') || text == "null" {
            return Err(refuse(
                "is not one origin; name each one, such as https://app.example.com",
            ));
        }
        let origin = text.parse::<HttpUrl>()?.origin().to_ascii_lowercase();
        if !origin.eq_ignore_ascii_case(text) {
            return Err(refuse("must end after the host and its port"));
        }
        let is_usual =
            |scheme: &str, port: &str| origin.starts_with(scheme) && origin.ends_with(port);
        if is_usual("https://", ":443") || is_usual("http://", ":80") {
            return Err(refuse(
                "must not name the usual port: browsers leave it out",
            ));
        }
        Ok(Self(origin))
    }
}

impl fmt::Display for WebOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

serde_as_text!(WebOrigin);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn http_urls_lose_their_last_slash_and_keep_their_path() {
        let url: HttpUrl = "https://cloud.example.com:8443/base/".parse().unwrap();
        assert_eq!(url.to_string(), "https://cloud.example.com:8443/base");
        assert_eq!(url.origin(), "https://cloud.example.com:8443");
        assert_eq!((url.host(), url.is_https()), ("cloud.example.com", true));
        let bare: HttpUrl = "http://localhost/".parse().unwrap();
        assert_eq!(bare.to_string(), "http://localhost");
    }

    #[test]
    fn what_is_not_an_http_url_is_refused() {
        for bad in [
            "",
            "cloud.example.com",
            "ftp://h",
            "http://",
            "http:///path",
            "http://h:0",
            "http://h:99999",
            "http://h:x",
            "http://h?q",
            "http://h#f",
            "http://a b",
        ] {
            assert!(bad.parse::<HttpUrl>().is_err(), "{bad}");
        }
        let refused = "http://u:hunter2@h".parse::<HttpUrl>().unwrap_err();
        assert!(!refused.0.contains("hunter2"));
    }

    #[test]
    fn a_listener_has_a_url_that_works_when_pasted() {
        let url = |bound: &str, tls| {
            HttpUrl::of_listener(bound.parse().unwrap(), tls)
                .unwrap()
                .to_string()
        };
        assert_eq!(url("0.0.0.0:3000", false), "http://127.0.0.1:3000");
        assert_eq!(url("[::]:3000", true), "https://[::1]:3000");
        assert_eq!(url("10.0.0.7:80", false), "http://10.0.0.7:80");
    }

    #[test]
    fn an_origin_is_written_as_browsers_do() {
        let origin = |text: &str| text.parse::<WebOrigin>().map(|it| it.to_string());
        assert_eq!(
            origin("https://App.example.com").unwrap(),
            "https://app.example.com"
        );
        assert_eq!(
            origin("http://localhost:5173").unwrap(),
            "http://localhost:5173"
        );
        for bad in [
            "*",
            "null",
            "https://*.example.com",
            "app.example.com",
            "https://app.example.com/",
            "https://app.example.com/x",
            "https://app.example.com:443",
            "http://app.example.com:80",
        ] {
            assert!(origin(bad).is_err(), "{bad}");
        }
    }
}
