//! A request as the relay takes it, however it came in.

pub(crate) mod body_reader;
pub(crate) mod field_policy;
pub(crate) mod json;
pub(crate) mod request_fields;
pub mod route;

use bytes::Bytes;
use http::{HeaderMap, Request, header};
use hyper::body::Incoming;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// A request for inference, whose path was understood already.
pub struct CallRequest {
    /// The key that it was sent with.
    pub key: Option<SentKey>,
    /// Its other headers; at least those that a call looks at.
    pub headers: HeaderMap,
    pub body: CallBody,
    /// Set when nothing is waited for once the client has left; none: nobody looks at it.
    pub cancel: Option<Arc<AtomicBool>>,
}

/// The body of a request.
pub enum CallBody {
    /// As it comes from the caller.
    Incoming(Incoming),
    /// It is there.
    Whole(Bytes),
}

impl From<Request<Incoming>> for CallRequest {
    fn from(request: Request<Incoming>) -> Self {
        let (parts, body) = request.into_parts();
        let sent = parts.headers.get(header::AUTHORIZATION);
        Self {
            key: sent.and_then(|value| SentKey::parse(value.as_bytes())),
            headers: parts.headers,
            body: CallBody::Incoming(body),
            cancel: None,
        }
    }
}

/// A key as it was sent, not checked yet.
pub struct SentKey(Box<str>);

impl SentKey {
    /// Of the value of an `Authorization` header; none when there is no key in it.
    pub(crate) fn parse(value: &[u8]) -> Option<Self> {
        // A key is long: this looks at many bytes at a time.
        let text = std::str::from_utf8(value).ok().filter(|it| it.is_ascii())?;
        let (scheme, key) = text.split_once(' ')?;
        let key = key.trim();
        (scheme.eq_ignore_ascii_case("bearer") && !key.is_empty()).then(|| Self(key.into()))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_what_follows_bearer() {
        let key = |value: &[u8]| SentKey::parse(value).map(|key| key.0.into_string());
        for value in ["Bearer a.b-c", "bearer  a.b-c ", "BEARER a.b-c"] {
            assert_eq!(key(value.as_bytes()).as_deref(), Some("a.b-c"));
        }
        for none in [
            "",
            "Bearer",
            "Bearer ",
            "Bearer  ",
            "Basic x",
            "a.b-c",
            "Bearer é",
        ] {
            assert_eq!(key(none.as_bytes()), None, "{none}");
        }
        assert_eq!(key(b"Bearer \xff"), None);
    }
}
