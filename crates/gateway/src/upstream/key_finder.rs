//! Finds a provider's key in what the provider answers.
//!
//! Every part of every answer is looked through, and a hostile provider chooses what is in it. So both searches
//! take a time that is linear in what came, also for a key that repeats itself: the key as a whole is found by
//! `memmem` (Two-Way with a vectorized prefilter), its beginning at the end of a part by the failure function of
//! Knuth, Morris and Pratt.

use memchr::memmem::Finder;

/// What is shorter is not looked for.
const MIN_KEY: usize = 4;

/// A key that is looked for.
pub(crate) struct KeyFinder {
    finder: Finder<'static>,
    /// For each beginning of the key: how long the longest other beginning is that it ends with.
    failures: Box<[usize]>,
    /// Which bytes are in the key.
    members: [bool; 256],
}

impl KeyFinder {
    /// Looks for this key; none when it is too short to be looked for.
    pub(crate) fn new(key: &[u8]) -> Option<Self> {
        if key.len() < MIN_KEY {
            return None;
        }
        let mut members = [false; 256];
        for byte in key {
            members[usize::from(*byte)] = true;
        }
        Some(Self {
            finder: Finder::new(key).into_owned(),
            failures: failures(key),
            members,
        })
    }

    /// Whether the key is in this.
    pub(crate) fn is_in(&self, text: &[u8]) -> bool {
        self.finder.find(text).is_some()
    }

    /// Where something begins at the end of a text that may be the beginning of the key.
    pub(crate) fn partial_match_at(&self, text: &[u8]) -> usize {
        // EventStream end with an empty line, which no key has.
        if !text
            .last()
            .is_some_and(|last| self.members[usize::from(*last)])
        {
            return text.len();
        }
        let key = self.finder.needle();
        let from = text.len().saturating_sub(key.len() - 1);
        let matched = text[from..]
            .iter()
            .fold(0, |matched, byte| step(key, &self.failures, matched, *byte));
        text.len() - matched
    }
}

/// How much of the key's beginning a text ends with, if it did so with `matched` bytes before this one.
fn step(key: &[u8], failures: &[usize], mut matched: usize, byte: u8) -> usize {
    loop {
        match key.get(matched) {
            Some(next) if *next == byte => return matched + 1,
            _ if matched == 0 => return 0,
            _ => matched = failures[matched - 1],
        }
    }
}

fn failures(key: &[u8]) -> Box<[usize]> {
    let mut failures = Vec::with_capacity(key.len());
    failures.push(0);
    for byte in &key[1..] {
        let before = failures.last().copied().unwrap_or(0);
        let matched = step(key, &failures, before, *byte);
        failures.push(matched);
    }
    failures.into()
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
                    finder.partial_match_at(&haystack),
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
            assert_eq!(finder.partial_match_at(&text), before);
        }
    }

    /// A key that repeats itself, in an answer that nearly has it everywhere: both searches were quadratic.
    #[test]
    fn a_key_that_repeats_itself_costs_no_more_than_others() {
        let half = "a".repeat(1000);
        let key = format!("{half}b{half}");
        let finder = KeyFinder::new(key.as_bytes()).unwrap();
        let text = "a".repeat(4 << 20).into_bytes();
        let started = std::time::Instant::now();
        assert!(!finder.is_in(&text));
        for part in text.chunks(4096) {
            assert_eq!(part.len() - finder.partial_match_at(part), 1000);
        }
        let other = KeyFinder::new(format!("{half}{half}").as_bytes()).unwrap();
        let nearly = format!("{}b", "a".repeat(1999)).repeat(2000);
        assert!(!other.is_in(nearly.as_bytes()));
        // Eight million steps; it was as many times a thousand.
        let took = started.elapsed();
        assert!(took < std::time::Duration::from_secs(3), "{took:?}");
    }

    #[test]
    fn what_is_too_short_is_not_looked_for() {
        assert!(KeyFinder::new(b"").is_none() && KeyFinder::new(b"abc").is_none());
        assert!(KeyFinder::new(b"abcd").unwrap().is_in(b"abcd"));
    }
}
