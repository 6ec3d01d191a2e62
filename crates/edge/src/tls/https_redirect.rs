//! What plain visitors get before any site is looked at: answers for ACME servers, and the way to
//! `https` where there is a certificate.

use crate::routing::host;
use crate::static_files::request::StaticRequest;
use crate::static_files::response::{Body, StaticResponse};
use crate::tls::host_certificates::HostCertificates;
use http::StatusCode;
use std::sync::Arc;

/// Where ACME servers ask (RFC 8555).
const CHALLENGE_PATH: &str = "/.well-known/acme-challenge/";

/// Stands before the sites when there are certificates.
pub(crate) struct Doorway {
    pub(crate) certificates: Arc<HostCertificates>,
    /// The port with TLS; none: nobody is sent there.
    pub(crate) redirect_to: Option<u16>,
}

impl Doorway {
    /// The answer to a request that is not for a site.
    pub(crate) async fn response(&self, request: &StaticRequest<'_>) -> Option<StaticResponse> {
        if request.secure {
            return None;
        }
        if let Some(token) = request.path.strip_prefix(CHALLENGE_PATH) {
            // One that is not ours is the site's own, and is not to be redirected either.
            let text = self.certificates.http_challenge(token).await?;
            return Some(challenge(text));
        }
        let host = host::canonical(request.host);
        let port = self.redirect_to?;
        self.certificates
            .covers(&host)
            .then(|| redirect(request, &host, port))
    }
}

fn challenge(text: String) -> StaticResponse {
    let mut response = StaticResponse::new(StatusCode::OK);
    response.header("content-type", "application/octet-stream");
    response.number("content-length", text.len() as u64);
    response.header("cache-control", "no-store");
    response.body = Body::from_bytes(text);
    response
}

fn redirect(request: &StaticRequest<'_>, host: &str, port: u16) -> StaticResponse {
    // Who names no port came through the usual ones, whatever they are mapped to here.
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
