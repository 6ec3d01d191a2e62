//! What plain visitors get before any site is looked at: answers for ACME servers, and the way to
//! `https` where there is a certificate.

use crate::answer::{Answer, Body};
use crate::ask::Ask;
use crate::certificates::HostCertificates;
use crate::host;
use http::StatusCode;
use std::sync::Arc;

/// Where ACME servers ask (RFC 8555).
const CHALLENGES: &str = "/.well-known/acme-challenge/";

/// Stands before the sites when there are certificates.
pub(crate) struct Doorway {
    pub(crate) certificates: Arc<HostCertificates>,
    /// The port with TLS; none: nobody is sent there.
    pub(crate) redirect_to: Option<u16>,
}

impl Doorway {
    /// The answer to a request that is not for a site.
    pub(crate) async fn answer(&self, ask: &Ask<'_>) -> Option<Answer> {
        if ask.secure {
            return None;
        }
        if let Some(token) = ask.path.strip_prefix(CHALLENGES) {
            // One that is not ours is the site's own, and is not to be redirected either.
            let text = self.certificates.http_challenge(token).await?;
            return Some(challenge(text));
        }
        let host = host::canonical(ask.host);
        let port = self.redirect_to?;
        self.certificates
            .covers(&host)
            .then(|| redirect(ask, &host, port))
    }
}

fn challenge(text: String) -> Answer {
    let mut answer = Answer::new(StatusCode::OK);
    answer.header("content-type", "application/octet-stream");
    answer.number("content-length", text.len() as u64);
    answer.header("cache-control", "no-store");
    answer.body = Body::from_bytes(text);
    answer
}

fn redirect(ask: &Ask<'_>, host: &str, port: u16) -> Answer {
    // Who names no port came through the usual ones, whatever they are mapped to here.
    let named = ask.host.len() > host.len() && ask.host.contains(':');
    let port = match port {
        443 => String::new(),
        port if named => format!(":{port}"),
        _ => String::new(),
    };
    let query = ask.query.map_or(String::new(), |query| format!("?{query}"));
    let mut answer = Answer::new(StatusCode::PERMANENT_REDIRECT);
    // The path is as it came, and a request line holds no line ends.
    answer.formatted(
        "location",
        format_args!("https://{host}{port}{}{query}", ask.path),
    );
    answer.number("content-length", 0);
    answer.header("cache-control", "no-cache");
    answer
}
