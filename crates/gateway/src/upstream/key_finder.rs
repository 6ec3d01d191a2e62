//! Finds a provider's key in what the provider answers.
//!
//! Every part of every answer is looked through. Four bytes at a time are looked up in a table that says how far
//! on the key can end at the earliest (Horspool's algorithm): an event of a stream takes a handful of steps.

/// So many bytes are looked at together. A key has at least as many.
const TOGETHER: usize = 4;

/// A key that is looked for.
pub(crate) struct KeyFinder {
    key: Box<[u8]>,
    /// For four bytes, by their hash: how far behind them the key can end at the earliest.
    skips: [u8; 256],
    /// Which bytes are in the key.
    members: [bool; 256],
}

impl KeyFinder {
    /// Looks for this key; none when it is too short to be looked for.
    pub(crate) fn new(key: &[u8]) -> Option<Self> {
        let spare = key.len().checked_sub(TOGETHER)?;
        let mut skips = [skip(spare + 1); 256];
        for (start, four) in key.array_windows::<TOGETHER>().enumerate() {
            skips[slot(four)] = skip(spare - start);
        }
        let mut members = [false; 256];
        for byte in key {
            members[usize::from(*byte)] = true;
        }
        Some(Self {
            key: key.into(),
            skips,
            members,
        })
    }

    /// Whether the key is in this.
    pub(crate) fn is_in(&self, text: &[u8]) -> bool {
        let mut end = self.key.len();
        while let Some(window) = text.get(..end) {
            let Some(last) = window.last_chunk() else {
                return false;
            };
            end += match self.skips[slot(last)] {
                0 if window.ends_with(&self.key) => return true,
                0 => 1,
                skip => usize::from(skip),
            };
        }
        false
    }

    /// Where something begins at the end of a text that may be the beginning of the key.
    pub(crate) fn beginning(&self, text: &[u8]) -> usize {
        // Events end with an empty line, which no key has.
        if !text
            .last()
            .is_some_and(|last| self.members[usize::from(*last)])
        {
            return text.len();
        }
        let from = text.len().saturating_sub(self.key.len() - 1);
        (from..text.len())
            .find(|at| self.key.starts_with(&text[*at..]))
            .unwrap_or(text.len())
    }
}

/// What is farther away than the table can say is looked for earlier.
fn skip(distance: usize) -> u8 {
    u8::try_from(distance).unwrap_or(u8::MAX)
}

fn slot(four: &[u8; TOGETHER]) -> usize {
    // The upper bits of a product depend on all of its bytes.
    (u32::from_le_bytes(*four).wrapping_mul(0x9E37_79B1) >> 24) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Any number below `most`, the same in every run.
    fn any(state: &mut u64, most: usize) -> usize {
        *state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        usize::try_from(*state >> 33).unwrap() % most
    }

    #[test]
    fn a_key_is_found_wherever_it_is_and_nothing_else_is() {
        let mut state = 7;
        let mut found = 0;
        // Few different letters, so that parts of a key are often in a text that it is not in.
        for letters in [2, 3, 26] {
            let mut text = |length: usize| -> Vec<u8> {
                let letter = |_| b'a' + u8::try_from(any(&mut state, letters)).unwrap();
                (0..length).map(letter).collect()
            };
            for round in 0..3000 {
                let key = text(4 + round % 40);
                let finder = KeyFinder::new(&key).unwrap();
                let mut haystack = text(round % 200);
                if round % 3 == 0 {
                    let at = round % (haystack.len() + 1);
                    haystack.splice(at..at, key.iter().copied());
                }
                let is_there = haystack.windows(key.len()).any(|part| part == key);
                assert_eq!(finder.is_in(&haystack), is_there, "{key:?} {haystack:?}");
                found += usize::from(is_there);
                let beginning = (0..haystack.len())
                    .filter(|at| haystack.len() - at < key.len())
                    .find(|at| key.starts_with(&haystack[*at..]));
                assert_eq!(
                    finder.beginning(&haystack),
                    beginning.unwrap_or(haystack.len()),
                    "{key:?} {haystack:?}"
                );
            }
        }
        assert!(found > 3000, "{found}");
    }

    #[test]
    fn a_very_long_key_is_found_too() {
        let mut state = 9;
        let key: Vec<u8> = (0..3000)
            .map(|_| b'0' + u8::try_from(any(&mut state, 70)).unwrap())
            .collect();
        let finder = KeyFinder::new(&key).unwrap();
        for before in [0, 1, 254, 255, 256, 2999, 5000] {
            let mut text = vec![b'x'; before];
            text.extend_from_slice(&key);
            assert!(finder.is_in(&text), "{before}");
            text.pop();
            assert!(!finder.is_in(&text), "{before}");
            assert_eq!(finder.beginning(&text), before);
        }
    }

    #[test]
    fn what_is_too_short_is_not_looked_for() {
        assert!(KeyFinder::new(b"").is_none() && KeyFinder::new(b"abc").is_none());
        assert!(KeyFinder::new(b"abcd").unwrap().is_in(b"abcd"));
    }
}
