//! Looks at JSON without building it: spans of bytes, no recursion, no allocation.

use std::borrow::Cow;
use std::ops::Range;

/// Nested deeper than this is refused.
pub(crate) const MAX_DEPTH: usize = 1024;

/// Names of the parts of a message that are no text: images, sounds, films and files.
const MEDIA: [&str; 11] = [
    "file",
    "image",
    "video",
    "audio",
    "file_id",
    "file_data",
    "image_url",
    "audio_url",
    "video_url",
    "input_image",
    "input_audio",
];

/// No word that a name is compared with is longer.
pub(crate) const MAX_WORD: usize = 24;

/// Not JSON, or nested too deep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct JsonError {
    pub(crate) at: usize,
    /// What is wrong there.
    pub(crate) why: &'static str,
}

/// A string as it is written, without its quotes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct JsonString {
    /// Where it lies, without the quotes.
    pub(crate) span: Range<usize>,
    /// Whether something in it is escaped.
    escaped: bool,
}

/// What kind of value comes next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ValueKind {
    Object,
    Array,
    String,
    Number,
    Bool(bool),
    Null,
}

/// Reads JSON from bytes that are UTF-8.
pub(crate) struct Scanner<'b> {
    bytes: &'b [u8],
    at: usize,
    /// How many names were read that announce something other than text.
    pub(crate) media: u64,
    /// How many strings were decoded.
    #[cfg(test)]
    decoded: std::cell::Cell<usize>,
}

impl<'b> Scanner<'b> {
    /// At the beginning of a text.
    pub(crate) fn new(text: &'b str) -> Self {
        Self {
            bytes: text.as_bytes(),
            at: 0,
            media: 0,
            #[cfg(test)]
            decoded: std::cell::Cell::default(),
        }
    }

    pub(crate) fn at(&self) -> usize {
        self.at
    }

    fn error(&self, why: &'static str) -> JsonError {
        JsonError { at: self.at, why }
    }

    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn skip_whitespace(&mut self) {
        while let Some(b' ' | b'\n' | b'\t' | b'\r') = self.peek() {
            self.at += 1;
        }
    }

    /// The kind of the next value, which is not read yet.
    pub(crate) fn kind(&mut self) -> Result<ValueKind, JsonError> {
        self.skip_whitespace();
        match self.peek() {
            Some(b'{') => Ok(ValueKind::Object),
            Some(b'[') => Ok(ValueKind::Array),
            Some(b'"') => Ok(ValueKind::String),
            Some(b't') => Ok(ValueKind::Bool(true)),
            Some(b'f') => Ok(ValueKind::Bool(false)),
            Some(b'n') => Ok(ValueKind::Null),
            Some(b'-' | b'0'..=b'9') => Ok(ValueKind::Number),
            _ => Err(self.error("a value is expected")),
        }
    }

