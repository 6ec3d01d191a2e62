//! Finds a secret in text that comes in pieces: a provider's key in its responses, the variables of a project in the
//! log of its build. What is done about it differs (the gateway ends the response, the build log masks the secret),
//! and so does what holds back the tail of a piece; the search is this one.
//!
//! Every piece is searched, and a hostile sender chooses what is in it. So both searches take time that is linear in
//! what came, also for a secret that repeats itself: the secret as a whole is found by `memmem` (Two-Way with a
//! vectorized prefilter), its beginning at the end of a piece by the failure function of Knuth, Morris and Pratt.

use memchr::memmem::Finder;
use std::fmt;

/// What is shorter is no secret: it would be found everywhere.
pub const MIN_SECRET_BYTES: usize = 4;

/// Searches for one secret.
pub struct SecretFinder {
    finder: Finder<'static>,
    /// For each beginning of the secret: how long the longest other beginning is that it ends with.
    failures: Box<[usize]>,
    /// Which bytes are in the secret.
    members: [bool; 256],
}

impl SecretFinder {
    /// None when it is too short to be searched for.
    pub fn new(secret: &[u8]) -> Option<Self> {
        if secret.len() < MIN_SECRET_BYTES {
            return None;
        }
        let mut members = [false; 256];
        for byte in secret {
            members[usize::from(*byte)] = true;
        }
        Some(Self {
            finder: Finder::new(secret).into_owned(),
            failures: failures(secret),
            members,
        })
    }

    /// The secret itself.
    pub fn secret(&self) -> &[u8] {
        self.finder.needle()
    }

    /// Whether the secret is in a text.
    #[inline]
    pub fn is_in(&self, text: &[u8]) -> bool {
        self.find(text).is_some()
    }

    /// Where the secret begins in a text, for the first time.
    #[inline]
    pub fn find(&self, text: &[u8]) -> Option<usize> {
        self.finder.find(text)
    }

    /// Where something begins at the end of a text that may be the beginning of the secret; the length of the text if
    /// nothing does.
    #[inline]
    pub fn partial_match_at(&self, text: &[u8]) -> usize {
        // Most pieces end with a line break, which few secrets have.
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

impl fmt::Debug for SecretFinder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SecretFinder").finish_non_exhaustive()
    }
}

/// How much of the key's beginning a text ends with, if it did so with `matched` bytes before this one.
fn step(key: &[u8], failures: &[usize], mut matched: usize, byte: u8) -> usize {
    loop {
        #[cfg(test)]
        tests::STEPS.set(tests::STEPS.get() + 1);
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
    use std::cell::Cell;

    thread_local! {
        /// How often [`step`] has compared a byte.
        pub(super) static STEPS: Cell<usize> = const { Cell::new(0) };
    }

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
                let finder = SecretFinder::new(&key).unwrap();
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
        let finder = SecretFinder::new(&key).unwrap();
        for before in [0, 1, 254, 255, 256, 2999, 5000] {
            let mut text = vec![b'x'; before];
            text.extend_from_slice(&key);
            assert!(finder.is_in(&text), "{before}");
            text.pop();
            assert!(!finder.is_in(&text), "{before}");
            assert_eq!(finder.partial_match_at(&text), before);
        }
    }

    /// A key that repeats itself, in a response that nearly has it everywhere: both searches were quadratic. Only the
    /// steps of ours can be counted; the other one is `memmem`, which promises to be linear.
    #[test]
    fn a_key_that_repeats_itself_costs_no_more_than_others() {
        let half = "a".repeat(1000);
        let key = format!("{half}b{half}");
        STEPS.set(0);
        let finder = SecretFinder::new(key.as_bytes()).unwrap();
        assert!(STEPS.get() <= 2 * key.len());
        let text = "a".repeat(4 << 20).into_bytes();
        assert!(!finder.is_in(&text));
        for part in text.chunks(4096) {
            STEPS.set(0);
            assert_eq!(part.len() - finder.partial_match_at(part), 1000);
            // Each byte is compared once, and once more for each that was matched in vain before.
            assert!(STEPS.get() <= 2 * key.len(), "{}", STEPS.get());
        }
        let other = SecretFinder::new(format!("{half}{half}").as_bytes()).unwrap();
        let nearly = format!("{}b", "a".repeat(1999)).repeat(2000);
        assert!(!other.is_in(nearly.as_bytes()));
    }

    #[test]
    fn what_is_too_short_is_not_looked_for() {
        assert!(SecretFinder::new(b"").is_none() && SecretFinder::new(b"abc").is_none());
        assert!(SecretFinder::new(b"abcd").unwrap().is_in(b"abcd"));
    }
}
