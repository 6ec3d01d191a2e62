//! What the events of a stream have in common. Most differ from the one before in a single string, what was
//! said; who knows the rest need not read it again.

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

    /// Whether the next event may be like the last one.
    pub(crate) fn is_known(&self) -> bool {
        !self.rest.is_empty() && self.misses < MOST_MISSES
    }

    /// Remembers an event in which so much is said, the string at `place` included, and in which nothing is
    /// that has to be read each time.
    pub(crate) fn learn(&mut self, event: &[u8], place: std::ops::Range<usize>, said: u64) {
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
        shape.learn(b"<Hello>no", 1..6, 7);
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
    fn who_never_says_the_same_is_not_listened_to_for_ever() {
        let mut shape = Shape::default();
        for number in 0..=MOST_MISSES {
            let event = format!("<Hello>{number}");
            shape.learn(event.as_bytes(), 1..6, 5);
        }
        assert!(!shape.is_known());
        assert_eq!(shape.said_in(format!("<x>{MOST_MISSES}").as_bytes()), None);
        assert_eq!(
            shape.said_in(format!("<x>{}", MOST_MISSES - 1).as_bytes()),
            Some(1)
        );
    }
}
