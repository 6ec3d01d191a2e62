//! Names of models as JSON and as headers.

use bytes::Bytes;
use http::HeaderValue;

/// A longer name is not put into a header.
const MAX_HEADER: usize = 256;

/// An id as JSON.
pub(crate) fn quoted(id: &str) -> Bytes {
    Bytes::from(serde_json::Value::from(id).to_string())
}

/// A name as a header; none: it is too long or has something in it that no header can have.
pub(crate) fn header(name: &[u8]) -> Option<HeaderValue> {
    let name = (name.len() <= MAX_HEADER).then_some(name)?;
    HeaderValue::from_bytes(name).ok()
}

/// The same of a name as a provider wrote it: as JSON, with its quotes.
pub(crate) fn header_of_quoted(name: &[u8]) -> Option<HeaderValue> {
    let name = name.strip_prefix(b"\"")?.strip_suffix(b"\"")?;
    header(name).filter(|_| !name.contains(&b'\\'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_become_headers_if_they_can() {
        assert_eq!(header_of_quoted(b"\"a/b:1\"").unwrap(), "a/b:1");
        for none in [&b"\"a\\nb\""[..], b"a", b"\"a\nb\""] {
            assert_eq!(header_of_quoted(none), None);
        }
        assert_eq!(header("x".repeat(MAX_HEADER + 1).as_bytes()), None);
    }
}
