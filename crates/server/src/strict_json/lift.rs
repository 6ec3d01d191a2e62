//! The long texts of a document, such as the files of a release, decoded in one pass.
//!
//! A parser looks at every byte of a file three times: for its end, for what is wrong with it, and to
//! decode it. Here that is one loop over eight bytes at a time, and the parser sees a document with
//! numbers where the texts were.

use super::glance::split_string;
use bytes::Bytes;
use serde::{Deserialize, Deserializer};
use std::borrow::Cow;

/// A document without its texts.
pub struct Lifted<'d> {
    /// The same document with the [`TextId`] of each text in its place.
    pub document: Cow<'d, [u8]>,
    /// What was there.
    pub texts: Texts,
}

/// The texts of a document: Unicode without NUL, as JSON wants it.
pub struct Texts {
    bytes: Bytes,
    ends: Vec<usize>,
}

/// Stands in a document for a text.
#[derive(Clone, Copy)]
pub struct TextId(usize);

impl<'de> Deserialize<'de> for TextId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let written = Cow::<'de, str>::deserialize(deserializer)?;
        written.parse().map(Self).map_err(serde::de::Error::custom)
    }
}

impl Texts {
    /// A text; every [`TextId`] of the document has one.
    pub fn get(&self, TextId(number): TextId) -> Bytes {
        let start = number.checked_sub(1).and_then(|last| self.ends.get(last));
        let end = self.ends.get(number).copied().unwrap_or_default();
        self.bytes.slice(start.copied().unwrap_or_default()..end)
    }
}

/// Takes the texts out that stand under `key` in the objects of the array `list`, which is a field of
/// the document.
///
/// None when there is anything about the document that somebody else can tell better: a fault, or an
/// escape in the name of a field, which would make it mean something that is not seen here.
pub fn lift<'d>(document: &'d [u8], list: &str, key: &str) -> Option<Lifted<'d>> {
    let mut open: Vec<Part> = Vec::new();
    let mut field: &[u8] = b"";
    let mut field_is_next = false;
    let mut lift = Lift::new(document);
    let mut at = 0;
    while let Some(&byte) = document.get(at) {
        at += 1;
        match byte {
            b'"' if field_is_next => {
                let (text, _) = split_string(document.get(at..)?)?;
                if text.contains(&b'\\') {
                    return None;
                }
                field = text;
                field_is_next = false;
                at += text.len() + 1;
            }
            b'"' if open.last() == Some(&Part::Item) && field == key.as_bytes() => {
                at = lift.take(at)?;
            }
            b'"' => {
                let (text, _) = split_string(document.get(at..)?)?;
                at += text.len() + 1;
            }
            b'{' => {
                open.push(match open.last() {
                    None => Part::Document,
                    Some(Part::List) => Part::Item,
                    Some(_) => Part::Object,
                });
                field_is_next = true;
            }
            b'[' => {
                let is_list = open.last() == Some(&Part::Document) && field == list.as_bytes();
                open.push(if is_list { Part::List } else { Part::Array });
                field_is_next = false;
            }
            b'}' | b']' => {
                open.pop();
                field_is_next = false;
            }
            b',' => field_is_next = open.last().is_some_and(Part::has_fields),
            _ => {}
        }
    }
    Some(lift.end())
}

/// What is open at some point of the document.
#[derive(PartialEq, Eq)]
enum Part {
    Document,
    List,
    Item,
    Object,
    Array,
}

impl Part {
    fn has_fields(&self) -> bool {
        matches!(self, Self::Document | Self::Item | Self::Object)
    }
}

/// The two halves on their way.
struct Lift<'d> {
    from: &'d [u8],
    /// Up to where `document` has it.
    copied: usize,
    document: Vec<u8>,
    texts: Vec<u8>,
    /// How much of `texts` is filled.
    filled: usize,
    ends: Vec<usize>,
}

impl<'d> Lift<'d> {
    fn new(from: &'d [u8]) -> Self {
        Self {
            from,
            copied: 0,
            document: Vec::new(),
            texts: Vec::new(),
            filled: 0,
            ends: Vec::new(),
        }
    }

