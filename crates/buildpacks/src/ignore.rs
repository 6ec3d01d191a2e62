//! Which files of the sources the build does not get to see: the rules of `.dockerignore`.

use crate::error::{Result, refused};
use crate::pattern::Pattern;
use crate::sources::{IGNORE_FILE as FILE, Tree};

/// Most rules.
const MAX_RULES: usize = 1000;
/// Longest rule, in bytes.
const MAX_RULE: usize = 1024;
/// Most characters that are compared for all files, in the worst case: minutes. A thousand long patterns and as many files
/// as a release may have would take hours, in which nobody could stop the build.
const MAX_COMPARISONS: u64 = 20_000_000_000;

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
    pattern: Pattern,
}

impl IgnoreRules {
    /// The rules of the user, and nothing else.
    pub(crate) fn of_user(tree: &Tree<'_>) -> Result<Self> {
        let mut rules = Self {
            rules: Vec::new(),
            kept: Vec::new(),
        };
        rules.add_file(tree)?;
        Ok(rules)
    }

    /// The same, for a build with the user's own Dockerfile.
    pub(crate) fn of_dockerfile(tree: &Tree<'_>, path: &str) -> Result<Self> {
        // The engine needs both to be there, and removes them itself where they are ignored.
        let kept = vec![path.to_owned(), FILE.to_owned()];
        let rules = Self::of_user(tree)?;
        Ok(Self { kept, ..rules })
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
            if line.len() > MAX_RULE || self.rules.len() >= MAX_RULES {
                let advice = format!(
                    "has too many or too long rules; {MAX_RULES} of {MAX_RULE} bytes are the most"
                );
                return Err(refused(FILE, advice));
            }
            if !line.starts_with('#') {
                self.add(line);
            }
        }
        let rules: u64 = self.rules.iter().map(|rule| rule.pattern.cost()).sum();
        let paths: u64 = tree.paths().map(|path| path.len() as u64).sum();
        if rules.saturating_mul(paths) > MAX_COMPARISONS {
            let advice = "has too many long patterns for so many files; name folders instead";
            return Err(refused(FILE, advice));
        }
        Ok(())
    }

    fn add(&mut self, line: &str) {
        let line = line.trim();
        let (except, pattern) = match line.strip_prefix('!') {
            Some(pattern) => (true, pattern.trim_start()),
            None => (false, line),
        };
        // Without a segment it is an empty line, or the whole folder, which would leave nothing.
        if let Some(pattern) = Pattern::parse(pattern) {
            self.rules.push(Rule { except, pattern });
        }
    }

    /// Whether a file is left out. The last rule that fits decides; one that fits a folder fits
    /// everything in it.
    pub fn excludes(&self, path: &str) -> bool {
        if self.kept.iter().any(|kept| kept == path) {
            return false;
        }
        let segments: Vec<_> = path.split('/').collect();
        let fits = |rule: &&Rule| rule.pattern.fits(&segments);
        self.rules
            .iter()
            .rev()
            .find(fits)
            .is_some_and(|rule| !rule.except)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn rules(text: &str) -> IgnoreRules {
        let file = (FILE.to_owned(), text.as_bytes().to_vec());
        let sources: BTreeMap<_, _> = [file].into();
        IgnoreRules::of_dockerfile(&Tree::new(&sources), "Dockerfile").unwrap()
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
        let many = "a\n".repeat(MAX_RULES + 1);
        let sources: BTreeMap<_, _> = [(FILE.to_owned(), many.into_bytes())].into();
        let error = IgnoreRules::of_dockerfile(&Tree::new(&sources), "Dockerfile").unwrap_err();
        assert!(error.to_string().starts_with(".dockerignore: "), "{error}");
        let with_files = |rule: &str, count: usize| {
            let rules = format!("{rule}\n").repeat(MAX_RULES);
            let file = |number: usize| (format!("{number:0>250}"), Vec::new());
            let mut sources: BTreeMap<_, _> = (0..count).map(file).collect();
            sources.insert(FILE.to_owned(), rules.into_bytes());
            IgnoreRules::of_dockerfile(&Tree::new(&sources), "Dockerfile").map(drop)
        };
        let long = format!("*{}b", "0".repeat(1000));
        assert!(with_files(&long, 50).is_ok());
        assert!(with_files(&"x".repeat(1000), 1000).is_ok());
        let error = with_files(&long, 1000).unwrap_err();
        assert!(
            error.to_string().contains("too many long patterns"),
            "{error}"
        );
        // One that tried every way to fit would take longer than a test may.
        let hostile = rules(&format!("{}b", "**/*a*a*a*a*a*a/".repeat(60)));
        assert!(!hostile.excludes(&format!(
            "{}a",
            "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa/".repeat(60)
        )));
    }
}