    /// Reads an object; `member` is given each name and must read the value behind it.
    pub(crate) fn object<E: From<JsonError>>(
        &mut self,
        mut member: impl FnMut(&mut Self, &JsonString) -> Result<(), E>,
    ) -> Result<(), E> {
        self.skip_whitespace();
        if self.peek() != Some(b'{') {
            return Err(self.error("an object is expected").into());
        }
        self.at += 1;
        self.skip_whitespace();
        if self.peek() == Some(b'}') {
            self.at += 1;
            return Ok(());
        }
        loop {
            let name = self.name()?;
            member(self, &name)?;
            self.skip_whitespace();
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b'}') => {
                    self.at += 1;
                    return Ok(());
                }
                _ => return Err(self.error("a comma or a closing brace is expected").into()),
            }
        }
    }

    /// Reads an array; `element` is given the number of each value and must read it.
    pub(crate) fn array<E: From<JsonError>>(
        &mut self,
        mut element: impl FnMut(&mut Self, usize) -> Result<(), E>,
    ) -> Result<(), E> {
        self.skip_whitespace();
        if self.peek() != Some(b'[') {
            return Err(self.error("an array is expected").into());
        }
        self.at += 1;
        self.skip_whitespace();
        if self.peek() == Some(b']') {
            self.at += 1;
            return Ok(());
        }
        for index in 0.. {
            element(self, index)?;
            self.skip_whitespace();
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b']') => {
                    self.at += 1;
                    break;
                }
                _ => {
                    return Err(self
                        .error("a comma or a closing bracket is expected")
                        .into());
                }
            }
        }
        Ok(())
    }

    fn name(&mut self) -> Result<JsonString, JsonError> {
        self.skip_whitespace();
        let name = self.string()?;
        self.skip_whitespace();
        if self.peek() != Some(b':') {
            return Err(self.error("a colon is expected"));
        }
        self.at += 1;
        self.media += u64::from(self.find_ignoring_case(&name, &MEDIA).is_some());
        Ok(name)
    }

    /// Nothing but space may follow.
    pub(crate) fn end(&mut self) -> Result<(), JsonError> {
        self.skip_whitespace();
        match self.peek() {
            None => Ok(()),
            Some(_) => Err(self.error("something follows the end")),
        }
    }

    /// Reads a string.
    pub(crate) fn string(&mut self) -> Result<JsonString, JsonError> {
        if self.peek() != Some(b'"') {
            return Err(self.error("a string is expected"));
        }
        let start = self.at + 1;
        self.at = start;
        let mut escaped = false;
        loop {
            let rest = self.bytes.get(self.at..).unwrap_or_default();
            let Some(stop) = memchr::memchr2(b'"', b'\\', rest) else {
                return Err(self.error("a string does not end"));
            };
            // No early exit: so the compiler makes vector code of it.
            let controls = rest[..stop]
                .iter()
                .fold(0, |any, b| any | u8::from(*b < 0x20));
            if controls > 0 {
                return Err(self.error("a control character in a string must be escaped"));
            }
            self.at += stop;
            if rest[stop] == b'"' {
                let span = start..self.at;
                self.at += 1;
                return Ok(JsonString { span, escaped });
            }
            escaped = true;
            self.escape()?;
        }
    }

    fn escape(&mut self) -> Result<(), JsonError> {
        match self.bytes.get(self.at + 1) {
            Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => self.at += 2,
            Some(b'u') => {
                let digits = self.bytes.get(self.at + 2..self.at + 6);
                if !digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit)) {
                    return Err(self.error("an escape is not complete"));
                }
                self.at += 6;
            }
            _ => return Err(self.error("an unknown escape")),
        }
        Ok(())
    }

    /// The next value as a number, if it is one that can be counted with.
    pub(crate) fn number(&mut self) -> Result<f64, JsonError> {
        let span = self.skip()?;
        let text = std::str::from_utf8(&self.bytes[span]).unwrap_or_default();
        text.parse().map_err(|_| self.error("a number is expected"))
    }

    fn digits(&mut self) -> Result<(), JsonError> {
        let start = self.at;
        while let Some(b'0'..=b'9') = self.peek() {
            self.at += 1;
        }
        if self.at == start {
            return Err(self.error("a digit is expected"));
        }
        Ok(())
    }

    fn skip_number(&mut self) -> Result<(), JsonError> {
        if self.peek() == Some(b'-') {
            self.at += 1;
        }
        if self.peek() == Some(b'0') {
            self.at += 1;
        } else {
            self.digits()?;
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            self.digits()?;
        }
        if let Some(b'e' | b'E') = self.peek() {
            self.at += 1;
            if let Some(b'+' | b'-') = self.peek() {
                self.at += 1;
            }
            self.digits()?;
        }
        Ok(())
    }

    fn literal(&mut self, word: &'static str) -> Result<(), JsonError> {
        if !self.bytes[self.at..].starts_with(word.as_bytes()) {
            return Err(self.error("a value is expected"));
        }
        self.at += word.len();
        Ok(())
    }

    /// Reads over one value, whatever it is, and says where it lies.
    pub(crate) fn skip(&mut self) -> Result<Range<usize>, JsonError> {
        self.skip_whitespace();
        let start = self.at;
        let mut nesting = NestingStack::default();
        loop {
            // Here a value is due.
            match self.kind()? {
                ValueKind::String => {
                    self.string()?;
                }
                ValueKind::Number => self.skip_number()?,
                ValueKind::Bool(true) => self.literal("true")?,
                ValueKind::Bool(false) => self.literal("false")?,
                ValueKind::Null => self.literal("null")?,
                opened @ (ValueKind::Object | ValueKind::Array) => {
                    self.at += 1;
                    self.skip_whitespace();
                    let object = opened == ValueKind::Object;
                    if self.peek() == Some(if object { b'}' } else { b']' }) {
                        self.at += 1;
                    } else {
                        nesting
                            .open(object)
                            .ok_or_else(|| self.error("it is nested too deep"))?;
                        if object {
                            self.name()?;
                        }
                        continue;
                    }
                }
            }
            // A value has ended: so may what is around it.
            loop {
                let Some(object) = nesting.inner() else {
                    return Ok(start..self.at);
                };
                self.skip_whitespace();
                match self.peek() {
                    Some(b',') => {
                        self.at += 1;
                        if object {
                            self.name()?;
                        }
                        break;
                    }
                    Some(b'}') if object => self.at += 1,
                    Some(b']') if !object => self.at += 1,
                    _ => return Err(self.error("a comma or a closing bracket is expected")),
                }
                nesting.close();
            }
        }
    }

    /// Whether a string says this.
    pub(crate) fn equals(&self, text: &JsonString, what: &str) -> bool {
        if text.escaped {
            // Six bytes are the longest way to write one; decoding is dear, and a body may have a million names.
            let length = text.span.len();
            (what.len()..=6 * what.len()).contains(&length) && self.value(text) == what
        } else {
            self.bytes[text.span.clone()] == *what.as_bytes()
        }
    }

    /// Which of these a string says to a server that does not mind the case: to those written in Go
    /// also U+017F is an S and U+212A a K.
    pub(crate) fn find_ignoring_case<'w>(
        &self,
        text: &JsonString,
        words: &[&'w str],
    ) -> Option<&'w str> {
        let bytes = &self.bytes[text.span.clone()];
        if !text.escaped && bytes.is_ascii() {
            let same = |word: &&&str| bytes.eq_ignore_ascii_case(word.as_bytes());
            return words.iter().find(same).copied();
        }
        // Six bytes are the longest way to write a letter.
        if bytes.len() > 6 * MAX_WORD {
            return None;
        }
        let fold = |c| match c {
            '\u{17f}' => 's',
            '\u{212a}' => 'k',
            c => char::to_ascii_lowercase(&c),
        };
        let folded: String = self.value(text).chars().map(fold).collect();
        let same = |word: &&&str| word.eq_ignore_ascii_case(&folded);
        words.iter().find(same).copied()
    }

    /// What a string says.
    pub(crate) fn value(&self, text: &JsonString) -> Cow<'b, str> {
        let quoted = &self.bytes[text.span.start - 1..=text.span.end];
        if text.escaped {
            #[cfg(test)]
            self.decoded.update(|count| count + 1);
            // A lone surrogate says nothing that could be a name.
            return Cow::Owned(serde_json::from_slice(quoted).unwrap_or_default());
        }
        Cow::Borrowed(std::str::from_utf8(&self.bytes[text.span.clone()]).unwrap_or_default())
    }
}

