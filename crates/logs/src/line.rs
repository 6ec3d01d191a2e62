//! One line, and its place among all others of its project.

use estrade_model::{Invalid, ReleaseId};
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// A line as it is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredLine {
    /// Its place in the order in which lines were stored.
    pub cursor: Cursor,
    pub release: ReleaseId,
    /// Of which instance, as the engine calls it.
    pub instance: Arc<str>,
    /// When it was written, in nanoseconds since the epoch.
    pub at: i64,
    /// Whether it was written to stderr.
    pub stderr: bool,
    /// The text, without its end.
    pub text: String,
}

impl StoredLine {
    /// The stream it was written to.
    pub fn stream(&self) -> &'static str {
        if self.stderr { "stderr" } else { "stdout" }
    }
}

/// A position in the order in which the lines of a project were stored. Lines of different instances are not
/// stored in the order of their timestamps, so a follower resumes after a cursor and not after a timestamp.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cursor {
    /// The number of its block.
    pub block: i64,
    /// The how-manieth of it, from 0.
    pub index: u32,
}

impl Cursor {
    /// Before every line.
    pub const START: Self = Self {
        block: i64::MIN,
        index: u32::MAX,
    };

    /// Behind the last line of a block.
    pub fn end_of(block: i64) -> Self {
        Self {
            block,
            index: u32::MAX,
        }
    }

    /// The place right before this one.
    #[must_use]
    pub fn previous(self) -> Self {
        match self.index.checked_sub(1) {
            Some(index) => Self { index, ..self },
            None => Self::end_of(self.block.saturating_sub(1)),
        }
    }
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.block, self.index)
    }
}

impl FromStr for Cursor {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        let parse = || {
            let (block, index) = text.split_once('-')?;
            let sane = digits(block) && digits(index);
            sane.then_some(Self {
                block: block.parse().ok()?,
                index: index.parse().ok()?,
            })
        };
        parse().ok_or_else(|| "is not the id of a line".into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_reads_back() {
        let cursor = Cursor {
            block: 1_794_704_523_004,
            index: 17,
        };
        assert_eq!(cursor.to_string().parse(), Ok(cursor));
        for bad in [
            "",
            "-",
            "1",
            "1-",
            "-1-2",
            "1-+2",
            "1-2-3",
            "1-99999999999",
            "x-1",
        ] {
            assert!(bad.parse::<Cursor>().is_err(), "{bad}");
        }
    }

    #[test]
    fn before_the_first_line_of_a_block_is_the_end_of_the_one_below() {
        let first = Cursor { block: 5, index: 0 };
        assert_eq!(first.previous(), Cursor::end_of(4));
        let second = Cursor { block: 5, index: 1 };
        assert_eq!(second.previous(), first);
        assert!(Cursor::START < first.previous() && first.previous() < first);
    }
}
