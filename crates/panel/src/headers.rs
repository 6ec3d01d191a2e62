//! The headers of every response of the panel.

use axum::http::{HeaderMap, HeaderName, HeaderValue, header};

/// Nothing from other hosts, nothing inline, and no frame around the panel.
const CONTENT_SECURITY_POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; \
     form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
);
const NO_REFERRER: HeaderValue = HeaderValue::from_static("no-referrer");
const SAME_ORIGIN: HeaderValue = HeaderValue::from_static("same-origin");
const STRICT_TRANSPORT_SECURITY: HeaderValue = HeaderValue::from_static("max-age=31536000");
const DENY: HeaderValue = HeaderValue::from_static("DENY");
const PERMISSIONS: HeaderValue =
    HeaderValue::from_static("camera=(), geolocation=(), microphone=(), payment=(), usb=()");

/// Sets them. `trusted` says whether the browser takes the address for trustworthy (TLS or this machine).
pub fn set_headers(headers: &mut HeaderMap, secure: bool, trusted: bool) {
    // A page without a referrer sends `Origin: null` with its forms, and only trustworthy addresses get
    // `Sec-Fetch-Site`. Elsewhere we would know nothing of where a form comes from; `same-origin` tells other sites
    // as little.
    let referrer = if trusted { NO_REFERRER } else { SAME_ORIGIN };
    headers.insert(header::CONTENT_SECURITY_POLICY, CONTENT_SECURITY_POLICY);
    headers.insert(header::REFERRER_POLICY, referrer);
    headers.insert(header::X_FRAME_OPTIONS, DENY);
    headers.insert(
        HeaderName::from_static("cross-origin-opener-policy"),
        SAME_ORIGIN,
    );
    headers.insert(
        HeaderName::from_static("cross-origin-resource-policy"),
        SAME_ORIGIN,
    );
    headers.insert(HeaderName::from_static("permissions-policy"), PERMISSIONS);
    if secure {
        headers.insert(header::STRICT_TRANSPORT_SECURITY, STRICT_TRANSPORT_SECURITY);
    }
}

/// Whether browsers take this host for trustworthy without TLS.
pub fn is_loopback(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    };
    let address = name.parse::<std::net::IpAddr>();
    name.eq_ignore_ascii_case("localhost")
        || name.to_ascii_lowercase().ends_with(".localhost")
        || address.is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_is_trustworthy() {
        for host in [
            "localhost",
            "localhost:3000",
            "a.localhost:1",
            "127.0.0.1:3000",
            "[::1]:3000",
        ] {
            assert!(is_loopback(host), "{host}");
        }
        for host in [
            "192.168.1.5:3000",
            "panel.example.com",
            "127.0.0.1.example.com",
            "[fe80::1]",
        ] {
            assert!(!is_loopback(host), "{host}");
        }
    }
}