    /// Takes the text that begins here, after its quote; returns where the document goes on.
    fn take(&mut self, start: usize) -> Option<usize> {
        if self.texts.is_empty() {
            // No text is longer than it is written; the last word may be written beyond its end.
            self.texts = vec![0; self.from.len() - start + WORD];
        }
        let (read, written) = unescape(&self.from[start..], &mut self.texts[self.filled..])?;
        std::str::from_utf8(&self.texts[self.filled..][..written]).ok()?;
        self.filled += written;
        let number = self.ends.len();
        self.ends.push(self.filled);
        self.document
            .extend_from_slice(&self.from[self.copied..start]);
        self.document
            .extend_from_slice(number.to_string().as_bytes());
        // The quote that ends it stays.
        self.copied = start + read;
        Some(self.copied + 1)
    }

    fn end(mut self) -> Lifted<'d> {
        let document = if self.ends.is_empty() {
            Cow::Borrowed(self.from)
        } else {
            self.document.extend_from_slice(&self.from[self.copied..]);
            Cow::Owned(self.document)
        };
        self.texts.truncate(self.filled);
        Lifted {
            document,
            texts: Texts {
                bytes: self.texts.into(),
                ends: self.ends,
            },
        }
    }
}

const WORD: usize = size_of::<u64>();

/// Decodes up to the quote that ends a string; how much was read, without the quote, and written.
fn unescape(from: &[u8], to: &mut [u8]) -> Option<(usize, usize)> {
    let (mut read, mut written) = (0, 0);
    loop {
        let plain = copy_plain(from.get(read..)?, to.get_mut(written..)?)?;
        (read, written) = (read + plain, written + plain);
        match from[read] {
            b'"' => return Some((read, written)),
            b'\\' => {}
            _control => return None,
        }
        let plain = match *from.get(read + 1)? {
            b'n' => b'\n',
            same @ (b'"' | b'\\' | b'/') => same,
            b't' => b'\t',
            b'r' => b'\r',
            b'b' => 8,
            b'f' => 12,
            b'u' => {
                let (escaped, length) = unicode(&from[read..])?;
                let room = to.get_mut(written..)?;
                written += escaped.encode_utf8(room.get_mut(..4)?).len();
                read += length;
                continue;
            }
            _ => return None,
        };
        *to.get_mut(written)? = plain;
        (read, written) = (read + 2, written + 1);
    }
}

/// Copies up to the first byte that is not itself; how many those are. None when all are.
fn copy_plain(from: &[u8], to: &mut [u8]) -> Option<usize> {
    let mut copied = 0;
    while let Some(word) = from.get(copied..copied + WORD) {
        let word: [u8; WORD] = word.try_into().ok()?;
        to.get_mut(copied..copied + WORD)?.copy_from_slice(&word);
        let special = special_bytes(u64::from_le_bytes(word));
        if special != 0 {
            return Some(copied + special.trailing_zeros() as usize / 8);
        }
        copied += WORD;
    }
    for &byte in from.get(copied..)? {
        if matches!(byte, b'"' | b'\\' | 0..0x20) {
            return Some(copied);
        }
        *to.get_mut(copied)? = byte;
        copied += 1;
    }
    None
}

/// The highest bit of the lowest byte that is a quote, a backslash or a control character is the
/// lowest bit set here.
fn special_bytes(word: u64) -> u64 {
    const ONES: u64 = u64::from_le_bytes([1; WORD]);
    const HIGH: u64 = ONES << 7;
    // What is borrowed from a higher byte can only make that one wrong.
    let below = |word: u64, limit: u8| word.wrapping_sub(ONES * u64::from(limit)) & !word & HIGH;
    let equal = |byte: u8| below(word ^ (ONES * u64::from(byte)), 1);
    below(word, 0x20) | equal(b'"') | equal(b'\\')
}

