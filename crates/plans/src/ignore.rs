//! Which files of the sources the build does not get to see: the rules of `.dockerignore`.

use crate::error::{Result, refused};
use crate::sources::Tree;

/// The file in which users write such rules.
pub(crate) const FILE: &str = ".dockerignore";
/// Most rules.
const MOST_RULES: usize = 1000;
/// Longest rule, in bytes.
const LONGEST_RULE: usize = 1024;

/// What belongs in no image, whatever the platform.
const ALWAYS: [&str; 9] = [
    "**/.git",
    "**/.hg",
    "**/.svn",
    "**/.DS_Store",
    "**/.idea",
    "**/.vscode",
    "**/node_modules",
    "estrade.json",
    "liara.json",
];

/// Files with secrets. What is committed on purpose, such as `.env.production`, stays.
pub(crate) const SECRETS: [&str; 3] = ["**/.env", "**/.env.local", "**/.env.*.local"];

/// Rules about files that are left out of a build.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IgnoreRules {
    rules: Vec<Rule>,
    kept: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Rule {
    /// It takes back what an earlier rule left out.
    except: bool,
    segments: Vec<String>,
}

impl IgnoreRules {
    /// The rules for a Dockerfile of the user: theirs, and nothing else.
    pub(crate) fn of_user(tree: &Tree<'_>, dockerfile: &str) -> Result<Self> {
        // The engine needs both to be there, and removes them itself where they are ignored.
        let kept = vec![dockerfile.to_owned(), FILE.to_owned()];
        let mut rules = Self {
            rules: Vec::new(),
            kept,
        };
        rules.add_file(tree)?;
        Ok(rules)
    }

    /// The rules for a Dockerfile of ours; the user's come last, so that they win.
    pub(crate) fn of_platform(tree: &Tree<'_>, more: &[&str]) -> Result<Self> {
        let mut rules = Self {
            rules: Vec::new(),
            kept: Vec::new(),
        };
        ALWAYS.iter().chain(more).for_each(|rule| rules.add(rule));
        rules.add_file(tree)?;
        Ok(rules)
    }

    fn add_file(&mut self, tree: &Tree<'_>) -> Result<()> {
        let Some(text) = tree.text(FILE)? else {
            return Ok(());
        };
        for line in text.lines() {
            if line.len() > LONGEST_RULE || self.rules.len() >= MOST_RULES {
                let advice = format!(
                    "has too many or too long rules; {MOST_RULES} of {LONGEST_RULE} bytes are the most"
                );
                return Err(refused(FILE, advice));
            }
            if !line.starts_with('#') {
                self.add(line);
            }
        }
        Ok(())
    }

    fn add(&mut self, line: &str) {
        let line = line.trim();
        let (except, pattern) = match line.strip_prefix('!') {
            Some(pattern) => (true, pattern.trim_start()),
            None => (false, line),
        };
        let mut segments: Vec<String> = Vec::new();
        for segment in pattern.split('/') {
            match segment {
                "" | "." => {}
                ".." => drop(segments.pop()),
                segment => segments.push(segment.to_owned()),
            }
        }
        // Without a segment it is an empty line, or the whole folder, which would leave nothing.
        if !segments.is_empty() {
            self.rules.push(Rule { except, segments });
        }
    }

    /// Whether a file is left out. The last rule that fits decides; one that fits a folder fits
    /// everything in it.
    pub fn excludes(&self, path: &str) -> bool {
        if self.kept.iter().any(|kept| kept == path) {
            return false;
        }
        let segments: Vec<_> = path.split('/').collect();
        let fits = |rule: &&Rule| fits_start(&rule.segments, &segments);
        self.rules
            .iter()
            .rev()
            .find(fits)
            .is_some_and(|rule| !rule.except)
    }
}

/// Whether the pattern fits the path or one of the folders around it.
fn fits_start(pattern: &[String], path: &[&str]) -> bool {
    // reach[n]: the pattern so far fits the first n segments. Walking it pattern by pattern takes
    // time in proportion to both lengths, whatever somebody writes.
    let mut reach = vec![false; path.len() + 1];
    if let Some(first) = reach.first_mut() {
        *first = true;
    }
    for part in pattern {
        let mut next = vec![false; reach.len()];
        let mut open = false;
        for (at, slot) in next.iter_mut().enumerate() {
            let before = at.checked_sub(1);
            let came = before
                .and_then(|before| reach.get(before))
                .copied()
                .unwrap_or(false);
            if part == "**" {
                open |= reach.get(at).copied().unwrap_or(false);
                *slot = open;
            } else if came {
                let segment = before.and_then(|before| path.get(before));
                *slot = segment.is_some_and(|segment| fits_segment(part, segment));
            }
        }
        reach = next;
    }
    reach.iter().skip(1).any(|fits| *fits)
}

