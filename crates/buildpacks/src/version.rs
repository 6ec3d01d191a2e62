//! Versions of languages, and the ranges that manifests write about them.
//!
//! One parser for four dialects, in place of `node-semver` and `pep440_rs`. Those would replace none of it: Composer's
//! `~8.1` (below 9) and single `|` are not npm's, Poetry's `^3.9` and `~3.9` are not PEP 440's, and both need all the
//! other operators too. The question is also another one: not whether a version is in a range but whether the newest
//! that a tag such as `node:22` stands for is. So a range has to be read into bounds, and pre-releases do not count.

use std::fmt;

/// A version as far as it was given: `22`, `3.12`, `20.11.1`. Only numbers, so it is safe in a tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Version {
    pub(crate) major: u32,
    pub(crate) minor: Option<u32>,
    pub(crate) patch: Option<u32>,
}

/// Largest number in a version; larger ones are dates or nonsense.
const MAX_NUMBER: u32 = 9999;
/// Longest range that is read, in bytes.
const MAX_RANGE: usize = 256;

type Point = (u32, u32, u32);
const END: Point = (u32::MAX, u32::MAX, u32::MAX);

impl Version {
    pub(crate) const fn major(major: u32) -> Self {
        Self {
            major,
            minor: None,
            patch: None,
        }
    }

    pub(crate) const fn minor(major: u32, minor: u32) -> Self {
        Self {
            major,
            minor: Some(minor),
            patch: None,
        }
    }

    /// Reads `20`, `v20.11`, `3.12.1`; nothing else.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let text = text.strip_prefix('v').unwrap_or(text);
        let mut parts = text.split('.').map(number);
        let version = Self {
            major: parts.next()??,
            minor: parts.next().map_or(Some(None), |part| part.map(Some))?,
            patch: parts.next().map_or(Some(None), |part| part.map(Some))?,
        };
        parts.next().is_none().then_some(version)
    }

    /// The same version without its patch level.
    pub(crate) fn without_patch(self) -> Self {
        Self {
            patch: None,
            ..self
        }
    }

    /// The first version that this one names.
    fn start(self) -> Point {
        (self.major, self.minor.unwrap_or(0), self.patch.unwrap_or(0))
    }

    /// The first version after all that this one names.
    fn end(self) -> Point {
        match (self.minor, self.patch) {
            (Some(minor), Some(patch)) => (self.major, minor, patch + 1),
            (Some(minor), None) => (self.major, minor + 1, 0),
            _ => (self.major + 1, 0, 0),
        }
    }

    /// The newest version that this one names: what a tag such as `node:22` stands for.
    fn newest(self) -> Point {
        let (minor, patch) = (
            self.minor.unwrap_or(MAX_NUMBER),
            self.patch.unwrap_or(MAX_NUMBER),
        );
        (self.major, minor, patch)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.major)?;
        for part in [self.minor, self.patch].into_iter().flatten() {
            write!(f, ".{part}")?;
        }
        Ok(())
    }
}

fn number(text: &str) -> Option<u32> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let number = if digits {
        text.parse().ok()?
    } else {
        return None;
    };
    (number <= MAX_NUMBER).then_some(number)
}

/// What `~1.2` means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tilde {
    /// `1.2.*`, as for npm and Poetry.
    Minor,
    /// `1.*`, as for Composer.
    LastGiven,
}

/// A set of versions: any of these, each from a first version to one that is no longer in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Range(Vec<(Point, Point)>);

impl Range {
    /// Reads what npm, Composer, Poetry and `requires-python` write; none if it makes no sense.
    pub(crate) fn parse(text: &str, tilde: Tilde) -> Option<Self> {
        if text.len() > MAX_RANGE {
            return None;
        }
        let choices = text.split('|').map(str::trim);
        let mut choices = choices.filter(|choice| !choice.is_empty()).peekable();
        choices.peek()?;
        let choices = choices.map(|choice| all_of(choice, tilde));
        choices.collect::<Option<_>>().map(Self)
    }

