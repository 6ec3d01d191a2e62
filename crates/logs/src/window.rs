//! Which lines of an instance are stored already.
//!
//! Timestamps of lines are not unique, and the engine records those of stdout and stderr slightly out of
//! order. So a timestamp does not tell which lines are stored: for the last ones, fingerprints of the stored
//! lines are kept.

use crate::block::unpack;
use crate::error::Result;
use estrade_runtime::LogLine;
use estrade_store::log_blocks::LogBlock;
use std::collections::{HashMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};

/// How far lines may be from the order of their moments, in nanoseconds.
const MARGIN: i64 = 250_000_000;

/// A line, in short.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct LineFingerprint {
    at: i64,
    text: u64,
}

impl LineFingerprint {
    /// The fingerprint of a line.
    pub fn of(line: &LogLine) -> Self {
        Self::new(line.at, line.stderr, &line.text)
    }

    fn new(at: i64, stderr: bool, text: &str) -> Self {
        let mut hasher = DefaultHasher::new();
        (stderr, text).hash(&mut hasher);
        Self {
            at,
            text: hasher.finish(),
        }
    }
}

/// The end of what is stored of an instance.
#[derive(Debug, Default)]
pub struct Window {
    /// All lines from before this moment are stored, or too old to be.
    from: i64,
    /// Of the others, those that are stored, and how often.
    known: HashMap<LineFingerprint, u32>,
    /// Whether anything is stored.
    begun: bool,
}

impl Window {
    /// Of an instance of which nothing is stored; lines from before this moment are too old to be.
    pub fn starting_at(from: i64) -> Self {
        Self {
            from,
            ..Self::default()
        }
    }

    /// Where the window begins if the last line that is stored is of this moment.
    pub fn start_before(last: i64) -> i64 {
        last.saturating_sub(MARGIN)
    }

    /// Of an instance with these blocks, which are all that have lines from this moment on.
    pub fn of_blocks(from: i64, blocks: &[LogBlock]) -> Result<Self> {
        let mut window = Self {
            from,
            known: HashMap::new(),
            begun: true,
        };
        for block in blocks {
            unpack(block, |line| {
                if line.at >= window.from {
                    let fingerprint = LineFingerprint::new(line.at, line.stderr, line.text);
                    *window.known.entry(fingerprint).or_default() += 1;
                }
            })?;
        }
        Ok(window)
    }

    /// Whether anything is stored.
    pub fn has_begun(&self) -> bool {
        self.begun
    }

    /// Whether a line of this timestamp is stored or too old to be, whatever its text is.
    pub fn is_past(&self, at: i64) -> bool {
        at < self.from
    }

    /// Whether a line of this fingerprint is stored.
    pub fn knows(&self, fingerprint: LineFingerprint) -> bool {
        self.known.contains_key(&fingerprint)
    }

    /// Whether this line is stored. A line that was stored once is so only the first time.
    pub fn take(&mut self, fingerprint: LineFingerprint) -> bool {
        match self.known.get_mut(&fingerprint) {
            Some(count) if *count > 0 => {
                *count -= 1;
                true
            }
            _ => false,
        }
    }
}

/// The last lines of what was read: the next window.
#[derive(Debug, Default)]
pub struct TailWindow {
    fingerprints: VecDeque<LineFingerprint>,
    newest: Option<i64>,
}

impl TailWindow {
    /// Adds a line that was read.
    pub fn add(&mut self, fingerprint: LineFingerprint) {
        let newest = self
            .newest
            .map_or(fingerprint.at, |newest| newest.max(fingerprint.at));
        self.newest = Some(newest);
        let is_old = |fingerprint: &LineFingerprint| fingerprint.at < newest.saturating_sub(MARGIN);
        if !is_old(&fingerprint) {
            self.fingerprints.push_back(fingerprint);
        }
        while self
            .fingerprints
            .pop_front_if(|first| is_old(first))
            .is_some()
        {}
    }

    /// What is stored once all of them are; `before` is what was.
    pub fn into_window(self, before: Window) -> Window {
        let Some(newest) = self.newest else {
            return before;
        };
        let from = newest.saturating_sub(MARGIN).max(before.from);
        let mut known = HashMap::new();
        for fingerprint in self
            .fingerprints
            .into_iter()
            .filter(|fingerprint| fingerprint.at >= from)
        {
            *known.entry(fingerprint).or_default() += 1;
        }
        Window {
            from,
            known,
            begun: true,
        }
    }
}

/// A moment in nanoseconds since the epoch, as lines have it.
pub fn nanos(moment: estrade_model::Timestamp) -> i64 {
    moment.millis().saturating_mul(1_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fingerprint(at: i64, text: &str) -> LineFingerprint {
        LineFingerprint::new(at, false, text)
    }

    #[test]
    fn equal_lines_of_one_moment_are_counted() {
        let mut tail = TailWindow::default();
        for _ in 0..2 {
            tail.add(fingerprint(5, "x"));
        }
        let mut window = tail.into_window(Window::default());
        let taken: Vec<_> = (0..3).map(|_| window.take(fingerprint(5, "x"))).collect();
        assert_eq!(taken, [true, true, false]);
        assert!(!window.take(LineFingerprint::new(5, true, "x")));
    }

    #[test]
    fn only_the_end_is_remembered_and_never_less_than_the_margin() {
        let mut tail = TailWindow::default();
        for at in [1, 3, 2, MARGIN, MARGIN + 2, MARGIN + 1] {
            tail.add(fingerprint(at, "x"));
        }
        let window = tail.into_window(Window::default());
        assert!(window.is_past(1) && !window.is_past(2));
        assert!(window.knows(fingerprint(2, "x")) && window.knows(fingerprint(3, "x")));
        assert!(!window.knows(fingerprint(1, "x")));
        let window = TailWindow::default().into_window(window);
        assert!(window.knows(fingerprint(2, "x")), "nothing was read");
    }
}
