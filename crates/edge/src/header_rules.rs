//! `_headers`: a path pattern, and indented below it the headers that its files get.

use crate::pattern::Pattern;
use estrade_model::site::PathHeaders;
use http::{HeaderMap, HeaderName, HeaderValue, header};

/// The file that holds the rules; it is not served.
pub(crate) const FILE: &str = "_headers";
/// More rules than this are not read.
const MOST_RULES: usize = 1000;
/// Nor more headers of all rules together.
const MOST_HEADERS: usize = 5000;
/// Most headers that rules add to one answer, and most bytes: clients take no more, and whoever
/// writes a file of them must not make each of our answers as long as that.
const MOST_ADDED: usize = 100;
const MOST_BYTES: usize = 16 * 1024;

/// Headers that say how the message is framed or coded: ours to set, never the site's.
const OURS: [&str; 14] = [
    "connection",
    "content-encoding",
    "content-length",
    "content-range",
    "accept-ranges",
    "date",
    "etag",
    "keep-alive",
    "last-modified",
    "server",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// The extra headers of a site.
#[derive(Debug, Default)]
pub struct HeaderRules(Vec<(Pattern, Vec<(HeaderName, HeaderValue)>)>);

impl HeaderRules {
    /// Reads the rules; lines that make no sense are left out.
    pub fn parse(text: &str) -> Self {
        let mut rules: Vec<(Pattern, Vec<_>)> = Vec::new();
        let (mut wanted, mut count) = (false, 0);
        for line in text.lines() {
            let trimmed = line.trim();
            if trimmed.is_empty() || trimmed.starts_with('#') {
                continue;
            }
            if trimmed.starts_with('/') {
                let pattern = Pattern::parse(trimmed).filter(|_| rules.len() < MOST_RULES);
                wanted = pattern.is_some();
                rules.extend(pattern.map(|pattern| (pattern, Vec::new())));
            } else if let (true, Some((_, headers))) = (wanted, rules.last_mut()) {
                let header = parse_header(trimmed).filter(|_| count < MOST_HEADERS);
                count += usize::from(header.is_some());
                headers.extend(header);
            }
        }
        Self(rules)
    }

    /// Adds the rules of a site's configuration.
    pub fn extend(&mut self, more: &[PathHeaders]) {
        for rule in more.iter().take(MOST_RULES.saturating_sub(self.0.len())) {
            let headers = rule.headers.iter();
            let headers = headers.filter_map(|(name, value)| checked(name, value));
            let pattern = Pattern::parse(&rule.path);
            self.0
                .extend(pattern.map(|pattern| (pattern, headers.collect())));
        }
    }

    /// How much memory they take, roughly.
    pub fn bytes(&self) -> usize {
        let header = |(name, value): &(HeaderName, HeaderValue)| {
            name.as_str().len() + value.len() + size_of::<(HeaderName, HeaderValue)>()
        };
        let rules = self.0.iter();
        rules
            .map(|(pattern, headers)| {
                pattern.bytes() + 64 + headers.iter().map(header).sum::<usize>()
            })
            .sum()
    }

    /// Whether there are none, which is what most sites have.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Sets the headers of a path. Several values of one name stand side by side; the first of ours
    /// that a rule names is replaced. How long an error may be kept stays ours to say: a year would
    /// outlive its cause.
    pub fn apply(&self, path: &str, is_error: bool, headers: &mut HeaderMap) {
        // What our own answer varies by, it goes on to vary by.
        let mut replaced = vec![&header::VARY];
        let (mut added, mut bytes) = (0, 0);
        let fitting = self.0.iter();
        let fitting = fitting.filter(|(pattern, _)| pattern.captures(path).is_some());
        for (name, value) in fitting.flat_map(|(_, extra)| extra) {
            if is_error && name == header::CACHE_CONTROL {
                continue;
            }
            added += 1;
            bytes += name.as_str().len() + value.len() + 4;
            if added > MOST_ADDED || bytes > MOST_BYTES {
                return;
            }
            if replaced.contains(&name) {
                headers.append(name, value.clone());
            } else {
                headers.insert(name, value.clone());
                replaced.push(name);
            }
        }
    }
}

fn parse_header(line: &str) -> Option<(HeaderName, HeaderValue)> {
    let (name, value) = line.split_once(':')?;
    checked(name, value)
}

fn checked(name: &str, value: &str) -> Option<(HeaderName, HeaderValue)> {
    let name = HeaderName::try_from(name.trim()).ok()?;
    let value = HeaderValue::try_from(value.trim()).ok()?;
    (!OURS.contains(&name.as_str())).then_some((name, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_add_up_and_framing_headers_stay_ours() {
        let rules = HeaderRules::parse(
            "/*\n  X-Frame-Options: DENY\n  Link: </a>; rel=preload\n  Content-Length: 5\n\n# comment\n/docs/*\n  Cache-Control: no-store\n  Link: </b>; rel=preload\n  bad line\n",
        );
        let mut headers = HeaderMap::new();
        headers.insert("cache-control", HeaderValue::from_static("max-age=0"));
        rules.apply("/docs/x", false, &mut headers);
        assert_eq!(headers["x-frame-options"], "DENY");
        assert_eq!(headers["cache-control"], "no-store");
        assert_eq!(headers.get_all("link").iter().count(), 2);
        assert!(!headers.contains_key("content-length"));
        let mut others = HeaderMap::new();
        rules.apply("/x", false, &mut others);
        assert_eq!(others.len(), 2);
    }

    #[test]
    fn a_file_of_headers_cannot_make_answers_endless() {
        let names: Vec<_> = (0..60_000).map(|number| format!("x{number}:")).collect();
        let rules = HeaderRules::parse(&format!("/*\n{}", names.join("\n")));
        let mut headers = HeaderMap::new();
        rules.apply("/x", false, &mut headers);
        assert_eq!(headers.len(), MOST_ADDED);
        let long = format!("/*\n A: {}\n B: x\n", "x".repeat(MOST_BYTES));
        let mut headers = HeaderMap::new();
        HeaderRules::parse(&long).apply("/x", false, &mut headers);
        assert!(headers.is_empty());
    }

    #[test]
    fn errors_are_not_kept_and_vary_is_added_to() {
        let rules = HeaderRules::parse("/*\n Cache-Control: immutable\n Vary: Cookie\n X: y\n");
        for is_error in [false, true] {
            let mut headers = HeaderMap::new();
            headers.insert("cache-control", HeaderValue::from_static("no-store"));
            headers.insert("vary", HeaderValue::from_static("accept-encoding"));
            rules.apply("/x", is_error, &mut headers);
            let kept = if is_error { "no-store" } else { "immutable" };
            assert_eq!(
                (&headers["cache-control"], &headers["x"]),
                (
                    &HeaderValue::from_static(kept),
                    &HeaderValue::from_static("y")
                )
            );
            let vary: Vec<_> = headers.get_all("vary").iter().collect();
            assert_eq!(vary, ["accept-encoding", "Cookie"]);
        }
    }
}
