//! Limits of `_redirects` and `_headers`, checked when a release is made.
//!
//! The edge looks at these rules for every request of a site, on threads that all tenants share. So
//! how many there are, and how long each is, is bounded, and whoever deploys more is told so.

use std::fmt;

/// The file with redirects; it is not served.
pub const REDIRECTS_FILE: &str = "_redirects";
/// The file with headers; it is not served.
pub const HEADERS_FILE: &str = "_headers";

/// Most bytes of one of these files.
pub const MAX_FILE_BYTES: u64 = 512 * 1024;
/// Most bytes of a line of `_redirects`.
pub const MAX_LINE_BYTES: usize = 4096;
/// Most bytes of a line of `_headers`, which is what a response gets of them at most.
pub const MAX_HEADER_LINE_BYTES: usize = 16 * 1024;
/// Most rules of `_redirects`.
pub const MAX_REDIRECTS: usize = 2000;
/// Most paths of `_headers`.
pub const MAX_HEADER_RULES: usize = 1000;
/// Most headers of all paths of `_headers` together.
pub const MAX_HEADERS: usize = 5000;
/// Most rules of a file that have a placeholder, such as `/:year/*`. Each may be a branch of its own
/// that a request has to be held against.
pub const MAX_PLACEHOLDER_RULES: usize = 100;
/// Most segments of a path pattern.
pub const MAX_SEGMENTS: usize = 32;

/// A limit that a file of rules exceeds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExceededLimit {
    file: &'static str,
    /// None when it is the whole file.
    line: Option<usize>,
    reason: String,
}

impl fmt::Display for ExceededLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "{}, line {line}: {}", self.file, self.reason),
            None => write!(f, "{}: {}", self.file, self.reason),
        }
    }
}

/// Checks the size of a file of rules before it is read.
pub fn check_size(file: &'static str, bytes: u64) -> Result<(), ExceededLimit> {
    if bytes <= MAX_FILE_BYTES {
        return Ok(());
    }
    Err(ExceededLimit {
        file,
        line: None,
        reason: format!("the file has {bytes} bytes; at most {MAX_FILE_BYTES} are allowed"),
    })
}

/// Checks the text of `_redirects`.
pub fn check_redirects(text: &str) -> Result<(), ExceededLimit> {
    let mut counts = Counts::new(REDIRECTS_FILE, MAX_REDIRECTS);
    for (line, text) in rule_lines(text) {
        counts.check_length(line, text, MAX_LINE_BYTES)?;
        let pattern = text.split_whitespace().next().unwrap_or_default();
        counts.add_pattern(line, pattern)?;
    }
    Ok(())
}

/// Checks the text of `_headers`.
pub fn check_headers(text: &str) -> Result<(), ExceededLimit> {
    let mut counts = Counts::new(HEADERS_FILE, MAX_HEADER_RULES);
    let mut headers = 0;
    for (line, text) in rule_lines(text) {
        counts.check_length(line, text, MAX_HEADER_LINE_BYTES)?;
        if text.starts_with('/') {
            counts.add_pattern(line, text)?;
            continue;
        }
        headers += 1;
        if headers > MAX_HEADERS {
            let reason = format!("at most {MAX_HEADERS} headers are allowed");
            return Err(counts.exceeded(line, reason));
        }
    }
    Ok(())
}

/// Lines that are neither empty nor comments, with their numbers.
fn rule_lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let lines = text.lines().enumerate();
    let trimmed = lines.map(|(index, line)| (index + 1, line.trim()));
    trimmed.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'))
}

struct Counts {
    file: &'static str,
    max_rules: usize,
    rules: usize,
    with_placeholders: usize,
}

impl Counts {
    fn new(file: &'static str, max_rules: usize) -> Self {
        Self {
            file,
            max_rules,
            rules: 0,
            with_placeholders: 0,
        }
    }

    fn check_length(&self, line: usize, text: &str, max: usize) -> Result<(), ExceededLimit> {
        if text.len() <= max {
            return Ok(());
        }
        let reason = format!("a line has at most {max} bytes");
        Err(self.exceeded(line, reason))
    }

    fn add_pattern(&mut self, line: usize, pattern: &str) -> Result<(), ExceededLimit> {
        let segments = || pattern.split('/').filter(|segment| !segment.is_empty());
        self.rules += 1;
        self.with_placeholders += usize::from(segments().any(|it| it.starts_with(':')));
        if self.rules > self.max_rules {
            let reason = format!("at most {} rules are allowed", self.max_rules);
            return Err(self.exceeded(line, reason));
        }
        if self.with_placeholders > MAX_PLACEHOLDER_RULES {
            let reason =
                format!("at most {MAX_PLACEHOLDER_RULES} rules with placeholders are allowed");
            return Err(self.exceeded(line, reason));
        }
        if segments().count() > MAX_SEGMENTS {
            let reason = format!("a path has at most {MAX_SEGMENTS} segments");
            return Err(self.exceeded(line, reason));
        }
        Ok(())
    }

    fn exceeded(&self, line: usize, reason: String) -> ExceededLimit {
        ExceededLimit {
            file: self.file,
            line: Some(line),
            reason,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(checked: Result<(), ExceededLimit>) -> String {
        checked.map_or_else(|exceeded| exceeded.to_string(), |()| "fine".into())
    }

    #[test]
    fn an_exceeded_limit_names_the_file_the_line_and_the_limit() {
        let rules = |count: usize| "# a comment\n\n/a /b 302\n".repeat(count);
        assert_eq!(message(check_redirects(&rules(MAX_REDIRECTS))), "fine");
        assert_eq!(
            message(check_redirects(&rules(MAX_REDIRECTS + 1))),
            "_redirects, line 6003: at most 2000 rules are allowed"
        );
        assert_eq!(
            message(check_redirects(&"/:a/b /c\n".repeat(101))),
            "_redirects, line 101: at most 100 rules with placeholders are allowed"
        );
        assert_eq!(
            message(check_redirects(&format!("{} /x\n", "/a".repeat(33)))),
            "_redirects, line 1: a path has at most 32 segments"
        );
        assert_eq!(
            message(check_redirects(&format!("/a /{}\n", "x".repeat(4096)))),
            "_redirects, line 1: a line has at most 4096 bytes"
        );
        assert_eq!(
            message(check_headers(&"/a\n".repeat(1001))),
            "_headers, line 1001: at most 1000 rules are allowed"
        );
        assert_eq!(
            message(check_headers(&format!("/a\n{}", " x: y\n".repeat(5001)))),
            "_headers, line 5002: at most 5000 headers are allowed"
        );
        assert_eq!(
            message(check_size(HEADERS_FILE, 524_289)),
            "_headers: the file has 524289 bytes; at most 524288 are allowed"
        );
    }
}