    /// The one version that is in it, if it is only one.
    pub(crate) fn exact(&self) -> Option<Version> {
        match self.0.as_slice() {
            [(start, end)] if *end == (start.0, start.1, start.2 + 1) => Some(Version {
                major: start.0,
                minor: Some(start.1),
                patch: Some(start.2),
            }),
            _ => None,
        }
    }

    /// Whether the newest of what `version` names is in it.
    pub(crate) fn admits(&self, version: Version) -> bool {
        let newest = version.newest();
        self.0
            .iter()
            .any(|(start, end)| *start <= newest && newest < *end)
    }

    /// The version to use: exactly the one, else the usual one, else the newest known that fits.
    pub(crate) fn choose(&self, usual: Version, known: &[Version]) -> Option<Version> {
        let fits = |version: &Version| self.admits(*version);
        let exact = self.exact();
        exact
            .or_else(|| Some(usual).filter(fits))
            .or_else(|| known.iter().copied().filter(fits).max())
    }
}

/// What `>=18 <21`, `^20.5`, `18.x`, `3.8 - 3.11` and `~=3.9,!=3.9.2` have in common.
fn all_of(text: &str, tilde: Tilde) -> Option<(Point, Point)> {
    let mut range = ((0, 0, 0), END);
    let mut words = words(text)?.into_iter().peekable();
    while let Some((operator, version)) = words.next() {
        let (start, end) = if words.peek().is_some_and(|(next, _)| *next == "-") {
            let (_, last) = words.next()?;
            (
                version.map_or((0, 0, 0), Version::start),
                last.map_or(END, Version::end),
            )
        } else {
            bounds(operator, version, tilde)?
        };
        range = (range.0.max(start), range.1.min(end));
    }
    Some(range)
}

/// Operators with their versions; a version of none is `*`.
fn words(text: &str) -> Option<Vec<(&str, Option<Version>)>> {
    let mut words = Vec::new();
    let mut rest = text.trim_start_matches([' ', ',', '\t']);
    while !rest.is_empty() {
        let end = rest.find(|c| !"<>=!~^-".contains(c)).unwrap_or(rest.len());
        let (operator, after) = rest.split_at(end);
        let after = after.trim_start();
        let end = after.find([' ', ',', '\t', '<', '>', '=', '!', '~', '^']);
        let (version, after) = after.split_at(end.unwrap_or(after.len()));
        words.push((operator, loose(version)?));
        rest = after.trim_start_matches([' ', ',', '\t']);
    }
    Some(words)
}

/// `20`, `v20.x`, `3.9.*`, `8.2.0-dev`, `*`: wildcards and what follows the numbers are left out.
#[expect(clippy::option_option, reason = "no version at all, and any version")]
fn loose(text: &str) -> Option<Option<Version>> {
    let text = text.strip_prefix('v').unwrap_or(text);
    if matches!(text, "*" | "x" | "X") {
        return Some(None);
    }
    let end = text.find(['-', '+', '@']).unwrap_or(text.len());
    let text = text.get(..end)?;
    let mut text = text;
    while let Some(shorter) = [".*", ".x", ".X"]
        .iter()
        .find_map(|end| text.strip_suffix(end))
    {
        text = shorter;
    }
    // `8.2.0.0` is how Composer writes what it has normalised.
    let parts = text.match_indices('.').nth(2).map(|(at, _)| at);
    Version::parse(text.get(..parts.unwrap_or(text.len()))?).map(Some)
}

