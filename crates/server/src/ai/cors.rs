//! Cross-origin requests of browsers (CORS) to inference: from exact origins, never with credentials of the browser's
//! own, and off unless the configuration names origins. Management routes never take part.

use axum::http::header::{self, HeaderMap, HeaderName, HeaderValue};
use axum::http::{Method, Response, StatusCode};

/// What scripts may read besides what they always may.
const EXPOSED: HeaderValue = HeaderValue::from_static(
    "x-estrade-call, x-estrade-provider, x-estrade-upstream-model, x-estrade-attempts, x-estrade-cache, x-request-id, \
     retry-after, x-ratelimit-limit-requests, x-ratelimit-remaining-requests, x-ratelimit-reset-requests, \
     x-ratelimit-limit-tokens, x-ratelimit-remaining-tokens, x-ratelimit-reset-tokens",
);
const VARY: HeaderValue = HeaderValue::from_static("origin");
const VARY_OF_PREFLIGHT: HeaderValue = HeaderValue::from_static(
    "origin, access-control-request-method, access-control-request-headers",
);
/// How long browsers remember a preflight, in seconds: so long an origin works that was taken off the list.
const MAX_AGE: HeaderValue = HeaderValue::from_static("600");
/// A longer list of headers is refused.
const MAX_REQUEST_HEADERS: usize = 4096;

/// The origins whose scripts may call models.
#[derive(Debug, Clone, Default)]
pub struct Cors(Vec<HeaderValue>);

impl Cors {
    /// Of origins as browsers write them; what no header can have matches nothing.
    pub fn new<'o>(origins: impl IntoIterator<Item = &'o str>) -> Self {
        let origins = origins.into_iter().map(HeaderValue::from_str);
        Self(origins.filter_map(Result::ok).collect())
    }

    /// The request's origin, if it may read responses.
    pub(super) fn allowed(&self, headers: &HeaderMap) -> Option<HeaderValue> {
        if self.0.is_empty() {
            return None;
        }
        let mut sent = headers.get_all(header::ORIGIN).iter();
        let (origin, None) = (sent.next()?, sent.next()) else {
            return None;
        };
        self.0.contains(origin).then(|| origin.clone())
    }

    /// Completes the response to a request from this origin, or from none that is allowed.
    pub(super) fn finish(&self, headers: &mut HeaderMap, origin: Option<HeaderValue>) {
        if self.0.is_empty() {
            return;
        }
        // Caches shall not give what one origin may read to another.
        headers.append(header::VARY, VARY);
        if let Some(origin) = origin {
            headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
            headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, EXPOSED);
        }
    }

    /// The response to a preflight of an allowed origin for a path that takes `methods`; none: this is no such one.
    /// The key is not checked, because browsers do not send it with a preflight.
    pub(super) fn preflight<B: Default>(
        &self,
        method: &Method,
        headers: &HeaderMap,
        methods: &'static str,
    ) -> Option<Response<B>> {
        if method != Method::OPTIONS {
            return None;
        }
        let origin = self.allowed(headers)?;
        let wanted = headers.get(header::ACCESS_CONTROL_REQUEST_METHOD)?;
        let is_taken = methods
            .split(", ")
            .any(|method| method.as_bytes() == wanted.as_bytes());
        let requested = headers.get(header::ACCESS_CONTROL_REQUEST_HEADERS);
        if !is_taken || requested.is_some_and(|names| !is_list_of_names(names)) {
            return None;
        }
        let mut response = Response::new(B::default());
        *response.status_mut() = StatusCode::NO_CONTENT;
        let headers = response.headers_mut();
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        headers.insert(
            header::ACCESS_CONTROL_ALLOW_METHODS,
            HeaderValue::from_static(methods),
        );
        // SDKs send many headers of their own; none of them authenticates.
        if let Some(requested) = requested {
            headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, requested.clone());
        }
        headers.insert(header::ACCESS_CONTROL_MAX_AGE, MAX_AGE);
        headers.insert(header::VARY, VARY_OF_PREFLIGHT);
        Some(response)
    }
}

/// Whether these are names of headers with commas between them.
fn is_list_of_names(list: &HeaderValue) -> bool {
    let names = list.as_bytes().split(|byte| *byte == b',');
    list.len() <= MAX_REQUEST_HEADERS
        && names.into_iter().all(|name| {
            let name = name.trim_ascii();
            name.is_empty() || HeaderName::from_bytes(name).is_ok()
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(list: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in list {
            let name = HeaderName::from_static(name);
            headers.append(name, HeaderValue::from_static(value));
        }
        headers
    }

    #[test]
    fn only_exact_origins_are_allowed() {
        let cors = Cors::new(["https://app.example.com", "http://localhost:5173"]);
        let allowed = |origin| cors.allowed(&headers(&[("origin", origin)])).is_some();
        assert!(allowed("https://app.example.com") && allowed("http://localhost:5173"));
        for other in [
            "https://app.example.com.evil.test",
            "http://app.example.com",
            "https://app.example.com:444",
            "https://APP.example.com",
            "null",
            "*",
            "",
        ] {
            assert!(!allowed(other), "{other}");
        }
        let twice = [("origin", "https://app.example.com"); 2];
        assert_eq!(cors.allowed(&headers(&twice)), None);
        assert_eq!(Cors::default().allowed(&headers(&twice[..1])), None);
    }

    #[test]
    fn a_preflight_is_for_what_the_path_takes() {
        let cors = Cors::new(["https://a.test"]);
        let ask = |more: &[(&'static str, &'static str)]| {
            let list = [&[("origin", "https://a.test")], more].concat();
            cors.preflight::<String>(&Method::OPTIONS, &headers(&list), "POST")
        };
        let post = ("access-control-request-method", "POST");
        let names = (
            "access-control-request-headers",
            "authorization, x-stainless-os",
        );
        let response = ask(&[post, names]).unwrap();
        let preflight = response.headers();
        assert_eq!(preflight["access-control-allow-headers"], names.1);
        assert!(!preflight.contains_key("access-control-allow-credentials"));
        assert!(ask(&[post]).is_some());
        assert!(ask(&[]).is_none());
        assert!(ask(&[("access-control-request-method", "DELETE")]).is_none());
        assert!(ask(&[post, ("access-control-request-headers", "a b")]).is_none());
    }
}
