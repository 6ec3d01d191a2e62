//! The redirect to HTTPS: a plain HTTP request for a host that has a certificate is sent to the port
//! with TLS.

use crate::routing::host;
use crate::static_files::request::StaticRequest;
use crate::static_files::response::StaticResponse;
use crate::tls::host_certificates::HostCertificates;
use http::StatusCode;

/// The redirect of a plain request; none where no certificate covers the host, which is then served
/// without TLS. `port` is the one with TLS.
pub(crate) fn respond(
    certificates: &HostCertificates,
    request: &StaticRequest<'_>,
    port: u16,
) -> Option<StaticResponse> {
    let host = host::canonical(request.host);
    certificates
        .covers(&host)
        .then(|| redirect(request, &host, port))
}

fn redirect(request: &StaticRequest<'_>, host: &str, port: u16) -> StaticResponse {
    // A request that names no port came through the usual ones, whatever they are mapped to here.
    let named = request.host.len() > host.len() && request.host.contains(':');
    let port = match port {
        443 => String::new(),
        port if named => format!(":{port}"),
        _ => String::new(),
    };
    let query = request
        .query
        .map_or(String::new(), |query| format!("?{query}"));
    let mut response = StaticResponse::new(StatusCode::PERMANENT_REDIRECT);
    // The path is as it came, and a request line holds no line ends.
    response.formatted(
        "location",
        format_args!("https://{host}{port}{}{query}", request.path),
    );
    response.number("content-length", 0);
    response.header("cache-control", "no-cache");
    response
}
