//! Path patterns of `_redirects` and `_headers`: `/blog/:year/*`.

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
    /// Reads a pattern; `None` when it does not begin with `/` or has a `*` inside.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let rest = text.strip_prefix('/')?;
        let mut segments = Vec::new();
        for segment in rest.split('/').filter(|segment| !segment.is_empty()) {
            if segments.last() == Some(&Segment::Splat) {
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
    /// Puts what was captured into `:name` and `:splat` of a target.
    pub(crate) fn fill(&self, target: &str) -> String {
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
                Some((_, value)) => filled.push_str(value),
                None => filled.push_str(&after[..name_end]),
            }
            rest = &after[name_end..];
        }
        filled.push_str(rest);
        filled
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(pattern: &str, path: &str, target: &str) -> Option<String> {
        let pattern = Pattern::parse(pattern)?;
        let captures = pattern.captures(path)?;
        Some(captures.fill(target))
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
        for bad in ["", "a", "/a*b", "/*/b"] {
            assert_eq!(Pattern::parse(bad), None, "{bad}");
        }
    }
}
