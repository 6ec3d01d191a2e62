//! Reading a request that hyper has parsed.

use crate::static_files::request::{Headers, Method, StaticRequest};
use http::request::Parts;
use http::{HeaderMap, Uri, header};
use std::net::{IpAddr, Ipv4Addr};

/// Stands in for a missing peer address.
pub(crate) const UNKNOWN_PEER: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);

/// The request as the static file handler reads it.
pub(crate) fn read_request(parts: &Parts, secure: bool) -> StaticRequest<'_> {
    let mut headers = Headers::default();
    for (name, value) in &parts.headers {
        if let Ok(value) = value.to_str() {
            headers.add(name.as_str(), value);
        }
    }
    StaticRequest {
        method: match parts.method {
            http::Method::GET => Method::Get,
            http::Method::HEAD => Method::Head,
            _ => Method::Other,
        },
        verb: parts.method.as_str(),
        secure,
        host: host_of(&parts.uri, &parts.headers),
        path: parts.uri.path(),
        query: parts.uri.query(),
        headers,
    }
}

/// With two `Host` headers, a proxy in front of us may have routed by the other one.
pub(crate) fn names_one_host(headers: &HeaderMap) -> bool {
    headers.get_all(header::HOST).iter().count() <= 1
}

/// The authority of the target (HTTP/2, absolute form), else the `Host` header.
pub(crate) fn host_of<'r>(uri: &'r Uri, headers: &'r HeaderMap) -> &'r str {
    let authority = uri.authority().map(http::uri::Authority::as_str);
    let host = || {
        headers
            .get(header::HOST)
            .and_then(|host| host.to_str().ok())
    };
    authority.or_else(host).unwrap_or_default()
}
