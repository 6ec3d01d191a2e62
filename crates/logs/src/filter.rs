//! Filters the lines of a query and bounds their number.

use crate::block::{Unpacked, unpack};
use crate::error::Result;
use crate::line::{Cursor, StoredLine};
use estrade_model::ReleaseId;
use estrade_store::log_blocks::LogBlock;
use std::collections::BTreeMap;

/// The most text of one response: lines may be 16 KiB long.
const MAX_BYTES: usize = 8 << 20;

/// Which lines are wanted.
#[derive(Debug, Clone)]
pub struct LineFilter {
    /// From this moment on, in nanoseconds...
    pub start: i64,
    /// ...up to this one.
    pub end: i64,
    /// Only those of this release.
    pub release: Option<ReleaseId>,
    /// Only those of this instance.
    pub instance: Option<String>,
    /// In lower case.
    search: Option<String>,
}

impl LineFilter {
    /// A filter; an empty search is none.
    pub fn new(start: i64, end: i64, release: Option<ReleaseId>, search: Option<&str>) -> Self {
        let search = search.filter(|text| !text.is_empty());
        Self {
            start,
            end,
            release,
            instance: None,
            search: search.map(str::to_lowercase),
        }
    }

    fn wants_block(&self, block: &LogBlock) -> bool {
        let is_of_release = self.release.is_none_or(|release| release == block.release);
        let instance = self.instance.as_deref();
        is_of_release && instance.is_none_or(|instance| instance == block.instance)
    }

    fn wants(&self, line: &Unpacked<'_>) -> bool {
        (self.start..=self.end).contains(&line.at)
            && self
                .search
                .as_ref()
                .is_none_or(|words| contains(line.text, words))
    }
}

/// Whether a text has these words in it, which are in lower case, in whatever case.
fn contains(text: &str, words: &str) -> bool {
    if text.is_ascii() {
        let mut windows = text.as_bytes().windows(words.len());
        return windows.any(|window| window.eq_ignore_ascii_case(words.as_bytes()));
    }
    text.to_lowercase().contains(words)
}

/// The lines of some blocks that are wanted and come after a place, block by block; and how many bytes were searched.
/// To unpack a page takes milliseconds, and to search it some more: not for a thread that serves others.
pub fn find_lines(
    blocks: &[LogBlock],
    filter: &LineFilter,
    after: Cursor,
) -> Result<(Vec<Vec<StoredLine>>, usize)> {
    let (mut found, mut searched) = (Vec::with_capacity(blocks.len()), 0);
    for block in blocks {
        let mut lines = Vec::new();
        if filter.wants_block(block) {
            searched += unpack(block, |line| {
                if line.cursor() > after && filter.wants(line) {
                    lines.push(line.keep());
                }
            })?;
        }
        found.push(lines);
    }
    Ok((found, searched))
}

/// The newest, or the oldest, so many of the lines that are added.
pub struct SelectedLines {
    lines: BTreeMap<(i64, Cursor), StoredLine>,
    bytes: usize,
    most: usize,
    newest: bool,
}

impl SelectedLines {
    /// At most so many lines, from one end.
    pub fn new(most: usize, newest: bool) -> Self {
        Self {
            lines: BTreeMap::new(),
            bytes: 0,
            most,
            newest,
        }
    }

    /// Adds a line, and drops those that are beyond the bounds then.
    pub fn add(&mut self, line: StoredLine) {
        self.bytes += line.text.len();
        self.lines.insert((line.at, line.cursor), line);
        while self.lines.len() > self.most || (self.bytes > MAX_BYTES && self.lines.len() > 1) {
            let dropped = if self.newest {
                self.lines.pop_first()
            } else {
                self.lines.pop_last()
            };
            let Some((_, dropped)) = dropped else {
                return;
            };
            self.bytes -= dropped.text.len();
            // A line that came too late because of its size must not be followed by ones behind it.
            self.most = self.most.min(self.lines.len());
        }
    }

    /// Whether lines of this block, and of those behind it, can only be beyond what is selected.
    pub fn is_done_before(&self, block: &LogBlock) -> bool {
        let is_full = self.lines.len() >= self.most;
        is_full
            && if self.newest {
                self.lines
                    .first_key_value()
                    .is_none_or(|((at, _), _)| block.last_at < *at)
            } else {
                self.lines
                    .last_key_value()
                    .is_none_or(|((at, _), _)| block.first_at > *at)
            }
    }

    /// In the order of time.
    pub fn into_lines(self) -> impl DoubleEndedIterator<Item = StoredLine> {
        self.lines.into_values()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(at: i64, text: &str) -> StoredLine {
        StoredLine {
            cursor: Cursor {
                block: 1,
                index: u32::try_from(at).unwrap(),
            },
            release: "0123456789abcdef01234567".parse().unwrap(),
            instance: "web".into(),
            at,
            stderr: false,
            text: text.to_owned(),
        }
    }

    fn selected(
        most: usize,
        newest: bool,
        lines: impl IntoIterator<Item = StoredLine>,
    ) -> Vec<i64> {
        let mut selected = SelectedLines::new(most, newest);
        lines.into_iter().for_each(|line| selected.add(line));
        selected.into_lines().map(|line| line.at).collect()
    }

    #[test]
    fn the_newest_or_the_oldest_stay() {
        let lines = || [3, 1, 4, 2].map(|at| line(at, ""));
        assert_eq!(selected(2, true, lines()), [3, 4]);
        assert_eq!(selected(2, false, lines()), [1, 2]);
        assert_eq!(selected(9, false, lines()), [1, 2, 3, 4]);
        assert_eq!(selected(0, true, lines()), [0_i64; 0]);
    }

    #[test]
    fn a_response_has_no_more_text_than_allowed_and_no_hole() {
        let large = "x".repeat(MAX_BYTES / 2);
        let lines = [
            line(3, &large),
            line(2, &large),
            line(1, &large),
            line(4, ""),
        ];
        assert_eq!(selected(9, true, lines.clone()), [3, 4]);
        let huge = "x".repeat(MAX_BYTES + 1);
        assert_eq!(selected(9, true, [line(1, &huge)]), [1], "never nothing");
        let lines = [line(5, "a"), line(4, &huge), line(3, "b")];
        assert_eq!(selected(9, true, lines), [5]);
    }

    #[test]
    fn case_does_not_matter() {
        for (text, words) in [
            ("GET /Shop 200", "get /shop"),
            (
                "GRÖSSE ÄNDERN",
                "größe".to_uppercase().to_lowercase().as_str(),
            ),
            ("x", "x"),
        ] {
            assert!(contains(text, words), "{text} {words}");
        }
        assert!(!contains("ab", "abc"));
        assert!(!contains("a b", "ab"));
        assert!(!contains("", "a"));
    }
}
