//! Keeps secrets out of a log, also where they come in pieces.

use estrade_model::secret::Secret;

/// What is written in a secret's place.
const MASK: &[u8] = b"***";
/// What is shorter is no secret, and would make holes everywhere.
const MIN_SECRET: usize = 4;
/// Lines of a secret that has several are secrets themselves, if they are long enough to be.
const MIN_SECRET_LINE: usize = 8;

/// Looks through text on its way. What may be the beginning of a secret is held back until more is
/// known.
#[derive(Default)]
pub(crate) struct Mask {
    /// Longest first.
    secrets: Vec<Box<[u8]>>,
    held: Vec<u8>,
}

impl Mask {
    pub(crate) fn new(secrets: &[Secret]) -> Self {
        let whole = secrets.iter().map(Secret::expose);
        let whole = whole.filter(|secret| secret.len() >= MIN_SECRET);
        let lines = secrets.iter().flat_map(|secret| secret.expose().lines());
        let lines = lines
            .map(str::trim)
            .filter(|line| line.len() >= MIN_SECRET_LINE);
        let mut secrets: Vec<Box<[u8]>> = whole
            .chain(lines)
            .map(|text| text.as_bytes().into())
            .collect();
        secrets.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
        secrets.dedup();
        Self {
            secrets,
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
        let (mut passed, mut at) = (Vec::with_capacity(text.len()), 0);
        while at < text.len() {
            match self.look(&text[at..]) {
                Look::Nothing => {
                    passed.push(text[at]);
                    at += 1;
                }
                Look::Secret(length) => {
                    passed.extend_from_slice(MASK);
                    at += length;
                }
                Look::Maybe => {
                    self.held = text.split_off(at);
                    break;
                }
            }
        }
        passed
    }

    /// Nothing more comes: what is held back was no whole secret. Yet a part of one is not shown either.
    pub(crate) fn rest(&mut self) -> Vec<u8> {
        let held = std::mem::take(&mut self.held);
        match held.len() {
            0..MIN_SECRET => held,
            _ => MASK.to_vec(),
        }
    }

    /// A text that comes whole.
    pub(crate) fn whole(&self, text: &str) -> String {
        let mut mask = Self {
            secrets: self.secrets.clone(),
            held: Vec::new(),
        };
        let mut passed = mask.pass(text.as_bytes());
        passed.extend(mask.rest());
        String::from_utf8_lossy(&passed).into_owned()
    }

    /// What begins here.
    fn look(&self, text: &[u8]) -> Look {
        for secret in &self.secrets {
            if text.starts_with(secret) {
                return Look::Secret(secret.len());
            }
            if secret.starts_with(text) {
                return Look::Maybe;
            }
        }
        Look::Nothing
    }
}

enum Look {
    Nothing,
    Secret(usize),
    Maybe,
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
}
