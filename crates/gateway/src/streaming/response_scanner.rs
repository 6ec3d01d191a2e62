//! Incremental scanner of a JSON response: its usage, bytes of generated content, and where it names its model.
//!
//! A state machine over parts of any size that builds no tree and keeps only the usage, so that memory per response is
//! bounded whatever a provider sends. It does not validate: the client gets the bytes as they are.

use estrade_model::call::Tokens;
use std::ops::Range;

/// A usage is never larger than this.
const MAX_USAGE: usize = 16 * 1024;
/// A usage with more tokens is ignored: sums of costs must not overflow.
const MAX_TOKENS: u64 = 1 << 40;
/// Bytes that are searched in line, eight at a time: most strings are too short to be worth a call of `memchr`.
const INLINE_SEARCH: usize = 32;

/// Scanner of one JSON text.
#[derive(Debug, Default)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "the state of a small machine, where nearly all combinations occur"
)]
pub(crate) struct ResponseScanner {
    depth: u32,
    in_string: bool,
    escaped: bool,
    /// Whether the next value belongs to `name`.
    after_colon: bool,
    /// Whether the present string is content.
    counting: bool,
    name: Name,
    /// The present string, if it may be a name and does not lie in one part, or not without escapes.
    partial_name: PartialName,
    /// The usage as it was written, while and after it is read.
    usage: Vec<u8>,
    in_usage: bool,
    has_usage: bool,
    /// Whether `choices` has just been opened, and was closed again at once.
    choices_open: bool,
    choices_empty: bool,
    /// Whether there is an error at the top.
    has_error: bool,
    content_bytes: u64,
    /// The first string of content in its part, if it has no escapes.
    content_span: Option<Range<usize>>,
    /// Whether the value of the top-level `model` has begun.
    has_model: bool,
    /// Whether it has begun and not ended.
    in_model: bool,
    /// Where it begins and ends in the last part, if it does so there; with its quotes.
    model: ModelSpan,
}

/// The value of the top-level `model` in one part of a text.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ModelSpan {
    /// Where it begins; none: in an earlier part, or it is not in this one.
    pub(crate) start: Option<usize>,
    /// Where it ends; none: in a later part, or it is not in this one.
    pub(crate) end: Option<usize>,
}

impl ModelSpan {
    /// Where it is, if all of it is in this part.
    pub(crate) fn whole(self) -> Option<Range<usize>> {
        Some(self.start?..self.end?)
    }
}

/// What the last string means if it was a name.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Name {
    #[default]
    Other,
    Usage,
    Choices,
    Error,
    /// A string under it is content.
    Content,
    Model,
}

impl Name {
    fn of(name: &[u8]) -> Self {
        match name {
            b"usage" => Self::Usage,
            b"choices" => Self::Choices,
            b"error" => Self::Error,
            b"model" => Self::Model,
            b"content" | b"reasoning_content" | b"reasoning" | b"arguments" | b"refusal"
            | b"text" => Self::Content,
            _ => Self::Other,
        }
    }
}

/// A string that is put together; only its beginning, names of interest are short.
#[derive(Debug, Default)]
struct PartialName {
    bytes: [u8; 20],
    length: usize,
}

impl PartialName {
    fn push(&mut self, part: &[u8]) {
        let start = self.length.min(self.bytes.len());
        let fits = part.len().min(self.bytes.len() - start);
        self.bytes[start..start + fits].copy_from_slice(&part[..fits]);
        self.length = self.length.saturating_add(part.len());
    }

    fn name(&self) -> Name {
        self.bytes.get(..self.length).map_or(Name::Other, Name::of)
    }
}

impl ResponseScanner {
    /// Reads the next part.
    pub(crate) fn feed(&mut self, part: &[u8]) {
        self.model = ModelSpan::default();
        let (mut at, mut usage) = (0, self.in_usage.then_some(0));
        while at < part.len() {
            if self.in_string {
                at = self.continue_string(part, at);
                continue;
            }
            let byte = part[at];
            at += 1;
            if self.choices_open && !byte.is_ascii_whitespace() {
                self.choices_empty = byte == b']';
                self.choices_open = false;
            }
            match byte {
                b'"' => at = self.string(part, at),
                b':' => self.after_colon = true,
                b',' => self.after_colon = false,
                // Both braces of a usage belong to it.
                b'{' | b'[' => {
                    let begins = self.open_container(byte);
                    if begins {
                        usage = Some(at - 1);
                    }
                }
                b'}' | b']' => {
                    let ends = self.close_container();
                    if ends {
                        self.append_usage(&part[usage.take().unwrap_or(at)..at]);
                    }
                }
                _ => {}
            }
        }
        if let Some(start) = usage {
            self.append_usage(&part[start..]);
        }
    }

