//! Rewrites the model's name in a response from the provider's name to the id in the client's request.

use crate::streaming::response_scanner::{ModelSpan, ResponseScanner};
use bytes::Bytes;
use std::ops::Range;

/// A longer name that arrives in several parts is forwarded as it is.
const MAX_HELD: usize = 16 * 1024;
/// Replaces the value of the top-level `model` in a JSON text that comes in parts. Only that value is ever held back,
/// from its first byte until its last.
#[derive(Debug)]
pub(crate) struct ModelRewriter {
    /// The id, as JSON.
    id: Bytes,
    held: Vec<u8>,
}

impl ModelRewriter {
    pub(crate) fn new(id: Bytes) -> Self {
        Self {
            id,
            held: Vec::new(),
        }
    }

    /// Forwards a part that `scan` has just read.
    pub(crate) fn rewrite(
        &mut self,
        part: Bytes,
        scan: &ResponseScanner,
        mut out: impl FnMut(Bytes),
    ) {
        let ModelSpan { start, end } = scan.model();
        match (start, end) {
            (Some(start), Some(end)) if part[start..end] != self.id => {
                out(part.slice(..start));
                out(self.id.clone());
                out(part.slice(end..));
            }
            (Some(start), None) => {
                out(part.slice(..start));
                self.hold(&part[start..], out);
            }
            (None, Some(end)) if !self.held.is_empty() => {
                self.held.clear();
                out(self.id.clone());
                out(part.slice(end..));
            }
            (None, None) if !self.held.is_empty() => self.hold(&part, out),
            _ => out(part),
        }
    }

    fn hold(&mut self, bytes: &[u8], mut out: impl FnMut(Bytes)) {
        self.held.extend_from_slice(bytes);
        if self.held.len() > MAX_HELD {
            out(self.rest());
        }
    }

    /// What is held back, when nothing more comes.
    pub(crate) fn rest(&mut self) -> Bytes {
        Bytes::from(std::mem::take(&mut self.held))
    }
}

/// A text with something else at one place.
pub(crate) fn replace(text: &[u8], span: Range<usize>, with: &[u8]) -> Bytes {
    let (before, after) = (&text[..span.start], &text[span.end..]);
    Bytes::from([before, with, after].concat())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::upstream::model_id::quoted;

    fn rewrite<'p>(parts: impl IntoIterator<Item = &'p [u8]>, id: &str) -> String {
        let (mut rewriter, mut scan) = (ModelRewriter::new(quoted(id)), ResponseScanner::default());
        let mut all = Vec::new();
        for part in parts {
            scan.feed(part);
            let part = Bytes::copy_from_slice(part);
            rewriter.rewrite(part, &scan, |piece| all.extend_from_slice(&piece));
        }
        all.extend_from_slice(&rewriter.rest());
        String::from_utf8(all).unwrap()
    }

    #[test]
    fn only_the_top_level_name_changes_wherever_the_text_is_split() {
        let text =
            r#"{"x":{"model":"up"},"content":"\"model\":\"up\"", "model" : "up\"stream","y":1}"#;
        let wanted =
            r#"{"x":{"model":"up"},"content":"\"model\":\"up\"", "model" : "open/\"id","y":1}"#;
        for one in 0..text.len() {
            for two in one..text.len().min(one + 9) {
                let parts = [&text[..one], &text[one..two], &text[two..]].map(str::as_bytes);
                assert_eq!(rewrite(parts, "open/\"id"), wanted, "{one} {two}");
            }
        }
        assert_eq!(rewrite(text.as_bytes().chunks(1), "open/\"id"), wanted);
        let same = r#"{"model":"id"}"#;
        assert_eq!(rewrite([same.as_bytes()], "id"), same);
        let open = r#"{"model":"up"#;
        assert_eq!(rewrite(open.as_bytes().chunks(3), "id"), open);
    }

    #[test]
    fn a_name_without_end_is_not_held() {
        let long = format!(r#"{{"model":"{}"}}"#, "x".repeat(MAX_HELD * 2));
        assert_eq!(rewrite(long.as_bytes().chunks(1000), "id"), long);
    }
}
