//! The precheck: a scan without decoding that spares most documents the validator.
//!
//! It runs from quote to quote. The validator has to decode every string, which for the files of a release takes longer
//! than to store them.

use super::validate::{Keys, has_room};
use memchr::memchr2;
use std::hash::{BuildHasher, RandomState};

/// Whether the document certainly breaks no rule of the validator but those of the syntax: no duplicate keys, no NUL, no
/// deep nesting. False when in doubt. Invariant, tested against the validator: for valid JSON, true here means valid
/// there. Syntax is left out because the deserialiser that follows checks it.
pub(super) fn precheck(bytes: &[u8]) -> bool {
    if std::str::from_utf8(bytes).is_err() {
        return false;
    }
    let hasher = RandomState::new();
    // The open objects with their keys; none for arrays.
    let mut open: Vec<Option<Keys>> = Vec::new();
    let mut key_is_next = false;
    let mut rest = bytes;
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        match byte {
            b'"' => {
                let Some((text, after)) = split_string(rest) else {
                    return false;
                };
                rest = after;
                if key_is_next && let Some(Some(keys)) = open.last_mut() {
                    // An escaped key may equal another one that is spelled differently: the validator decodes both.
                    if text.contains(&b'\\') || !keys.insert(hasher.hash_one(text)) {
                        return false;
                    }
                    key_is_next = false;
                }
            }
            b'{' | b'[' => {
                key_is_next = byte == b'{';
                open.push(key_is_next.then(Keys::default));
                if !has_room(open.len()) {
                    return false;
                }
            }
            b'}' | b']' => {
                if open
                    .pop()
                    .is_none_or(|keys| keys.is_some_and(|it| it.are_too_many()))
                {
                    return false;
                }
                key_is_next = false;
            }
            b',' => key_is_next = matches!(open.last(), Some(Some(_))),
            _ => {}
        }
    }
    open.is_empty()
}

/// Splits at the quote that ends a string, without decoding it; none without such a quote, or with an escape that the
/// validator may refuse.
fn split_string(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut end = 0;
    loop {
        end += memchr2(b'"', b'\\', bytes.get(end..)?)?;
        if bytes[end] == b'"' {
            return Some((&bytes[..end], &bytes[end + 1..]));
        }
        if bytes.get(end + 1) == Some(&b'u') && may_be_refused(bytes.get(end + 2..)?) {
            return None;
        }
        end += 2;
    }
}

/// Whether these digits are an escaped NUL or half of a surrogate pair. The deserialiser skips fields that the type does
/// not have without decoding them, so it would not notice.
fn may_be_refused(digits: &[u8]) -> bool {
    digits.starts_with(b"0000") || matches!(digits.first(), Some(b'd' | b'D'))
}

#[cfg(test)]
mod tests {
    use super::precheck;
    use crate::strict_json::validate::Validator;
    use proptest::prelude::*;

    fn is_valid(text: &str) -> bool {
        Validator::validate(&mut serde_json::Deserializer::from_str(text)).is_ok()
    }

    #[test]
    fn what_the_validator_refuses_never_passes() {
        for bad in [
            r#"{"a":1,"a":2}"#,
            r#"{"a":1,"\u0061":2}"#,
            r#"[{"x":{"b":[],"b":0}}]"#,
            r#"{"a":"\u0000"}"#,
            r#"{"a":"\ud800"}"#,
            r#"{"a":{"c":1},"b":2,"a":3}"#,
            r#"{"a":["}",{"k":",\"k\":"}],"a":1}"#,
        ] {
            assert!(!is_valid(bad), "{bad}");
            assert!(!precheck(bad.as_bytes()), "{bad}");
        }
        let deep = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        assert!(precheck(deep(64).as_bytes()) && is_valid(&deep(64)));
        assert!(!precheck(deep(65).as_bytes()) && !is_valid(&deep(65)));
        let many: Vec<_> = (0..=100_000).map(|key| format!("\"{key}\":0")).collect();
        let many = format!("{{{}}}", many.join(","));
        assert!(!precheck(many.as_bytes()) && !is_valid(&many));
    }

    #[test]
    fn ordinary_documents_pass() {
        for good in [
            r#"{"files":[{"path":"a","data":"say \"hi\" \\ \n"},{"path":"b","data":""}]}"#,
            r#"{"a":{"a":{"a":[1,2,{"a":null}]}},"b":-1.5e3}"#,
            "[]",
            "  \"text\"  ",
        ] {
            assert!(precheck(good.as_bytes()) && is_valid(good), "{good}");
        }
    }

    proptest! {
        /// For valid JSON, passing the precheck implies passing the validator.
        #[test]
        fn what_passes_is_valid(text in r#"(\{|\}|\[|\]|,|:|"(a|b|\\\\|\\"|\\u0061|\{|,)*"|1|null| ){0,40}"#) {
            if serde_json::from_str::<serde_json::Value>(&text).is_ok() && precheck(text.as_bytes()) {
                prop_assert!(is_valid(&text), "{}", text);
            }
        }
    }
}