    fn append_usage(&mut self, bytes: &[u8]) {
        if self.usage.len() + bytes.len() <= MAX_USAGE {
            self.usage.extend_from_slice(bytes);
        }
    }

    /// A string begins here; where to go on.
    fn string(&mut self, part: &[u8], at: usize) -> usize {
        let rest = &part[at..];
        let stop = find_stop(rest);
        let is_content = self.after_colon && self.name == Name::Content;
        self.has_error |= self.depth == 1 && self.after_colon && self.name == Name::Error;
        let is_model = self.after_colon && self.name == Name::Model && self.depth == 1;
        if is_model && !self.has_model {
            self.has_model = true;
            self.in_model = true;
            self.model.start = Some(at - 1);
        }
        if rest.get(stop) == Some(&b'"') {
            self.end_model(at + stop + 1);
            if is_content {
                self.content_bytes += stop as u64;
                self.content_span.get_or_insert(at..at + stop);
            } else if !self.after_colon {
                self.name = Name::of(&rest[..stop]);
            }
            return at + stop + 1;
        }
        self.in_string = true;
        self.counting = is_content;
        self.partial_name.length = 0;
        if is_content {
            self.content_span.get_or_insert(at..usize::MAX);
        }
        at
    }

    /// A string that is not whole goes on here.
    fn continue_string(&mut self, part: &[u8], at: usize) -> usize {
        if self.escaped {
            self.escaped = false;
            self.read_string(&part[at..=at]);
            return at + 1;
        }
        let rest = &part[at..];
        let stop = find_stop(rest);
        self.read_string(&rest[..stop]);
        match rest.get(stop) {
            None => return part.len(),
            Some(b'"') => {
                if let (true, Some(content_span)) = (self.counting, &mut self.content_span) {
                    content_span.end = content_span.end.min(at + stop);
                }
                if !self.after_colon {
                    self.name = self.partial_name.name();
                }
                self.in_string = false;
                self.counting = false;
                self.end_model(at + stop + 1);
            }
            Some(_) => {
                self.escaped = true;
                if let (true, Some(content_span)) = (self.counting, &mut self.content_span) {
                    // Before its beginning: it will not count as one.
                    content_span.end = 0;
                }
            }
        }
        at + stop + 1
    }

    /// A string ends before here.
    fn end_model(&mut self, end: usize) {
        if std::mem::take(&mut self.in_model) {
            self.model.end = Some(end);
        }
    }

    fn read_string(&mut self, bytes: &[u8]) {
        if self.counting {
            self.content_bytes += bytes.len() as u64;
        } else if !self.after_colon {
            self.partial_name.push(bytes);
        }
    }

    /// An object or a list begins; whether it is the usage.
    fn open_container(&mut self, byte: u8) -> bool {
        let member = self.depth == 1 && self.after_colon;
        let is_usage = member && byte == b'{' && self.name == Name::Usage;
        if is_usage {
            self.in_usage = true;
            self.has_usage = false;
            self.usage.clear();
        }
        self.has_error |= member && self.name == Name::Error;
        self.choices_open = member && byte == b'[' && self.name == Name::Choices;
        self.depth = self.depth.saturating_add(1);
        self.after_colon = false;
        is_usage
    }

    /// An object or a list ends; whether it was the usage.
    fn close_container(&mut self) -> bool {
        self.depth = self.depth.saturating_sub(1);
        self.after_colon = false;
        let was_usage = self.in_usage && self.depth == 1;
        if was_usage {
            self.in_usage = false;
            self.has_usage = true;
        }
        was_usage
    }

    /// The usage, if one was reported.
    pub(crate) fn usage(&self) -> Option<Tokens> {
        tokens(self.has_usage.then_some(&self.usage)?)
    }