/// Whether a pattern with `*`, `?` and `[…]` fits one name.
fn fits_segment(pattern: &str, name: &str) -> bool {
    let pattern: Vec<char> = pattern.chars().collect();
    let name: Vec<char> = name.chars().collect();
    let (mut at, mut in_name) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while let Some(c) = name.get(in_name) {
        match one(&pattern, at, *c) {
            One::Star => {
                star = Some((at + 1, in_name));
                at += 1;
            }
            One::Fits(next) => {
                at = next;
                in_name += 1;
            }
            One::Differs => match star {
                // Let the last star take one character more, and try again from there.
                Some((after, taken)) => {
                    star = Some((after, taken + 1));
                    at = after;
                    in_name = taken + 1;
                }
                None => return false,
            },
        }
    }
    pattern.iter().skip(at).all(|c| *c == '*')
}

enum One {
    Star,
    Fits(usize),
    Differs,
}

/// Compares one character with the pattern at a place.
fn one(pattern: &[char], at: usize, c: char) -> One {
    match pattern.get(at) {
        Some('*') => One::Star,
        Some('?') => One::Fits(at + 1),
        Some('[') => class(pattern, at + 1, c),
        Some('\\') if pattern.get(at + 1) == Some(&c) => One::Fits(at + 2),
        Some(same) if *same == c && c != '\\' => One::Fits(at + 1),
        _ => One::Differs,
    }
}

/// Compares with a class such as `[a-z]` or `[^0-9]`, which begins at `at`.
fn class(pattern: &[char], mut at: usize, c: char) -> One {
    let negated = pattern.get(at) == Some(&'^');
    if negated {
        at += 1;
    }
    let mut found = false;
    loop {
        let Some(low) = pattern.get(at) else {
            return One::Differs;
        };
        if *low == ']' {
            break;
        }
        let high = pattern
            .get(at + 2)
            .filter(|_| pattern.get(at + 1) == Some(&'-'));
        found |= (*low..=*high.unwrap_or(low)).contains(&c);
        at += if high.is_some() { 3 } else { 1 };
    }
    if found == negated {
        One::Differs
    } else {
        One::Fits(at + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use std::time::{Duration, Instant};

    fn rules(text: &str) -> IgnoreRules {
        let file = (FILE.to_owned(), text.as_bytes().to_vec());
        let sources: BTreeMap<_, _> = [file].into();
        IgnoreRules::of_user(&Tree::new(&sources), "Dockerfile").unwrap()
    }

    #[test]
    fn patterns_fit_as_docker_says() {
        for (text, out, kept) in [
            (
                "node_modules",
                &["node_modules/a/b"][..],
                &["x/node_modules/a", "node_modules2"][..],
            ),
            (
                "**/node_modules",
                &["node_modules/a", "x/y/node_modules/a"],
                &["x/y"],
            ),
            ("*.log", &["a.log"], &["a/b.log", "a.logs"]),
            ("**/*.log", &["a.log", "a/b/c.log"], &["a.log2"]),
            ("a/**/z", &["a/z", "a/b/c/z", "a/b/z/inner"], &["z", "b/z"]),
            ("/a/./b/", &["a/b", "a/b/c"], &["b"]),
            ("a?c", &["abc"], &["ac", "abbc"]),
            ("[a-c]x", &["ax", "cx"], &["dx", "[a-c]x"]),
            ("[^a-c]x", &["dx"], &["ax"]),
            ("# a\n\n  b  ", &["b"], &["a", "# a"]),
            (
                "*\n!src\n!*.md",
                &["a", "b/c", "b/src/x"],
                &["src/a/b", "x.md"],
            ),
            ("a\n!a/b\na/b/c", &["a/x", "a/b/c/d"], &["a/b/x"]),
            ("\\*", &["*"], &["a"]),
            ("**", &["a", "a/b"], &["Dockerfile", ".dockerignore"]),
        ] {
            let rules = rules(text);
            for path in out {
                assert!(rules.excludes(path), "{text:?} {path}");
            }
            for path in kept {
                assert!(!rules.excludes(path), "{text:?} {path}");
            }
        }
    }

    #[test]
    fn secrets_stay_out_and_users_have_the_last_word() {
        let sources: BTreeMap<_, _> = [(FILE.to_owned(), b"!.env\ntmp".to_vec())].into();
        let rules = IgnoreRules::of_platform(&Tree::new(&sources), &SECRETS).unwrap();
        for out in [
            "a/.env",
            ".env.local",
            ".env.production.local",
            ".git/config",
            "tmp/x",
            "liara.json",
        ] {
            assert!(rules.excludes(out), "{out}");
        }
        for kept in [
            ".env",
            ".env.production",
            ".env.example",
            ".gitignore",
            "src/app.js",
        ] {
            assert!(!rules.excludes(kept), "{kept}");
        }
    }

    #[test]
    fn rules_are_bounded_in_number_and_time() {
        let many = "a\n".repeat(MOST_RULES + 1);
        let sources: BTreeMap<_, _> = [(FILE.to_owned(), many.into_bytes())].into();
        let error = IgnoreRules::of_user(&Tree::new(&sources), "Dockerfile").unwrap_err();
        assert!(error.to_string().starts_with(".dockerignore: "), "{error}");
        let started = Instant::now();
        let hostile = rules(&format!("{}b", "**/*a*a*a*a*a*a/".repeat(60)));
        assert!(!hostile.excludes(&format!(
            "{}a",
            "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa/".repeat(25)
        )));
        assert!(started.elapsed() < Duration::from_secs(2));
    }
}
