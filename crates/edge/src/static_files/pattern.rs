//! Path patterns of `_redirects` and `_headers`: `/blog/:year/*`.

use crate::static_files::request_path::UNSAFE_IN_PATH;
use estrade_model::site_rules::MAX_SEGMENTS;
use percent_encoding::{AsciiSet, utf8_percent_encode};

/// Longest target that captures may make: one line of rules can name a long capture very often.
const MAX_TARGET_BYTES: usize = 8 * 1024;

/// What a captured text may not contain in a query, where more has a meaning.
const UNSAFE_IN_QUERY: &AsciiSet = &UNSAFE_IN_PATH.add(b'&').add(b'+').add(b'=');

/// A pattern that paths are held against.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pattern(Vec<Segment>);

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Segment {
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
            if segments.last() == Some(&Segment::Splat) || segments.len() == MAX_SEGMENTS {
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

    pub(crate) fn segments(&self) -> &[Segment] {
        &self.0
    }

    /// The one path that it fits, without slashes around it; none when it has variable parts.
    pub(crate) fn literal_path(&self) -> Option<String> {
        let literal = |segment: &Segment| match segment {
            Segment::Literal(text) => Some(text.clone()),
            _ => None,
        };
        let segments: Option<Vec<_>> = self.0.iter().map(literal).collect();
        Some(segments?.join("/"))
    }

    /// Which of its captures has this name.
    fn capture_position(&self, name: &str) -> Option<usize> {
        let captures = self.0.iter().filter_map(|segment| match segment {
            Segment::Placeholder(name) => Some(name.as_str()),
            Segment::Splat => Some("splat"),
            Segment::Literal(_) => None,
        });
        let mut captures = captures.enumerate();
        let (position, _) = captures.find(|(_, known)| *known == name)?;
        Some(position)
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

/// What a rule leads to, split into texts and the captures between them when the rule is read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Target(Vec<Piece>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    Text(String),
    /// The capture at this position, of those of the pattern.
    Capture {
        position: usize,
        in_query: bool,
    },
}

impl Target {
    /// Reads `/to/:name/:splat`. A name that the pattern does not have is text.
    pub(crate) fn parse(text: &str, pattern: &Pattern) -> Self {
        let mut pieces = Vec::new();
        let (mut plain, mut rest, mut in_query) = (String::new(), text, false);
        while let Some(colon) = rest.find(':') {
            let (before, after) = rest.split_at(colon);
            plain.push_str(before);
            let name_end = after[1..]
                .find(|c: char| !(c.is_ascii_alphanumeric() || c == '_'))
                .map_or(after.len(), |end| end + 1);
            match pattern.capture_position(&after[1..name_end]) {
                Some(position) => {
                    in_query |= plain.contains('?');
                    if !plain.is_empty() {
                        pieces.push(Piece::Text(std::mem::take(&mut plain)));
                    }
                    pieces.push(Piece::Capture { position, in_query });
                }
                None => plain.push_str(&after[..name_end]),
            }
            rest = &after[name_end..];
        }
        plain.push_str(rest);
        pieces.push(Piece::Text(plain));
        Self(pieces)
    }

    /// How much memory it takes, roughly.
    pub(crate) fn bytes(&self) -> usize {
        let text = |piece: &Piece| match piece {
            Piece::Text(text) => text.len() + 16,
            Piece::Capture { .. } => 0,
        };
        let pieces = self.0.iter();
        pieces.map(|it| text(it) + size_of::<Piece>()).sum()
    }

    /// The target with what was captured, encoded as an address carries it. None when that makes it
    /// too long.
    pub(crate) fn fill(&self, captures: &Captures<'_>) -> Option<String> {
        let mut filled = String::new();
        for piece in &self.0 {
            match piece {
                Piece::Text(text) => filled.push_str(text),
                Piece::Capture { position, in_query } => {
                    let (_, value) = captures.0.get(*position)?;
                    // Encoding makes nothing shorter.
                    if filled.len() + value.len() > MAX_TARGET_BYTES {
                        return None;
                    }
                    let unsafe_here = if *in_query {
                        UNSAFE_IN_QUERY
                    } else {
                        UNSAFE_IN_PATH
                    };
                    filled.extend(utf8_percent_encode(value, unsafe_here));
                }
            }
            if filled.len() > MAX_TARGET_BYTES {
                return None;
            }
        }
        Some(filled)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(pattern: &str, path: &str, target: &str) -> Option<String> {
        let pattern = Pattern::parse(pattern)?;
        let captures = pattern.captures(path)?;
        Target::parse(target, &pattern).fill(&captures)
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
        let endless = "/a".repeat(MAX_SEGMENTS + 1);
        assert!(Pattern::parse(&endless[2..]).is_some());
        for bad in ["", "a", "/a*b", "/*/b", &endless] {
            assert_eq!(Pattern::parse(bad), None, "{bad}");
        }
    }
}
