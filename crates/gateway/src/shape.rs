//! What the events of a stream have in common. Most differ from the one before in a single string, what was
//! said; who knows the rest need not read it again.

use crate::model_name::replace;
use bytes::Bytes;
use std::ops::Range;

/// Streams whose events have nothing in common are not asked again after so many.
const MOST_MISSES: u8 = 16;

/// Shorter texts, as most events have them, are looked through before a search has begun.
const WORTH_SEARCHING: usize = 24;

/// An event without what was said in it.
#[derive(Debug, Default)]
pub(crate) struct Shape {
    /// The event, with what was said left out.
    rest: Box<[u8]>,
    /// Where it was.
    gap: usize,
    /// What else is said in it, in bytes.
    said: u64,
    misses: u8,
    /// The same for the caller, if it reads another name of the model.
    rewritten: Option<Rewritten>,
}

/// An event as the caller reads it, without what was said in it.
#[derive(Debug)]
struct Rewritten {
    rest: Box<[u8]>,
    gap: usize,
}

impl Shape {
    /// How many bytes an event says, if it differs from the last one only in what is said.
    pub(crate) fn said_in(&mut self, event: &[u8]) -> Option<u64> {
        let (before, after) = self.rest.split_at_checked(self.gap)?;
        let said = event.strip_prefix(before).and_then(|rest| {
            let said = rest.strip_suffix(after)?;
            (!is_unusual(said)).then_some(said)
        });
        match said {
            Some(said) if !before.is_empty() => {
                self.misses = 0;
                Some(self.said + said.len() as u64)
            }
            _ => None,
        }
    }

    /// What the caller gets of an event that is like the last one, in three pieces; none: the event as it is.
    pub(crate) fn rewrite<'e>(&'e self, event: &'e [u8]) -> Option<[&'e [u8]; 3]> {
        let Rewritten { rest, gap } = self.rewritten.as_ref()?;
        let (before, after) = rest.split_at_checked(*gap)?;
        let end = (event.len() + self.gap).checked_sub(self.rest.len())?;
        Some([before, event.get(self.gap..end)?, after])
    }

    /// Whether the next event may be like the last one.
    pub(crate) fn is_known(&self) -> bool {
        !self.rest.is_empty() && self.misses < MOST_MISSES
    }

    /// Remembers an event in which so much is said, the string at `place` included, and in which nothing is
    /// that has to be read each time. For the caller, the part that `edit` names is replaced.
    pub(crate) fn learn(
        &mut self,
        event: &[u8],
        place: Range<usize>,
        said: u64,
        edit: Option<(Range<usize>, &[u8])>,
    ) {
        if self.misses >= MOST_MISSES {
            return;
        }
        self.misses += 1;
        let (Some(before), Some(after)) = (event.get(..place.start), event.get(place.end..)) else {
            return;
        };
        self.rest = [before, after].concat().into();
        self.gap = before.len();
        self.said = said.saturating_sub(place.len() as u64);
        self.rewritten = edit.and_then(|(span, with)| {
            let is_before = span.end <= place.start;
            if !is_before && span.start < place.end {
                return None;
            }
            let [before, after] = if is_before {
                [replace(before, span, with), Bytes::copy_from_slice(after)]
            } else {
                let span = span.start - place.end..span.end - place.end;
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
fn is_unusual(said: &[u8]) -> bool {
    if said.len() > WORTH_SEARCHING {
        return memchr::memchr3(b'"', b'\\', b'\n', said).is_some();
    }
    said.iter().any(|byte| matches!(byte, b'"' | b'\\' | b'\n'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_is_counted_without_the_rest() {
        let mut shape = Shape::default();
        assert_eq!(shape.said_in(b"data: {}"), None);
        assert!(!shape.is_known());
        // Two bytes are said elsewhere in it.
        shape.learn(b"<Hello>no", 1..6, 7, None);
        assert!(shape.is_known());
        assert_eq!(shape.said_in(b"<Hi>no"), Some(4));
        assert_eq!(shape.said_in(b"<>no"), Some(2));
        for other in [
            &b"<Hi>yes"[..],
            b"Hi>no",
            b"<a\"b>no",
            b"<a\\b>no",
            b"<a\nb>no",
            b"<no",
        ] {
            assert_eq!(shape.said_in(other), None, "{other:?}");
        }
    }

    #[test]
    fn what_is_replaced_is_replaced_in_every_event_like_the_first() {
        for (event, place, edit) in [
            (&b"<up>Hello</up>"[..], 4..9, 1..3),
            (b"<x>Hello<up></up>", 3..8, 9..11),
        ] {
            let mut shape = Shape::default();
            shape.learn(event, place.clone(), 5, Some((edit.clone(), b"model")));
            for said in [&b"Hi"[..], b"", b"something longer"] {
                let next = replace(event, place.clone(), said);
                assert_eq!(shape.said_in(&next), Some(said.len() as u64));
                let wanted = replace(&replace(event, edit.clone(), b"model"), 0..0, b"");
                let at = if edit.start < place.start { 3 } else { 0 };
                let wanted = replace(&wanted, place.start + at..place.end + at, said);
                assert_eq!(shape.rewrite(&next).unwrap().concat(), wanted);
            }
            shape.learn(event, place, 5, None);
            assert_eq!(shape.rewrite(event), None);
        }
    }

    #[test]
    fn who_never_says_the_same_is_not_listened_to_for_ever() {
        let mut shape = Shape::default();
        for number in 0..=MOST_MISSES {
            let event = format!("<Hello>{number}");
            shape.learn(event.as_bytes(), 1..6, 5, None);
        }
        assert!(!shape.is_known());
        assert_eq!(shape.said_in(format!("<x>{MOST_MISSES}").as_bytes()), None);
        assert_eq!(
            shape.said_in(format!("<x>{}", MOST_MISSES - 1).as_bytes()),
            Some(1)
        );
    }
}
