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
    pub texts: Vec<Bytes>,
}

/// Stands in a document for a text: its place in [`Lifted::texts`].
#[derive(Clone, Copy)]
pub struct TextId(pub usize);

impl<'de> Deserialize<'de> for TextId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let written = Cow::<'de, str>::deserialize(deserializer)?;
        written.parse().map(Self).map_err(serde::de::Error::custom)
    }
}

/// Where the texts of a document are: under `key` in the objects of the array `list`, which is a field
/// of the document.
pub struct Place {
    /// The field with the array.
    pub list: &'static str,
    /// The field with the text.
    pub key: &'static str,
    /// With this field, an object says how its text is to be read.
    pub unless: &'static str,
}

/// Takes the texts out of a document, Unicode without NUL as JSON wants it. Each is shown to `ready`
/// with its id as soon as it is certain that it is to be read as it stands.
///
/// None when there is anything about the document that somebody else can tell better: a fault, or an
/// escape in the name of a field, which would make it mean something that is not seen here.
pub fn lift<'d>(
    document: &'d [u8],
    place: &Place,
    mut ready: impl FnMut(TextId, &Bytes),
) -> Option<Lifted<'d>> {
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
                if open.last() == Some(&Part::Item) && field == place.unless.as_bytes() {
                    lift.fresh = None;
                    lift.is_plain = false;
                }
            }
            b'"' if open.last() == Some(&Part::Item) && field == place.key.as_bytes() => {
                at = lift.take(at)?;
            }
            b'"' => {
                let (text, _) = split_string(document.get(at..)?)?;
                at += text.len() + 1;
            }
            b'{' => {
                let part = match open.last() {
                    None => Part::Document,
                    Some(Part::List) => Part::Item,
                    Some(_) => Part::Object,
                };
                lift.is_plain |= part == Part::Item;
                open.push(part);
                field_is_next = true;
            }
            b'[' => {
                let is_list =
                    open.last() == Some(&Part::Document) && field == place.list.as_bytes();
                open.push(if is_list { Part::List } else { Part::Array });
                field_is_next = false;
            }
            b'}' | b']' => {
                if open.pop() == Some(Part::Item)
                    && let Some(id) = lift.fresh.take()
                {
                    ready(TextId(id), &lift.texts[id]);
                }
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
    texts: Vec<Bytes>,
    /// The text that is being decoded; its room is used again.
    scratch: Vec<u8>,
    /// Whether nothing in the present object says how its text is to be read.
    is_plain: bool,
    /// The text of the present object, if that is so.
    fresh: Option<usize>,
}

impl<'d> Lift<'d> {
    fn new(from: &'d [u8]) -> Self {
        Self {
            from,
            copied: 0,
            document: Vec::new(),
            texts: Vec::new(),
            scratch: Vec::new(),
            is_plain: false,
            fresh: None,
        }
    }

    /// Takes the text that begins here, after its quote; returns where the document goes on.
    fn take(&mut self, start: usize) -> Option<usize> {
        let (read, written) = unescape(&self.from[start..], &mut self.scratch)?;
        let text = &self.scratch[..written];
        std::str::from_utf8(text).ok()?;
        let number = self.texts.len();
        self.texts.push(Bytes::copy_from_slice(text));
        self.fresh = self.is_plain.then_some(number);
        self.document
            .extend_from_slice(&self.from[self.copied..start]);
        self.document
            .extend_from_slice(number.to_string().as_bytes());
        // The quote that ends it stays.
        self.copied = start + read;
        Some(self.copied + 1)
    }

    fn end(mut self) -> Lifted<'d> {
        let document = if self.texts.is_empty() {
            Cow::Borrowed(self.from)
        } else {
            self.document.extend_from_slice(&self.from[self.copied..]);
            Cow::Owned(self.document)
        };
        Lifted {
            document,
            texts: self.texts,
        }
    }
}

const WORD: usize = size_of::<u64>();

/// Decodes up to the quote that ends a string; how much was read, without the quote, and written.
fn unescape(from: &[u8], to: &mut Vec<u8>) -> Option<(usize, usize)> {
    let (mut read, mut written) = (0, 0);
    loop {
        // A word is written whole, also where only its start counts.
        if to.len() < written + WORD {
            to.resize(2 * written + 1024, 0);
        }
        let special = match from[read..].first_chunk::<WORD>() {
            Some(word) => {
                to[written..written + WORD].copy_from_slice(word);
                match special_bytes(u64::from_le_bytes(*word)) {
                    0 => WORD,
                    special => special.trailing_zeros() as usize / 8,
                }
            }
            None => {
                to[written] = *from.get(read)?;
                usize::from(!matches!(to[written], b'"' | b'\\' | 0..0x20))
            }
        };
        (read, written) = (read + special, written + special);
        if special == WORD {
            continue;
        }
        match *from.get(read)? {
            b'"' => return Some((read, written)),
            b'\\' => {
                let (decoded, length) = decode_escape(&from[read..])?;
                read += length;
                if decoded.is_ascii() {
                    to[written] = decoded as u8;
                    written += 1;
                } else {
                    to.truncate(written);
                    to.extend_from_slice(decoded.encode_utf8(&mut [0; 4]).as_bytes());
                    written = to.len();
                }
            }
            0..0x20 => return None,
            // Near the end of the document it goes byte by byte.
            _ => {}
        }
    }
}

/// The character of an escape, and how long that is written.
fn decode_escape(written: &[u8]) -> Option<(char, usize)> {
    let decoded = match *written.get(1)? {
        b'n' => '\n',
        b'"' => '"',
        b'\\' => '\\',
        b'/' => '/',
        b't' => '\t',
        b'r' => '\r',
        b'b' => '\x08',
        b'f' => '\x0c',
        b'u' => return unicode(written),
        _ => return None,
    };
    Some((decoded, 2))
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
                let text = &lifted.texts[number.parse::<usize>().unwrap()];
                *number = String::from_utf8(text.to_vec()).unwrap();
            }
        }
        document
    }

    const FILES: Place = Place {
        list: "files",
        key: "data",
        unless: "encoding",
    };

    fn lift_files(document: &str) -> Option<Lifted<'_>> {
        let mut shown = Vec::new();
        let ready = |TextId(number): TextId, text: &Bytes| shown.push((number, text.clone()));
        let lifted = lift(document.as_bytes(), &FILES, ready)?;
        assert!(
            shown
                .iter()
                .all(|(number, text)| lifted.texts[*number] == text)
        );
        Some(lifted)
    }

    #[test]
    fn texts_that_are_to_be_read_otherwise_are_not_shown() {
        let document = br#"{"files":[{"data":"a"},{"encoding":"base64","data":"b"},
            {"data":"c","encoding":"text"},{"data":"d","more":{"encoding":1}},{"path":"e"},
            {"data":"f","data":"g"}]}"#;
        let mut shown = Vec::new();
        let lifted = lift(document, &FILES, |_, text| shown.push(text.clone())).unwrap();
        assert_eq!(shown, ["a", "d", "g"]);
        assert_eq!(lifted.texts, ["a", "b", "c", "d", "f", "g"]);
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
            assert_eq!(lifted.texts.len(), 2);
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
        assert!(lift(b"{\"files\":[{\"data\":\"a\xffb\"}]}", &FILES, |_, _| ()).is_none());
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