fn bounds(operator: &str, version: Option<Version>, tilde: Tilde) -> Option<(Point, Point)> {
    let zero = (0, 0, 0);
    let Some(version) = version else {
        return Some((zero, END));
    };
    let (start, end) = (version.start(), version.end());
    Some(match operator {
        "" | "=" | "==" | "===" => (start, end),
        ">=" => (start, END),
        ">" => (end, END),
        "<" => (zero, start),
        "<=" => (zero, end),
        // One version less is not what decides about a language.
        "!=" => (zero, END),
        "^" if version.major > 0 => (start, (version.major + 1, 0, 0)),
        "^" => (start, (0, start.1 + 1, 0)),
        "~" if tilde == Tilde::Minor && version.minor.is_some() => {
            (start, (start.0, start.1 + 1, 0))
        }
        "~" | "~=" if version.patch.is_some() => (start, (start.0, start.1 + 1, 0)),
        "~" | "~=" => (start, (start.0 + 1, 0, 0)),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(text: &str) -> Version {
        Version::parse(text).unwrap()
    }

    #[test]
    fn versions_are_numbers_and_nothing_else() {
        for good in ["20", "3.12", "20.11.1", "0"] {
            assert_eq!(version(good).to_string(), good);
        }
        assert_eq!(version("v18.2").to_string(), "18.2");
        for bad in [
            "",
            "v",
            "a",
            "1.",
            ".1",
            "1.2.3.4",
            "1 2",
            "1\n",
            "-1",
            "+1",
            "1.x",
            "10000",
            "99999999999",
            "20-slim",
            "20@sha256",
            "²",
            "1..2",
        ] {
            assert_eq!(Version::parse(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn ranges_admit_what_their_tools_would() {
        for (range, good, bad) in [
            (">=18", &["18", "22"][..], &["16"][..]),
            (">= 18.0.0 < 21", &["18", "20"], &["21", "17"]),
            ("^20.5.0", &["20"], &["19", "21", "20.4"]),
            ("18 || 20", &["18", "20"], &["19", "22"]),
            ("20.x", &["20"], &["21"]),
            ("*", &["1", "99"], &[]),
            ("18 - 20", &["18", "20"], &["21", "17"]),
            (">=3.8,<4.0", &["3.8", "3.13"], &["4.0", "3.7"]),
            ("~=3.9", &["3.9", "3.12"], &["4.0", "3.8"]),
            ("==3.11.*", &["3.11"], &["3.12", "3.10"]),
            ("~3.9", &["3.9"], &["3.10"]),
            ("^0.3", &["0.3"], &["0.4"]),
            (">3.9", &["3.10"], &["3.9"]),
            ("<=3.9", &["3.9"], &["3.10"]),
            (">=3.9,!=3.9.7", &["3.9", "3.12"], &["3.8"]),
        ] {
            let parsed = Range::parse(range, Tilde::Minor).unwrap();
            for text in good {
                assert!(parsed.admits(version(text)), "{range} {text}");
            }
            for text in bad {
                assert!(!parsed.admits(version(text)), "{range} {text}");
            }
        }
        let composer = Range::parse("~8.1 | ^7.4", Tilde::LastGiven).unwrap();
        assert!(composer.admits(version("8.3")) && composer.admits(version("7.4")));
        assert!(!composer.admits(version("9.0")) && !composer.admits(version("7.3")));
    }

    #[test]
    fn nonsense_is_no_range() {
        let long = "1 ".repeat(200);
        for bad in [
            "", " ", "||", "latest", ">=", "=>18", "1 ; rm", "$(x)", "18\n19", &long,
        ] {
            assert_eq!(Range::parse(bad, Tilde::Minor), None, "{bad:?}");
        }
    }

    #[test]
    fn the_usual_version_is_taken_where_it_fits() {
        let known = [Version::major(20), Version::major(18), Version::major(24)];
        let choose = |text: &str| {
            let range = Range::parse(text, Tilde::Minor).unwrap();
            let chosen = range.choose(Version::major(22), &known);
            chosen.map(|version| version.to_string())
        };
        assert_eq!(choose(">=18").as_deref(), Some("22"));
        assert_eq!(choose("<22").as_deref(), Some("20"));
        assert_eq!(choose(">22").as_deref(), Some("24"));
        assert_eq!(choose("20.11.1").as_deref(), Some("20.11.1"));
        assert_eq!(choose(">=90"), None);
    }
}
