//! Template of a stream's events: most differ from the one before in a single string, the generated content. An event
//! with the same bytes before and after that string needs no JSON scan.
//!
//! Invariant: an event matches only if its content has no quote, backslash or newline, so that it can neither end the
//! string nor the event; an event with a usage is never learned, so that no usage is missed.
//!
//! Measured when it was added: the scan that it spares was 1,570 of 7,000 instructions per event of 60 bytes (callgrind),
//! and more for longer ones. `./bench gateway --only streams` shows what an event costs against nginx.

use crate::streaming::model_name::replace;
use bytes::Bytes;
use std::ops::Range;

/// After so many events that do not match, the stream is not compared any more.
const MAX_MISSES: u8 = 16;

/// Shorter content is searched by a loop: the set-up of `memchr` takes longer.
const MIN_MEMCHR: usize = 24;

/// An event without its content.
#[derive(Debug, Default)]
pub(crate) struct EventTemplate {
    /// The event, its content left out.
    rest: Box<[u8]>,
    /// Where the content was.
    gap: usize,
    /// Bytes of content elsewhere in it.
    content_bytes: u64,
    misses: u8,
    /// The template as the client reads it, if the model's name is rewritten.
    rewritten: Option<Rewritten>,
}

/// The event as the client reads it, its content left out.
#[derive(Debug)]
struct Rewritten {
    rest: Box<[u8]>,
    gap: usize,
}

impl EventTemplate {
    /// Bytes of content in an event, if it differs from the template only in the content.
    pub(crate) fn match_event(&mut self, event: &[u8]) -> Option<u64> {
        let (before, after) = self.rest.split_at_checked(self.gap)?;
        let content = event.strip_prefix(before).and_then(|rest| {
            let content = rest.strip_suffix(after)?;
            (!is_unusual(content)).then_some(content)
        });
        match content {
            Some(content) if !before.is_empty() => {
                self.misses = 0;
                Some(self.content_bytes + content.len() as u64)
            }
            _ => None,
        }
    }

    /// The rewritten event that matches the template, in three pieces; none: the event as it is.
    pub(crate) fn rewrite<'e>(&'e self, event: &'e [u8]) -> Option<[&'e [u8]; 3]> {
        let Rewritten { rest, gap } = self.rewritten.as_ref()?;
        let (before, after) = rest.split_at_checked(*gap)?;
        let end = (event.len() + self.gap).checked_sub(self.rest.len())?;
        Some([before, event.get(self.gap..end)?, after])
    }

    /// Whether the next event may match the template.
    pub(crate) fn is_known(&self) -> bool {
        !self.rest.is_empty() && self.misses < MAX_MISSES
    }

    /// Learns an event with `content` bytes of content, the string at `content_span` included, and nothing that has to be
    /// read each time. For the client, the part that `edit` names is replaced.
    pub(crate) fn learn(
        &mut self,
        event: &[u8],
        content_span: Range<usize>,
        content_bytes: u64,
        edit: Option<(Range<usize>, &[u8])>,
    ) {
        if self.misses >= MAX_MISSES {
            return;
        }
        self.misses += 1;
        let (Some(before), Some(after)) = (
            event.get(..content_span.start),
            event.get(content_span.end..),
        ) else {
            return;
        };
        self.rest = [before, after].concat().into();
        self.gap = before.len();
        self.content_bytes = content_bytes.saturating_sub(content_span.len() as u64);
        self.rewritten = edit.and_then(|(span, with)| {
            let is_before = span.end <= content_span.start;
            if !is_before && span.start < content_span.end {
                return None;
            }
            let [before, after] = if is_before {
                [replace(before, span, with), Bytes::copy_from_slice(after)]
            } else {
                let span = span.start - content_span.end..span.end - content_span.end;
                [Bytes::copy_from_slice(before), replace(after, span, with)]
            };
            Some(Rewritten {
                rest: [&before[..], &after[..]].concat().into(),
                gap: before.len(),
            })
        });
    }
}

/// Whether something in it ends the string or the line, or is counted in another way.
fn is_unusual(content: &[u8]) -> bool {
    if content.len() > MIN_MEMCHR {
        return memchr::memchr3(b'"', b'\\', b'\n', content).is_some();
    }
    content
        .iter()
        .any(|byte| matches!(byte, b'"' | b'\\' | b'\n'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_is_counted_without_the_rest() {
        let mut template = EventTemplate::default();
        assert_eq!(template.match_event(b"data: {}"), None);
        assert!(!template.is_known());
        // Two bytes of content are elsewhere in it.
        template.learn(b"<Hello>no", 1..6, 7, None);
        assert!(template.is_known());
        assert_eq!(template.match_event(b"<Hi>no"), Some(4));
        assert_eq!(template.match_event(b"<>no"), Some(2));
        for other in [
            &b"<Hi>yes"[..],
            b"Hi>no",
            b"<a\"b>no",
            b"<a\\b>no",
            b"<a\nb>no",
            b"<no",
        ] {
            assert_eq!(template.match_event(other), None, "{other:?}");
        }
    }

    #[test]
    fn what_is_replaced_is_replaced_in_every_event_like_the_first() {
        for (event, content_span, edit) in [
            (&b"<up>Hello</up>"[..], 4..9, 1..3),
            (b"<x>Hello<up></up>", 3..8, 9..11),
        ] {
            let mut template = EventTemplate::default();
            template.learn(
                event,
                content_span.clone(),
                5,
                Some((edit.clone(), b"model")),
            );
            for content in [&b"Hi"[..], b"", b"something longer"] {
                let next = replace(event, content_span.clone(), content);
                assert_eq!(template.match_event(&next), Some(content.len() as u64));
                let wanted = replace(&replace(event, edit.clone(), b"model"), 0..0, b"");
                let at = if edit.start < content_span.start {
                    3
                } else {
                    0
                };
                let wanted = replace(
                    &wanted,
                    content_span.start + at..content_span.end + at,
                    content,
                );
                assert_eq!(template.rewrite(&next).unwrap().concat(), wanted);
            }
            template.learn(event, content_span, 5, None);
            assert_eq!(template.rewrite(event), None);
        }
    }

    #[test]
    fn who_never_says_the_same_is_not_listened_to_for_ever() {
        let mut template = EventTemplate::default();
        for number in 0..=MAX_MISSES {
            let event = format!("<Hello>{number}");
            template.learn(event.as_bytes(), 1..6, 5, None);
        }
        assert!(!template.is_known());
        assert_eq!(
            template.match_event(format!("<x>{MAX_MISSES}").as_bytes()),
            None
        );
        assert_eq!(
            template.match_event(format!("<x>{}", MAX_MISSES - 1).as_bytes()),
            Some(1)
        );
    }
}
