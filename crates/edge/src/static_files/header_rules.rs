//! `_headers`: a path pattern, and indented below it the headers that its files get.

use crate::cookies;
use crate::static_files::pattern::Pattern;
use crate::static_files::pattern_index::PatternIndex;
use estrade_model::site::PathHeaders;
use estrade_model::site_rules::{MAX_HEADER_RULES, MAX_HEADERS};
use http::{HeaderMap, HeaderName, HeaderValue, header};

/// The file that holds the rules; it is not served.
pub(crate) use estrade_model::site_rules::HEADERS_FILE as FILE;

/// Most headers that rules add to one response, and most bytes: clients accept no more, and the rules of a
/// project must not make every response that long.
const MAX_ADDED_HEADERS: usize = 100;
const MAX_ADDED_BYTES: usize = 16 * 1024;

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
pub struct HeaderRules {
    rules: Vec<Rule>,
    index: PatternIndex,
}

type Rule = (Pattern, Vec<(HeaderName, HeaderValue)>);

impl HeaderRules {
    /// Reads the rules; lines that make no sense are left out.
    pub fn parse(text: &str) -> Self {
        let mut rules: Vec<Rule> = Vec::new();
        let (mut wanted, mut count) = (false, 0);
        for line in text.lines() {
            let trimmed = line.trim();
            if trimmed.is_empty() || trimmed.starts_with('#') {
                continue;
            }
            if trimmed.starts_with('/') {
                let pattern = Pattern::parse(trimmed).filter(|_| rules.len() < MAX_HEADER_RULES);
                wanted = pattern.is_some();
                rules.extend(pattern.map(|pattern| (pattern, Vec::new())));
            } else if let (true, Some((_, headers))) = (wanted, rules.last_mut()) {
                let header = parse_header(trimmed).filter(|_| count < MAX_HEADERS);
                count += usize::from(header.is_some());
                headers.extend(header);
            }
        }
        Self::new(rules)
    }

    fn new(mut rules: Vec<Rule>) -> Self {
        // So that each that fits brings a response nearer to its limit.
        rules.retain(|(_, headers)| !headers.is_empty());
        let index = PatternIndex::new(rules.iter().map(|(pattern, _)| pattern));
        Self { rules, index }
    }

    /// Adds the rules of a site's configuration.
    pub fn extend(&mut self, more: &[PathHeaders]) {
        if more.is_empty() {
            return;
        }
        let mut rules = std::mem::take(&mut self.rules);
        let free = MAX_HEADER_RULES.saturating_sub(rules.len());
        for rule in more.iter().take(free) {
            let headers = rule.headers.iter();
            let headers = headers.filter_map(|(name, value)| checked(name, value));
            let pattern = Pattern::parse(&rule.path);
            rules.extend(pattern.map(|pattern| (pattern, headers.collect())));
        }
        *self = Self::new(rules);
    }

    /// Takes away that cookies are for a domain that projects share.
    pub fn restrict_cookies(&mut self, edge_domains: &[String]) {
        let headers = self.rules.iter_mut().flat_map(|(_, headers)| headers);
        for (_, value) in headers.filter(|(name, _)| name == header::SET_COOKIE) {
            let restricted = cookies::restrict(value.as_bytes(), edge_domains);
            if let Some(Ok(restricted)) = restricted.map(HeaderValue::try_from) {
                *value = restricted;
            }
        }
    }

    /// How much memory they take, roughly.
    pub fn bytes(&self) -> usize {
        let header = |(name, value): &(HeaderName, HeaderValue)| {
            name.as_str().len() + value.len() + size_of::<(HeaderName, HeaderValue)>()
        };
        let rules = self.rules.iter().map(|(pattern, headers)| {
            pattern.bytes() + 64 + headers.iter().map(header).sum::<usize>()
        });
        rules.sum::<usize>() + self.index.bytes()
    }

    /// Whether there are none, which is what most sites have.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// Sets the headers of a path. Several values of one name stand side by side; the first of ours
    /// that a rule names is replaced. How long an error may be kept stays ours to say: a year would
    /// outlive its cause.
    pub fn apply(&self, path: &str, is_error: bool, headers: &mut HeaderMap) {
        // What our own response varies by, it goes on to vary by.
        let mut replaced = vec![&header::VARY];
        let (mut added, mut bytes) = (0, 0);
        let fitting = self.index.find(path).positions.into_iter();
        let fitting = fitting.filter_map(|position| self.rules.get(position as usize));
        for (name, value) in fitting.flat_map(|(_, extra)| extra) {
            if is_error && name == header::CACHE_CONTROL {
                continue;
            }
            added += 1;
            bytes += name.as_str().len() + value.len() + 4;
            if added > MAX_ADDED_HEADERS || bytes > MAX_ADDED_BYTES {
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
    fn a_file_of_headers_cannot_make_responses_endless() {
        let names: Vec<_> = (0..60_000).map(|number| format!("x{number}:")).collect();
        let rules = HeaderRules::parse(&format!("/*\n{}", names.join("\n")));
        let mut headers = HeaderMap::new();
        rules.apply("/x", false, &mut headers);
        assert_eq!(headers.len(), MAX_ADDED_HEADERS);
        let long = format!("/*\n A: {}\n B: x\n", "x".repeat(MAX_ADDED_BYTES));
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
