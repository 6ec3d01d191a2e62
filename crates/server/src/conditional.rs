//! Conditional requests: `ETag`, `If-None-Match`, `If-Match`.
//!
//! A tag is the version of a row, which mere use does not change, and the variant of its
//! representation where there are several (a viewer sees masked values).

use axum::http::StatusCode;
use axum::http::header::{self, HeaderMap, HeaderName, HeaderValue};
use axum::response::{IntoResponse, IntoResponseParts, Response, ResponseParts};
use estrade_service::Error;
use std::convert::Infallible;
use std::fmt;

/// The tag of a representation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ETag {
    version: i64,
    variant: &'static str,
}

impl ETag {
    /// The tag of a row's one representation.
    pub fn of(version: i64) -> Self {
        Self {
            version,
            variant: "",
        }
    }

    /// The tag of one of several representations; `variant` is letters and digits.
    pub fn variant(version: i64, variant: &'static str) -> Self {
        Self { version, variant }
    }

    /// Whether `If-None-Match` lists this representation.
    pub fn is_known(&self, headers: &HeaderMap) -> bool {
        let own = self.to_string();
        // Weak comparison, as RFC 9110 requires here: a proxy that compresses weakens tags.
        tags(headers, header::IF_NONE_MATCH).any(|tag| tag == "*" || strong(tag) == own)
    }

    /// 304 when the client has this representation already, else what `fresh` makes; both tagged.
    pub fn respond<R: IntoResponse>(
        self,
        headers: &HeaderMap,
        fresh: impl FnOnce() -> R,
    ) -> Response {
        if self.is_known(headers) {
            (StatusCode::NOT_MODIFIED, self, ()).into_response()
        } else {
            (self, fresh()).into_response()
        }
    }
}

impl fmt::Display for ETag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.variant {
            "" => write!(f, "\"{}\"", self.version),
            variant => write!(f, "\"{}-{variant}\"", self.version),
        }
    }
}

impl IntoResponseParts for ETag {
    type Error = Infallible;

    fn into_response_parts(self, mut parts: ResponseParts) -> Result<ResponseParts, Infallible> {
        if let Ok(value) = HeaderValue::try_from(self.to_string()) {
            parts.headers_mut().insert(header::ETAG, value);
            // A client may cache the response, but has to revalidate it each time.
            let keep = HeaderValue::from_static("private, no-cache");
            parts.headers_mut().insert(header::CACHE_CONTROL, keep);
        }
        Ok(parts)
    }
}

/// Which versions a change may be made to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IfMatch {
    /// Any: the header is absent, or `*`.
    Any,
    /// One of these.
    Versions(Vec<i64>),
}

impl IfMatch {
    /// Reads the header. Tags that cannot be ours match nothing, so they are a failed precondition.
    pub fn from_headers(headers: &HeaderMap) -> Result<Self, Error> {
        if !headers.contains_key(header::IF_MATCH) {
            return Ok(Self::Any);
        }
        if tags(headers, header::IF_MATCH).any(|tag| tag == "*") {
            return Ok(Self::Any);
        }
        let versions: Vec<i64> = tags(headers, header::IF_MATCH)
            .filter_map(version)
            .collect();
        if versions.is_empty() {
            return Err(Error::PreconditionFailed);
        }
        Ok(Self::Versions(versions))
    }

    /// The versions that are expected, for a compare-and-swap in the store; `None` is any.
    pub fn expected(self) -> Option<Vec<i64>> {
        match self {
            Self::Any => None,
            Self::Versions(versions) => Some(versions),
        }
    }
}

/// The tags of a header that is a list and may be there several times.
fn tags(headers: &HeaderMap, name: HeaderName) -> impl Iterator<Item = &str> {
    headers
        .get_all(name)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(str::trim)
}

/// A tag without its mark of weakness.
fn strong(tag: &str) -> &str {
    tag.strip_prefix("W/").unwrap_or(tag)
}

/// The version in one of our tags. A weakened one is as good: it still names the row's version.
fn version(tag: &str) -> Option<i64> {
    let inner = strong(tag).strip_prefix('"')?.strip_suffix('"')?;
    let (version, _variant) = inner.split_once('-').unwrap_or((inner, ""));
    version.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(name: &HeaderName, values: &[&'static str]) -> HeaderMap {
        values
            .iter()
            .map(|value| (name.clone(), HeaderValue::from_static(value)))
            .collect()
    }

    #[test]
    fn a_known_representation_is_not_sent_again() {
        let tag = ETag::variant(7, "masked");
        for (values, known) in [
            (vec!["\"7-masked\""], true),
            (vec!["\"6\", W/\"7-masked\""], true),
            (vec!["\"6\"", "*"], true),
            (vec!["\"7\""], false),
            (vec!["7-masked"], false),
            (vec![], false),
        ] {
            assert_eq!(
                tag.is_known(&with(&header::IF_NONE_MATCH, &values)),
                known,
                "{values:?}"
            );
        }
        let response = ETag::of(7).respond(&with(&header::IF_NONE_MATCH, &["\"7\""]), || "body");
        assert_eq!(response.status(), 304);
        assert_eq!(response.headers()["etag"], "\"7\"");
        assert_eq!(
            ETag::of(7).respond(&HeaderMap::new(), || "body").status(),
            200
        );
    }

    #[test]
    fn a_change_may_name_the_version_it_is_made_to() {
        let read =
            |values: &[&'static str]| IfMatch::from_headers(&with(&header::IF_MATCH, values));
        assert_eq!(read(&[]).unwrap(), IfMatch::Any);
        assert_eq!(read(&["*"]).unwrap().expected(), None);
        assert_eq!(read(&["W/\"7-masked\""]).unwrap().expected(), Some(vec![7]));
        let either = read(&["\"7\", \"junk\"", "\"8\""]).unwrap();
        assert_eq!(either.expected(), Some(vec![7, 8]));
        for bad in ["", "7", "\"x\"", "\"7", "\"99999999999999999999\""] {
            assert!(
                matches!(read(&[bad]), Err(Error::PreconditionFailed)),
                "{bad:?}"
            );
        }
    }
}
