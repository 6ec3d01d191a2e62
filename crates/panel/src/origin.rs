//! Which requests come from the panel's own pages.
//!
//! Deployed sites may live on sibling hosts of the panel (`*.localhost`, another subdomain), which browsers call
//! `same-site`: for the panel they are foreign.

use crate::cookies::is_secure;
use crate::error::PanelError;
use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{HeaderMap, Method, header};
use estrade_server::app::AppState;

/// Whether a request may change something.
pub fn is_change(method: &Method) -> bool {
    !matches!(*method, Method::GET | Method::HEAD)
}

/// Whether a request that changes something was sent by a page of the panel. `Origin` decides, and
/// `Sec-Fetch-Site` where there is none: a page without a referrer sends `Origin: null`.
pub fn is_own_change(headers: &HeaderMap, secure: bool) -> bool {
    match (origin(headers), fetch_site(headers)) {
        (Origin::Other, _) | (_, Some(false)) => false,
        (Origin::Of(origin), _) => is_own(origin, headers, secure),
        (Origin::None, site) => site == Some(true),
    }
}

/// Whether a stream or another response that a script reads was asked for by a page of the panel. A browser that
/// tells nothing may read it: its request is then no request of another site's script.
pub fn is_own_read(headers: &HeaderMap, secure: bool) -> bool {
    let is_own_origin = match origin(headers) {
        Origin::None => true,
        Origin::Other => false,
        Origin::Of(origin) => is_own(origin, headers, secure),
    };
    is_own_origin && fetch_site(headers) != Some(false)
}

/// Refuses (403) the scripts of other sites: for live streams and other responses that a script reads.
pub struct SameOrigin;

impl FromRequestParts<AppState> for SameOrigin {
    type Rejection = PanelError;

    async fn from_request_parts(parts: &mut Parts, app: &AppState) -> Result<Self, PanelError> {
        require_same_origin(&parts.headers, app)?;
        Ok(Self)
    }
}

/// The same where the headers are at hand.
pub fn require_same_origin(headers: &HeaderMap, app: &AppState) -> Result<(), PanelError> {
    if is_own_read(headers, is_secure(&app.core)) {
        return Ok(());
    }
    Err(PanelError::ForeignOrigin)
}

enum Origin<'h> {
    None,
    Of(&'h str),
    /// Two of them, or none that can be read.
    Other,
}

fn origin(headers: &HeaderMap) -> Origin<'_> {
    let mut values = headers.get_all(header::ORIGIN).iter();
    match (values.next(), values.next()) {
        (None, _) => Origin::None,
        (Some(value), None) => match value.to_str() {
            Ok("null") => Origin::None,
            Ok(text) => Origin::Of(text),
            Err(_) => Origin::Other,
        },
        _ => Origin::Other,
    }
}

/// Whether the browser says that the page is of the same origin; none when it says nothing.
fn fetch_site(headers: &HeaderMap) -> Option<bool> {
    let mut values = headers.get_all("sec-fetch-site").iter().peekable();
    values.peek()?;
    Some(values.all(|value| value == "same-origin"))
}

/// Whether an origin is the host that the request was sent to. Browsers that reach the panel through TLS never take
/// a page without it for ours.
fn is_own(origin: &str, headers: &HeaderMap, secure: bool) -> bool {
    let Some((scheme, authority)) = origin.split_once("://") else {
        return false;
    };
    let is_our_scheme = scheme == "https" || (scheme == "http" && !secure);
    let mut hosts = headers.get_all(header::HOST).iter();
    let (Some(host), None) = (hosts.next(), hosts.next()) else {
        return false;
    };
    is_our_scheme
        && host
            .to_str()
            .is_ok_and(|host| host.eq_ignore_ascii_case(authority))
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::{HeaderName, HeaderValue};

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let host = [("host", "127.0.0.1:3000")];
        let pairs = host.iter().chain(pairs);
        let pair = |&(name, value): &(&'static str, &'static str)| {
            (
                HeaderName::from_static(name),
                HeaderValue::from_static(value),
            )
        };
        pairs.map(pair).collect()
    }

    #[test]
    fn a_change_comes_from_our_own_origin() {
        let own = |pairs: &[(&'static str, &'static str)]| is_own_change(&headers(pairs), false);
        let (site, origin) = ("sec-fetch-site", "origin");
        assert!(own(&[(origin, "http://127.0.0.1:3000")]));
        assert!(own(&[
            (origin, "http://127.0.0.1:3000"),
            (site, "same-origin")
        ]));
        assert!(own(&[(origin, "null"), (site, "same-origin")]));
        assert!(own(&[(site, "same-origin")]));
        for bad in [
            &[][..],
            &[(origin, "null")],
            &[(origin, "http://127.0.0.1:8080")],
            &[(origin, "http://evil.example")],
            &[
                (origin, "http://127.0.0.1:3000"),
                (origin, "http://evil.example"),
            ],
            &[(origin, "http://evil.example"), (site, "same-origin")],
            &[(origin, "http://127.0.0.1:3000"), (site, "same-site")],
            &[(site, "same-site")],
            &[(site, "cross-site")],
            &[(site, "none")],
        ] {
            assert!(!own(bad), "{bad:?}");
        }
        let plain = headers(&[(origin, "http://127.0.0.1:3000")]);
        assert!(!is_own_change(&plain, true));
    }

    #[test]
    fn a_stream_is_not_read_by_sibling_sites() {
        let own = |pairs: &[(&'static str, &'static str)]| is_own_read(&headers(pairs), false);
        assert!(own(&[]) && own(&[("sec-fetch-site", "same-origin")]));
        assert!(!own(&[("sec-fetch-site", "same-site")]));
        assert!(!own(&[("origin", "http://site.localhost:8080")]));
    }
}
