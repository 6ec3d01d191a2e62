//! Long strings, such as the files of a release, out of a document that is in memory.
//!
//! serde_json decodes a string with an escape in every line several times slower than the file is
//! hashed and stored; most escapes are one of eight.

use super::{shorten, without_position};
use estrade_model::Invalid;
use memchr::memchr;
use serde_json::value::RawValue;
use std::borrow::Cow;

/// How far the next escape is looked for byte by byte.
const NEAR: usize = 16;

/// What a string says; an error when it is something else than a string, or not Unicode.
pub fn decode(raw: &RawValue) -> Result<Cow<'_, str>, Invalid> {
    let written = raw.get();
    let inside = written
        .strip_prefix('"')
        .and_then(|text| text.strip_suffix('"'));
    let decoded = inside.and_then(decode_plain);
    // Whatever is not plain is read as anybody else would read it.
    decoded.map_or_else(|| read_otherwise(written).map(Cow::Owned), Ok)
}

fn read_otherwise(written: &str) -> Result<String, Invalid> {
    serde_json::from_str(written).map_err(|error| Invalid(shorten(without_position(&error))))
}

/// A string without escapes of surrogates, as it stands between its quotes.
fn decode_plain(written: &str) -> Option<Cow<'_, str>> {
    let bytes = written.as_bytes();
    let Some(mut end) = memchr(b'\\', bytes) else {
        return Some(Cow::Borrowed(written));
    };
    let mut text = Vec::with_capacity(written.len());
    let mut start = 0;
    loop {
        text.extend_from_slice(&bytes[start..end]);
        let escaped = match *bytes.get(end + 1)? {
            b'n' => b'\n',
            plain @ (b'"' | b'\\' | b'/') => plain,
            b't' => b'\t',
            b'r' => b'\r',
            b'b' => 8,
            b'f' => 12,
            b'u' => 0,
            _ => return None,
        };
        start = end + 2;
        if escaped == 0 {
            start += 4;
            let escaped = unicode(written.get(end + 2..start)?)?;
            text.extend_from_slice(escaped.encode_utf8(&mut [0; 4]).as_bytes());
        } else {
            text.push(escaped);
        }
        match find_escape(&bytes[start..]) {
            Some(next) => end = start + next,
            None => break,
        }
    }
    text.extend_from_slice(&bytes[start..]);
    // Between whole characters only whole ones were put in.
    String::from_utf8(text).ok().map(Cow::Owned)
}

/// Where the next escape begins.
fn find_escape(text: &[u8]) -> Option<usize> {
    // In sources the next one is near, and looking for it costs less than a call.
    let (near, far) = text.split_at(text.len().min(NEAR));
    let found = near.iter().position(|byte| *byte == b'\\');
    found.or_else(|| memchr(b'\\', far).map(|at| NEAR + at))
}

fn unicode(digits: &str) -> Option<char> {
    // `from_str_radix` takes a sign as well.
    let is_hex = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    let code = u32::from_str_radix(digits, 16).ok().filter(|_| is_hex)?;
    char::from_u32(code)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn both(json: &str) -> Option<(String, String)> {
        let raw: &RawValue = serde_json::from_str(json).ok()?;
        let expected = serde_json::from_str::<String>(json);
        match (decode(raw), expected) {
            (Ok(text), Ok(expected)) => Some((text.into_owned(), expected)),
            (Err(_), Err(_)) => None,
            (found, expected) => panic!("{json}: {found:?}, not {expected:?}"),
        }
    }

    #[test]
    fn every_escape_is_decoded() {
        let json = r#""a\"\\\/\b\f\n\r\t\u00e9\u20AC\ud83d\ude00z""#;
        let (found, expected) = both(json).unwrap();
        assert_eq!(found, expected);
        assert_eq!(found, "a\"\\/\u{8}\u{c}\n\r\té€😀z");
        assert!(matches!(
            decode(serde_json::from_str(r#""plain""#).unwrap()),
            Ok(Cow::Borrowed("plain"))
        ));
    }

    #[test]
    fn what_is_not_a_string_of_unicode_is_refused() {
        for bad in [r#""\ud83d""#, r#""\ude00\ud83d""#, "7", "null", r#"["a"]"#] {
            assert!(both(bad).is_none(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn it_agrees_with_serde_json(
            json in r#""(a|é|😀|\\[nrtbf"/\\]|\\u[0-9a-fA-F]{4}|\\u\+fff|\\ud83d\\ude00| ){0,30}""#
        ) {
            if let Some((found, expected)) = both(&json) {
                prop_assert_eq!(found, expected);
            }
        }
    }
}
