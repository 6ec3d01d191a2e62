//! Masks secrets in a log, also where they come in pieces.
//!
//! There may be many, one may begin with another, and the text goes on after each. The gateway has one key per provider
//! and ends the response where it finds it (`KeyRedactor`); both search with [`SecretFinder`].

use estrade_model::secret::Secret;
use estrade_model::secret_finder::{MIN_SECRET_BYTES, SecretFinder};
use std::cmp::Reverse;
use std::sync::Arc;

/// What is written in a secret's place.
const MASK: &[u8] = b"***";
/// Lines of a secret that has several are secrets themselves, if they are long enough to be.
const MIN_SECRET_LINE: usize = 8;

/// A filter for text on its way. What may be the beginning of a secret is held back until more is
/// known.
#[derive(Default)]
pub(crate) struct Mask {
    secrets: Arc<[SecretFinder]>,
    held: Vec<u8>,
}

impl Mask {
    pub(crate) fn new(secrets: &[Secret]) -> Self {
        let whole = secrets.iter().map(Secret::expose);
        let lines = secrets.iter().flat_map(|secret| secret.expose().lines());
        let lines = lines
            .map(str::trim)
            .filter(|line| line.len() >= MIN_SECRET_LINE);
        let mut texts: Vec<&str> = whole.chain(lines).collect();
        texts.sort_unstable();
        texts.dedup();
        let finders = texts
            .into_iter()
            .filter_map(|text| SecretFinder::new(text.as_bytes()));
        Self {
            secrets: finders.collect(),
            held: Vec::new(),
        }
    }

    /// What may pass now.
    pub(crate) fn pass(&mut self, part: &[u8]) -> Vec<u8> {
        if self.secrets.is_empty() {
            return part.to_vec();
        }
        let mut text = std::mem::take(&mut self.held);
        text.extend_from_slice(part);
        let mut passed = Vec::with_capacity(text.len());
        // Both are found again only where a mask has gone past them, so that the search stays linear in the text.
        let mut held = self.partial_match_at(&text, 0);
        let mut found: Vec<_> = self.find_each(&text).collect();
        let mut at = 0;
        while let Some((start, length)) = first_of(&found)
            // What is held from the same place on is the beginning of a longer secret.
            && start < held
        {
            passed.extend_from_slice(&text[at..start]);
            passed.extend_from_slice(MASK);
            at = start + length;
            if held < at {
                held = self.partial_match_at(&text, at);
            }
            for (secret, found) in self.secrets.iter().zip(&mut found) {
                if found.is_some_and(|(start, _)| start < at) {
                    *found = find(secret, &text, at);
                }
            }
        }
        passed.extend_from_slice(&text[at..held]);
        self.held = text.split_off(held);
        passed
    }

    /// Nothing more comes: what is held back was no whole secret. Yet a part of one is not shown either.
    pub(crate) fn rest(&mut self) -> Vec<u8> {
        let held = std::mem::take(&mut self.held);
        match held.len() {
            0..MIN_SECRET_BYTES => held,
            _ => MASK.to_vec(),
        }
    }

    /// A text that comes whole.
    pub(crate) fn whole(&self, text: &str) -> String {
        let mut mask = Self {
            secrets: Arc::clone(&self.secrets),
            held: Vec::new(),
        };
        let mut passed = mask.pass(text.as_bytes());
        passed.extend(mask.rest());
        String::from_utf8_lossy(&passed).into_owned()
    }

    /// The first match of each secret.
    fn find_each(&self, text: &[u8]) -> impl Iterator<Item = Option<Match>> {
        self.secrets.iter().map(|secret| find(secret, text, 0))
    }

    /// Where the end of a text begins, not before `at`, that may be the beginning of a secret.
    fn partial_match_at(&self, text: &[u8], at: usize) -> usize {
        let rest = &text[at..];
        let starts = self.secrets.iter().map(|it| it.partial_match_at(rest));
        at + starts.min().unwrap_or(rest.len())
    }
}

/// Where a secret begins, and its length.
type Match = (usize, usize);

fn find(secret: &SecretFinder, text: &[u8], at: usize) -> Option<Match> {
    Some((at + secret.find(&text[at..])?, secret.secret().len()))
}

/// The first of several matches, and the longest of those that begin there.
fn first_of(found: &[Option<Match>]) -> Option<Match> {
    let found = found.iter().flatten().copied();
    found.min_by_key(|&(start, length)| (start, Reverse(length)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mask(secrets: &[&str], text: &str, size: usize) -> String {
        let secrets: Vec<_> = secrets.iter().map(|text| Secret((*text).into())).collect();
        let (mut mask, mut all) = (Mask::new(&secrets), Vec::new());
        for part in text.as_bytes().chunks(size) {
            all.extend(mask.pass(part));
        }
        all.extend(mask.rest());
        String::from_utf8(all).unwrap()
    }

    #[test]
    fn secrets_are_masked_however_they_are_cut() {
        let secrets = ["hunter22", "hunter22-long", "ab\nlonger-line\ncd"];
        for size in 1..40 {
            let text = "a hunter22 b hunter22-lo c hunter22-long d hunt\ne longer-line f ab\nlonger-line\ncd";
            assert_eq!(
                mask(&secrets, text, size),
                "a *** b ***-lo c *** d hunt\ne *** f ***",
                "{size}"
            );
        }
    }

    #[test]
    fn what_is_too_short_is_no_secret_and_no_secret_changes_nothing() {
        assert_eq!(mask(&["on", ""], "on and on", 3), "on and on");
        assert_eq!(mask(&[], "text", 3), "text");
    }

    #[test]
    fn a_secret_that_breaks_off_at_the_end_is_not_shown() {
        assert_eq!(mask(&["hunter22"], "x hunter2", 4), "x ***");
        assert_eq!(mask(&["hunter22"], "x hu", 4), "x hu");
    }

    /// Byte by byte: the longest secret that begins at a place, or may.
    fn mask_simply(secrets: &[&str], text: &str) -> String {
        let mut secrets = secrets.to_vec();
        secrets.sort_by_key(|secret| Reverse(secret.len()));
        let (mut rest, mut passed) = (text, String::new());
        while let Some(first) = rest.chars().next() {
            if secrets
                .iter()
                .any(|it| it.len() > rest.len() && it.starts_with(rest))
            {
                passed += if rest.len() < MIN_SECRET_BYTES {
                    rest
                } else {
                    "***"
                };
                break;
            }
            if let Some(secret) = secrets.iter().find(|it| rest.starts_with(**it)) {
                passed += "***";
                rest = &rest[secret.len()..];
            } else {
                passed.push(first);
                rest = &rest[1..];
            }
        }
        passed
    }

    #[test]
    fn secrets_that_overlap_are_masked_from_the_first_on() {
        let secrets = ["abab", "ababab", "babb", "aabba", "bbbbbbb"];
        // Every text of eleven letters, in pieces.
        for number in 0..1_u32 << 11 {
            let letter = |bit: u32| if (number >> bit) & 1 == 0 { 'a' } else { 'b' };
            let text: String = (0..11).map(letter).collect();
            let expected = mask_simply(&secrets, &text);
            assert_eq!(mask(&secrets, &text, 11), expected, "{text}");
            let size = 1 + usize::try_from(number % 5).unwrap();
            assert_eq!(mask(&secrets, &text, size), expected, "{text} {size}");
        }
    }
}