    /// Whether the text has a top-level error: such a response is not cached.
    pub(crate) fn has_error(&self) -> bool {
        self.has_error
    }

    /// Whether this is an event with nothing but a usage.
    pub(crate) fn is_usage_only(&self) -> bool {
        self.choices_empty && self.has_usage
    }

    /// Whether there is a usage, even a malformed one.
    pub(crate) fn has_usage(&self) -> bool {
        self.has_usage || self.in_usage
    }

    /// Whether something has begun that has not ended.
    pub(crate) fn is_open(&self) -> bool {
        self.depth > 0 || self.in_string
    }

    /// Bytes of generated content so far.
    pub(crate) fn content_bytes(&self) -> u64 {
        self.content_bytes
    }

    /// Where the first top-level `model` has its value in the last part.
    pub(crate) fn model(&self) -> ModelSpan {
        self.model
    }

    /// Where the first string of content lies, of a text that came in one part; none: there is none, or it has
    /// escapes, or no end.
    pub(crate) fn content_span(&self) -> Option<Range<usize>> {
        self.content_span
            .clone()
            .filter(|it| it.start <= it.end && it.end < usize::MAX)
    }
}

/// Where a string ends, or goes on with an escape.
fn find_stop(text: &[u8]) -> usize {
    const LOW: u64 = u64::from_ne_bytes([0x01; 8]);
    const HIGH: u64 = u64::from_ne_bytes([0x80; 8]);
    // SWAR zero-byte search: the high bit is set where a byte is zero; the lowest such bit is never wrong.
    let zeros = |word: u64| word.wrapping_sub(LOW) & !word & HIGH;
    let (near, _) = text[..text.len().min(INLINE_SEARCH)].as_chunks::<8>();
    for (index, chunk) in near.iter().enumerate() {
        let word = u64::from_le_bytes(*chunk);
        let found = zeros(word ^ (LOW * u64::from(b'"'))) | zeros(word ^ (LOW * u64::from(b'\\')));
        if found != 0 {
            return index * 8 + (found.trailing_zeros() / 8) as usize;
        }
    }
    let seen = near.len() * 8;
    let far = &text[seen..];
    seen + memchr::memchr2(b'"', b'\\', far).unwrap_or(far.len())
}

#[derive(serde::Deserialize)]
struct Usage {
    #[serde(rename = "prompt_tokens")]
    prompt: Option<u64>,
    #[serde(rename = "completion_tokens")]
    completion: Option<u64>,
    #[serde(rename = "input_tokens")]
    input: Option<u64>,
    #[serde(rename = "output_tokens")]
    output: Option<u64>,
    #[serde(rename = "total_tokens")]
    total: Option<u64>,
}

