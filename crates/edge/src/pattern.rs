//! Path patterns of `_redirects` and `_headers`: `/blog/:year/*`.

use crate::request_path::UNSAFE_IN_PATH;
use percent_encoding::{AsciiSet, utf8_percent_encode};

/// Longest target that captures may make: one line of rules can name a long capture very often.
const LONGEST_TARGET: usize = 8 * 1024;

/// Most segments of a pattern: real ones have a few, and each takes memory for as long as it serves.
const MOST_SEGMENTS: usize = 32;

/// What a captured text may not contain in a query, where more has a meaning.
const UNSAFE_IN_QUERY: &AsciiSet = &UNSAFE_IN_PATH.add(b'&').add(b'+').add(b'=');

/// A pattern that paths are held against.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pattern(Vec<Segment>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Segment {
    Literal(String),
    Placeholder(String),
    /// The rest of the path, also none; only at the end.
    Splat,
}

/// What the variable parts of a pattern stood for.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Captures<'p>(Vec<(&'p str, &'p str)>);

impl Pattern {
    /// Reads a pattern; `None` when it does not begin with `/`, has a `*` inside or is endless.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let rest = text.strip_prefix('/')?;
        let mut segments = Vec::new();
        for segment in rest.split('/').filter(|segment| !segment.is_empty()) {
            if segments.last() == Some(&Segment::Splat) || segments.len() == MOST_SEGMENTS {
                return None;
            }
            segments.push(match segment.strip_prefix(':') {
                Some(name) if !name.is_empty() => Segment::Placeholder(name.to_owned()),
                _ if segment == "*" => Segment::Splat,
                _ if segment.contains('*') => return None,
                _ => Segment::Literal(segment.to_owned()),
            });
        }
        Some(Self(segments))
    }

    /// How much memory it takes, roughly.
    pub(crate) fn bytes(&self) -> usize {
        let text = |segment: &Segment| match segment {
            Segment::Literal(text) | Segment::Placeholder(text) => text.len() + 16,
            Segment::Splat => 0,
        };
        let segments = self.0.iter();
        segments.map(|it| text(it) + size_of::<Segment>()).sum()
    }

    /// What the variable parts stand for, when the path fits. A trailing slash does not matter.
    pub(crate) fn captures<'p>(&'p self, path: &'p str) -> Option<Captures<'p>> {
        let mut rest = path.trim_start_matches('/');
        let mut found = Captures::default();
        for segment in &self.0 {
            if *segment == Segment::Splat {
                found.0.push(("splat", rest));
                return Some(found);
            }
            let (head, tail) = rest.split_once('/').unwrap_or((rest, ""));
            match segment {
                Segment::Literal(text) if text == head => {}
                Segment::Placeholder(name) if !head.is_empty() => found.0.push((name, head)),
                _ => return None,
            }
            rest = tail;
        }
        rest.is_empty().then_some(found)
    }
}

impl Captures<'_> {
    /// Puts what was captured into `:name` and `:splat` of a target, encoded as an address carries
    /// it. None when that makes it too long.
    pub(crate) fn fill(&self, target: &str) -> Option<String> {
        let mut filled = String::with_capacity(target.len());
        let mut rest = target;
        while let Some(colon) = rest.find(':') {
            let (before, after) = rest.split_at(colon);
            filled.push_str(before);
            let name_end = after[1..]
                .find(|c: char| !(c.is_ascii_alphanumeric() || c == '_'))
                .map_or(after.len(), |end| end + 1);
            let name = &after[1..name_end];
            match self
                .0
                .iter()
                .find(|(known, _)| *known == name && !name.is_empty())
            {
                Some((_, value)) => {
                    let is_query = filled.contains('?');
                    let kept = if is_query {
                        UNSAFE_IN_QUERY
                    } else {
                        UNSAFE_IN_PATH
                    };
                    filled.extend(utf8_percent_encode(value, kept));
                }
                None => filled.push_str(&after[..name_end]),
            }
            if filled.len() > LONGEST_TARGET {
                return None;
            }
            rest = &after[name_end..];
        }
        filled.push_str(rest);
        Some(filled).filter(|filled| filled.len() <= LONGEST_TARGET)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(pattern: &str, path: &str, target: &str) -> Option<String> {
        let pattern = Pattern::parse(pattern)?;
        let captures = pattern.captures(path)?;
        captures.fill(target)
    }

    #[test]
    fn a_capture_means_what_it_meant_in_the_request() {
        for (path, target, result) in [
            ("/100%", "/to/:splat", "/to/100%25"),
            ("/a?b#c", "/to/:splat", "/to/a%3Fb%23c"),
            ("/a&b=c+d", "/to?q=:splat&r=1", "/to?q=a%26b%3Dc%2Bd&r=1"),
            ("/é b", "/:splat", "/%C3%A9%20b"),
        ] {
            assert_eq!(filled("/*", path, target).as_deref(), Some(result));
        }
    }

    #[test]
    fn a_rule_cannot_make_a_huge_target_of_a_small_request() {
        let path = format!("/{}", "a".repeat(8000));
        assert!(filled("/*", &path, "/:splat").is_some());
        assert_eq!(filled("/*", &path, "/:splat/:splat"), None);
        assert_eq!(filled("/*", &path, &":splat".repeat(100_000)), None);
    }

    #[test]
    fn patterns_capture_and_targets_are_filled() {
        for (pattern, path, target, result) in [
            ("/old", "/old", "/new", Some("/new")),
            ("/old", "/old/", "/new", Some("/new")),
            ("/old", "/older", "/new", None),
            (
                "/news/*",
                "/news/2024/a",
                "/blog/:splat",
                Some("/blog/2024/a"),
            ),
            ("/news/*", "/news", "/blog/:splat", Some("/blog/")),
            ("/*", "/anything/at/all", "/index.html", Some("/index.html")),
            (
                "/:year/:name",
                "/2024/x",
                "/p?y=:year&n=:name",
                Some("/p?y=2024&n=x"),
            ),
            ("/:year/:name", "/2024", "/p", None),
            (
                "/a",
                "/a",
                "https://example.com:8080/:b",
                Some("https://example.com:8080/:b"),
            ),
        ] {
            assert_eq!(
                filled(pattern, path, target).as_deref(),
                result,
                "{pattern} {path}"
            );
        }
        let endless = "/a".repeat(MOST_SEGMENTS + 1);
        assert!(Pattern::parse(&endless[2..]).is_some());
        for bad in ["", "a", "/a*b", "/*/b", &endless] {
            assert_eq!(Pattern::parse(bad), None, "{bad}");
        }
    }
}
