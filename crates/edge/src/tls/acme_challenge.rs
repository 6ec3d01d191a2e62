//! ACME HTTP-01 challenges (RFC 8555, section 8.3): a plain HTTP request for a token gets its key
//! authorization.

use crate::static_files::request::StaticRequest;
use crate::static_files::response::{Body, StaticResponse};
use crate::tls::host_certificates::HostCertificates;
use http::StatusCode;

/// Where ACME servers ask for tokens.
const CHALLENGE_PATH: &str = "/.well-known/acme-challenge/";

/// The token that a request asks for. It is never redirected to HTTPS: there may be no certificate yet.
pub(crate) fn token<'r>(request: &StaticRequest<'r>) -> Option<&'r str> {
    request.path.strip_prefix(CHALLENGE_PATH)
}

/// The response to a challenge of ours; none when the token is not ours, so that a site can have its own.
pub(crate) async fn respond(
    certificates: &HostCertificates,
    token: &str,
) -> Option<StaticResponse> {
    let text = certificates.http_challenge(token).await?;
    let mut response = StaticResponse::new(StatusCode::OK);
    response.header("content-type", "application/octet-stream");
    response.number("content-length", text.len() as u64);
    response.header("cache-control", "no-store");
    response.body = Body::from_bytes(text);
    Some(response)
}