fn tokens(written: &[u8]) -> Option<Tokens> {
    let usage: Usage = serde_json::from_slice(written).ok()?;
    let prompt = usage.prompt.or(usage.input);
    let completion = usage.completion.or(usage.output);
    let tokens = match (prompt, completion, usage.total) {
        (Some(prompt), Some(completion), _) => Tokens { prompt, completion },
        (Some(prompt), None, total) => Tokens {
            prompt,
            completion: total.unwrap_or(prompt).saturating_sub(prompt),
        },
        (None, Some(completion), total) => Tokens {
            prompt: total.unwrap_or(completion).saturating_sub(completion),
            completion,
        },
        (None, None, Some(total)) => Tokens {
            prompt: total,
            completion: 0,
        },
        (None, None, None) => return None,
    };
    (tokens.total() <= MAX_TOKENS).then_some(tokens)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scan(text: &str, at: usize) -> ResponseScanner {
        let mut scan = ResponseScanner::default();
        scan.feed(&text.as_bytes()[..at]);
        scan.feed(&text.as_bytes()[at..]);
        scan
    }

    #[test]
    fn usage_is_found_at_the_top_wherever_the_text_is_split() {
        let text = r#"{"id":"x","choices":[{"message":{"role":"assistant","content":"a \"usage\":{\"prompt_tokens\":9} \\",
            "usage":{"prompt_tokens":7}},"usage":{"prompt_tokens":8}}], "usage" : {"prompt_tokens":12,"completion_tokens":34,
            "total_tokens":46,"prompt_tokens_details":{"cached_tokens":{"a":[{}]}}},"z":{"usage":{"prompt_tokens":1}}}"#;
        for at in 0..text.len() {
            let scan = scan(text, at);
            let expected = Tokens {
                prompt: 12,
                completion: 34,
            };
            assert_eq!(scan.usage(), Some(expected), "{at}");
            assert!(!scan.is_usage_only() && !scan.is_open());
            let mut half = ResponseScanner::default();
            half.feed(&text.as_bytes()[..at]);
            assert_eq!(half.is_open(), at > 0, "{at}");
        }
        let content = r#"a \"usage\":{\"prompt_tokens\":9} \\"#
            .replace("\\\"", "\"")
            .replace("\\\\", "\\");
        assert_eq!(scan(text, 0).content_bytes(), content.len() as u64);
    }

    #[test]
    fn usages_of_all_shapes_are_read_and_nonsense_is_not() {
        let usage = |text: &str| scan(&format!(r#"{{"usage":{text}}}"#), 3).usage();
        let tokens = |prompt, completion| Some(Tokens { prompt, completion });
        assert_eq!(
            usage(r#"{"prompt_tokens":5,"total_tokens":5}"#),
            tokens(5, 0)
        );
        assert_eq!(
            usage(r#"{"input_tokens":5,"output_tokens":6}"#),
            tokens(5, 6)
        );
        assert_eq!(usage(r#"{"total_tokens":5}"#), tokens(5, 0));
        for none in [
            "null",
            "{}",
            "[]",
            r#"{"prompt_tokens":-5}"#,
            r#"{"prompt_tokens":99999999999999}"#,
            "7",
            r#""{""#,
        ] {
            assert_eq!(usage(none), None, "{none}");
        }
        let long = format!(r#"{{"x":"{}","prompt_tokens":1}}"#, "y".repeat(MAX_USAGE));
        assert_eq!(usage(&long), None);
    }

    #[test]
    fn events_that_only_report_usage_are_told_from_others() {
        let only = |text: &str| (0..text.len()).all(|at| scan(text, at).is_usage_only());
        assert!(only(r#"{"choices":[],"usage":{"prompt_tokens":1}}"#));
        assert!(only(r#"{"usage":{"prompt_tokens":1},"choices": [ ] }"#));
        assert!(!only(r#"{"choices":[],"usage":null}"#));
        assert!(!only(
            r#"{"choices":[{"delta":{}}],"usage":{"prompt_tokens":1}}"#
        ));
        assert!(!only(r#"{"x":{"choices":[]},"usage":{"prompt_tokens":1}}"#));
    }

    #[test]
    fn only_the_top_level_model_is_found_wherever_the_text_is_split() {
        let text = r#"{"choices":[{"model":"no","content":"{\"model\":\"no\"}"}],"x":"model","y":{"model":"no"}, "model" : "a\"b","model":"no"}"#;
        let wanted = r#""a\"b""#;
        for at in 0..text.len() {
            let (before, after) = text.split_at(at);
            let mut scan = ResponseScanner::default();
            scan.feed(before.as_bytes());
            let (first, is_open) = (scan.model(), scan.in_model);
            scan.feed(after.as_bytes());
            let second = scan.model();
            let start = first.start.or(second.start.map(|start| at + start));
            let end = first.end.or(second.end.map(|end| at + end));
            assert_eq!(&text[start.unwrap()..end.unwrap()], wanted, "{at}");
            assert_eq!(
                is_open,
                first.start.is_some() && first.end.is_none(),
                "{at}"
            );
        }
        for none in [
            r#"{"model":["a"]}"#,
            r#"["model","a"]"#,
            r#"{"model":null,"x":"a"}"#,
            "\"model\"",
        ] {
            assert_eq!(scan(none, 0).model(), ModelSpan::default(), "{none}");
        }
    }

    #[test]
    fn any_bytes_are_survived() {
        for text in [
            "",
            "}}}}",
            "]]]\"",
            "\"\\",
            "{\"usage\":{",
            ":::{{{[",
            "\u{0}\u{1}",
        ] {
            assert_eq!(scan(text, text.len() / 2).usage(), None);
        }
    }
}
