//! `_redirects`: one rule a line, `from to [status]`, the first that fits wins.

use crate::static_files::pattern::{Pattern, Target};
use crate::static_files::pattern_index::PatternIndex;
use estrade_model::site_rules::{MAX_LINE_BYTES, MAX_REDIRECTS};

/// The file that holds the rules; it is not served.
pub(crate) use estrade_model::site_rules::REDIRECTS_FILE as FILE;

/// Most rules that are tried for a request, of those that fit: one is left out when its target becomes
/// too long, which is only known after it was made.
const MAX_TRIED: usize = 16;

/// The redirects of a site.
#[derive(Debug, Default)]
pub struct Redirects {
    rules: Vec<Rule>,
    index: PatternIndex,
}

#[derive(Debug, PartialEq, Eq)]
struct Rule {
    from: Pattern,
    to: Target,
    status: u16,
    /// Whether it holds although the site has a file at that path.
    force: bool,
}

/// What a rule says.
#[derive(Debug, PartialEq, Eq)]
pub enum Action {
    /// Send the client there.
    Redirect {
        /// 301, 302, 303, 307 or 308.
        status: u16,
        to: String,
    },
    /// Serve another file of the same site.
    Rewrite {
        /// 200 or 404.
        status: u16,
        to: String,
    },
}

impl Redirects {
    /// Reads the rules. A line that we do not follow is left out: conditions on country or language,
    /// and rewrites to other hosts, which would make us anybody's proxy.
    pub fn parse(text: &str) -> Self {
        let lines = text.lines().filter(|line| line.len() <= MAX_LINE_BYTES);
        let rules: Vec<_> = lines.filter_map(parse_line).take(MAX_REDIRECTS).collect();
        let index = PatternIndex::new(rules.iter().map(|rule| &rule.from));
        Self { rules, index }
    }

    /// Whether there are none, which is what most sites have.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// How much memory they take, roughly.
    pub fn bytes(&self) -> usize {
        let rules = self.rules.iter();
        let rules = rules.map(|rule| rule.from.bytes() + rule.to.bytes() + size_of::<Rule>());
        rules.sum::<usize>() + self.index.bytes()
    }

    /// What the first rule that fits says. Where the site has a file, only forced rules hold.
    pub fn action(&self, path: &str, query: Option<&str>, has_file: bool) -> Option<Action> {
        let found = self.index.find(path).positions.into_iter();
        let rules = found.filter_map(|position| self.rules.get(position as usize));
        let rules = rules.filter(|rule| rule.force || !has_file);
        for rule in rules.take(MAX_TRIED) {
            let Some(captures) = rule.from.captures(path) else {
                continue;
            };
            let Some(mut to) = rule.to.fill(&captures) else {
                continue;
            };
            if !is_redirect(rule.status) {
                return Some(Action::Rewrite {
                    status: rule.status,
                    to,
                });
            }
            if let (Some(query), false) = (query, to.contains('?')) {
                to = format!("{to}?{query}");
            }
            return Some(Action::Redirect {
                status: rule.status,
                to: encode(&to),
            });
        }
        None
    }
}

fn is_redirect(status: u16) -> bool {
    matches!(status, 301 | 302 | 303 | 307 | 308)
}

fn parse_line(line: &str) -> Option<Rule> {
    let mut words = line.split('#').next()?.split_whitespace();
    let (from, to) = (words.next()?, words.next()?);
    let (status, force) = match words.next() {
        None => (301, false),
        Some(word) => {
            let (digits, force) = word
                .strip_suffix('!')
                .map_or((word, false), |digits| (digits, true));
            (digits.parse().ok()?, force)
        }
    };
    let outside = !to.starts_with('/') || to.starts_with("//");
    let known = is_redirect(status) || (matches!(status, 200 | 404) && !outside);
    let safe = !outside || to.starts_with("https://") || to.starts_with("http://");
    if !known || !safe || words.next().is_some() {
        return None;
    }
    // Without a scheme and host a rule for another host name would look like a path.
    let from = Pattern::parse(from)?;
    Some(Rule {
        to: Target::parse(to, &from),
        from,
        status,
        force,
    })
}