/// What is open around the present place, a bit each: object or array.
#[derive(Default)]
struct NestingStack {
    depth: usize,
    objects: [u64; MAX_DEPTH / 64],
}

impl NestingStack {
    fn open(&mut self, object: bool) -> Option<()> {
        let word = self.objects.get_mut(self.depth / 64)?;
        let bit = 1 << (self.depth % 64);
        *word = if object { *word | bit } else { *word & !bit };
        self.depth += 1;
        Some(())
    }

    fn inner(&self) -> Option<bool> {
        let last = self.depth.checked_sub(1)?;
        Some(self.objects[last / 64] >> (last % 64) & 1 == 1)
    }

    fn close(&mut self) {
        self.depth -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::Value;

    fn accepts(text: &str) -> bool {
        let mut scanner = Scanner::new(text);
        scanner.skip().and_then(|_| scanner.end()).is_ok()
    }

    fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            ".*".prop_map(Value::from),
        ];
        leaf.prop_recursive(6, 64, 6, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
                prop::collection::hash_map(".*", inner, 0..6)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(300))]
        #[test]
        fn it_accepts_what_serde_writes(value in any_json(), pretty: bool) {
            let text = if pretty { serde_json::to_string_pretty(&value) } else { serde_json::to_string(&value) }.unwrap();
            prop_assert!(accepts(&text), "{}", text);
        }

        #[test]
        fn it_judges_damaged_json_like_serde(value in any_json(), at: prop::sample::Index, with in r#"[\[\]{},:"\\0-9eE.+\-tfnu a]?"#) {
            let text = serde_json::to_string(&value).unwrap();
            let mut chars: Vec<char> = text.chars().collect();
            let at = at.index(chars.len());
            chars.splice(at..=at, with.chars());
            let text: String = chars.into_iter().collect();
            // serde_json calls numbers wrong that no float can hold; for us they are only skipped.
            let serde = serde_json::from_str::<&serde_json::value::RawValue>(&text).is_ok();
            prop_assert_eq!(accepts(&text), serde, "{}", text);
        }
    }

    #[test]
    fn deep_nesting_is_refused_and_shallow_nesting_is_not() {
        let deep = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
        assert!(accepts(&deep(MAX_DEPTH)));
        assert!(accepts(&deep(MAX_DEPTH + 1).replace("[]", "1")));
        assert!(!accepts(&deep(10_000)));
        let objects = format!("{}1{}", r#"{"a":"#.repeat(1000), "}".repeat(1000));
        assert!(accepts(&objects));
        assert!(!accepts(&objects.replace('1', "")));
    }

    #[test]
    fn arrays_are_read_value_by_value() {
        let read = |text: &str| {
            let mut scanner = Scanner::new(text);
            let mut spans = Vec::new();
            let mut add = |scanner: &mut Scanner<'_>, index| {
                assert_eq!(index, spans.len());
                spans.push(scanner.skip()?);
                Ok::<_, JsonError>(())
            };
            let ended = scanner.array(&mut add).and_then(|()| scanner.end());
            let texts: Vec<_> = spans
                .into_iter()
                .map(|span| text[span].to_owned())
                .collect();
            ended.map(|()| texts)
        };
        assert_eq!(read(" [ ] ").unwrap(), [""; 0]);
        assert_eq!(
            read(r#"[1 , [2],{"a":3}]"#).unwrap(),
            ["1", "[2]", r#"{"a":3}"#]
        );
        for bad in ["", "[", "[1", "[1,", "[1,]", "[,]", "[1 2]", "{}", "[1]]"] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }

    /// To decode is dear, and a body may have a million names.
    #[test]
    fn a_name_that_is_too_long_or_too_short_is_not_decoded() {
        let text = format!(r#""\u0061{}""#, "x".repeat(1000));
        for text in [&*text, r#""\n""#] {
            let mut scanner = Scanner::new(text);
            let name = scanner.string().unwrap();
            for word in ["model", "stream_options", "max_completion_tokens"] {
                assert!(!scanner.equals(&name, word));
            }
            assert_eq!(scanner.decoded.get(), 0, "{text:.20}");
        }
    }

    #[test]
    fn names_are_compared_as_they_read() {
        let text = r#""mod\u0065l""#;
        let mut scanner = Scanner::new(text);
        let name = scanner.string().unwrap();
        assert!(scanner.equals(&name, "model"));
        assert_eq!(scanner.value(&name), "model");
    }
}