/// The character that is written as one or two `\uXXXX`, and how long that is; NUL is none.
fn unicode(written: &[u8]) -> Option<(char, usize)> {
    let unit = |at: usize| -> Option<u16> {
        let digits = written.get(at..at + 6)?.strip_prefix(br"\u")?;
        let mut unit = [0; 2];
        hex::decode_to_slice(digits, &mut unit).ok()?;
        Some(u16::from_be_bytes(unit))
    };
    let first = unit(0)?;
    if let Some(single) = char::from_u32(u32::from(first)) {
        return (single != '\0').then_some((single, 6));
    }
    let pair = [first, unit(6)?];
    let whole = char::decode_utf16(pair).next()?.ok()?;
    Some((whole, 12))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    /// The document as it was, put together again.
    fn restored(lifted: &Lifted<'_>) -> Value {
        let mut document: Value = serde_json::from_slice(&lifted.document).unwrap();
        for file in document["files"].as_array_mut().into_iter().flatten() {
            if let Some(Value::String(number)) = file.get_mut("data") {
                let text = lifted.texts.get(TextId(number.parse().unwrap()));
                *number = String::from_utf8(text.to_vec()).unwrap();
            }
        }
        document
    }

    fn lift_files(document: &str) -> Option<Lifted<'_>> {
        lift(document.as_bytes(), "files", "data")
    }

    #[test]
    fn only_the_texts_of_the_list_are_taken() {
        let document = json!({
            "data": "stays", "message": "a \"word\"",
            "files": [
                {"path": "a", "data": "one\n\"two\" \\ é😀\u{1f}\u{7f}", "more": {"data": "stays"}},
                {"data": "", "path": "b"},
                {"path": "c", "data": 7}, {"path": "d", "data": ["stays"]}, ["data", "stays"],
                "data", {"path": "e", "digest": "x"},
            ],
            "other": {"files": [{"data": "stays"}]},
        });
        for text in [document.to_string(), format!("{document:#}")] {
            let lifted = lift_files(&text).unwrap();
            assert_eq!(lifted.texts.ends.len(), 2);
            assert_eq!(restored(&lifted), document);
            let left = String::from_utf8(lifted.document.to_vec()).unwrap();
            assert!(!left.contains("two"), "{left}");
        }
    }

    #[test]
    fn a_document_without_texts_is_not_copied() {
        let lifted = lift_files(r#"{"files":[{"path":"a"}],"data":"x"}"#).unwrap();
        assert!(matches!(lifted.document, Cow::Borrowed(_)));
    }

    #[test]
    fn every_escape_is_decoded() {
        let text = r#"{"files":[{"data":"a\"\\\/\b\f\n\r\t\u00e9\u20AC\ud83d\ude00z"}]}"#;
        let expected: Value = serde_json::from_str(text).unwrap();
        assert_eq!(restored(&lift_files(text).unwrap()), expected);
    }

    #[test]
    fn what_is_odd_is_left_to_others() {
        for bad in [
            r#""\ud83d""#,
            r#""\ude00\ud83d""#,
            r#""\ud83d\u0041""#,
            r#""\u0000""#,
            r#""\u+fff""#,
            r#""\u12"#,
            r#""\x""#,
            "\"\n\"",
            "\"\0\"",
            "\"unended",
            r#""unended\""#,
            r#""\"#,
        ] {
            let document = format!(r#"{{"files":[{{"data":{bad}}}]}}"#);
            assert!(lift_files(&document).is_none(), "{document:?}");
        }
        // These mean `files` and `data`.
        assert!(lift_files(r#"{"fil\u0065s":[{"data":"0"}]}"#).is_none());
        assert!(lift_files(r#"{"files":[{"d\u0061ta":"0"}]}"#).is_none());
        assert!(lift(b"{\"files\":[{\"data\":\"a\xffb\"}]}", "files", "data").is_none());
    }

    proptest! {
        #[test]
        fn texts_agree_with_serde_json(
            text in r#"(a|é|😀|\\[nrtbf"/\\]|\\u[0-9a-fA-F]{4}|\\ud83d\\ude00| |[a-z]{9}){0,30}"#
        ) {
            let document = format!(r#"{{"files":[{{"data":"{text}"}},{{"data":"after"}}]}}"#);
            if let Some(lifted) = lift_files(&document) {
                let expected: Value = serde_json::from_str(&document).unwrap();
                prop_assert_eq!(restored(&lifted), expected);
            } else {
                prop_assert!(text.contains("\\ud") || text.contains("\\uD") || text.contains("\\u0000"));
            }
        }

        /// Whatever is valid JSON comes out as it went in.
        #[test]
        fn documents_stay_the_same(
            document in r#"\{"files":\[((\{|\}|\[|\]|,|:|"(data|files|a|\\\\|\\")"| |1){0,20})\]\}"#
        ) {
            if let Ok(expected) = serde_json::from_str::<Value>(&document) {
                prop_assert_eq!(restored(&lift_files(&document).unwrap()), expected);
            }
        }
    }
}