/// A target as `Location` can carry it; what a capture brought in cannot end the header.
fn encode(to: &str) -> String {
    use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
    const UNSAFE: &AsciiSet = &CONTROLS.add(b' ').add(b'"').add(b'<').add(b'>').add(b'\\');
    let safe = utf8_percent_encode(to, UNSAFE).to_string();
    // `//host` would leave the site; a capture must not be able to make one.
    if safe.starts_with("//") {
        format!("/{}", safe.trim_start_matches('/'))
    } else {
        safe
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[expect(
        clippy::unnecessary_wraps,
        reason = "it is compared with what may be none"
    )]
    fn redirect(status: u16, to: &str) -> Option<Action> {
        Some(Action::Redirect {
            status,
            to: to.into(),
        })
    }

    #[test]
    fn the_first_rule_that_fits_wins() {
        let rules = Redirects::parse(
            "# comment\n/home /  302\n/old /new\n/blog/* /news/:splat 308\n/forced /x 301!\n/app/* /app/index.html 200\n/ext https://example.com/a 307\n",
        );
        assert_eq!(rules.action("/home", None, false), redirect(302, "/"));
        assert_eq!(
            rules.action("/old", Some("a=1"), false),
            redirect(301, "/new?a=1")
        );
        assert_eq!(
            rules.action("/blog/a/b", None, false),
            redirect(308, "/news/a/b")
        );
        assert_eq!(
            rules.action("/ext", None, false),
            redirect(307, "https://example.com/a")
        );
        assert_eq!(
            rules.action("/app/x", None, false),
            Some(Action::Rewrite {
                status: 200,
                to: "/app/index.html".into()
            })
        );
        assert_eq!(rules.action("/old", None, true), None);
        assert_eq!(rules.action("/forced", None, true), redirect(301, "/x"));
        assert_eq!(rules.action("/other", None, false), None);
    }

    #[test]
    fn targets_that_become_too_long_are_not_tried_without_end() {
        let long = format!("/u/{}", "a".repeat(5000));
        let too_long = "/u/* /:splat/:splat 302\n";
        let first = Redirects::parse(&format!("{too_long}/u/* /short 302\n"));
        assert_eq!(first.action(&long, None, false), redirect(302, "/short"));
        let many = format!("{}/u/* /short 302\n", too_long.repeat(MAX_REDIRECTS - 1));
        assert_eq!(Redirects::parse(&many).action(&long, None, false), None);
    }

    #[test]
    fn rules_are_counted_with_all_that_they_hold() {
        let line = format!("{} /x 302\n", "/:a".repeat(30));
        let rules = Redirects::parse(&line.repeat(100));
        assert!(rules.bytes() > 100 * 30 * size_of::<String>());
        let long = format!("/a /{} 302\n/b /c 302\n", "x".repeat(MAX_LINE_BYTES));
        assert_eq!(Redirects::parse(&long).rules.len(), 1);
    }

    #[test]
    fn nobody_gets_an_open_proxy_or_an_open_redirect() {
        let rules = Redirects::parse(
            "/p/* https://evil.example/:splat 200\n/q/* //evil.example/:splat 302\n/r javascript:alert(1) 302\n/s /t 302 Country=de\n/u/* /:splat 302\n",
        );
        for path in ["/p/x", "/q/x", "/r", "/s"] {
            assert_eq!(rules.action(path, None, false), None, "{path}");
        }
        assert_eq!(
            rules.action("/u//evil.example", None, false),
            redirect(302, "/evil.example")
        );
        assert_eq!(
            rules.action("/u/a\r\nX: y", None, false),
            redirect(302, "/a%0D%0AX:%20y")
        );
    }
}
