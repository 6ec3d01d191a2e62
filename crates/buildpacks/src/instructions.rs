//! The instructions of a user's Dockerfile, read so strictly that every engine reads the same in them.
//!
//! Versions of engines differ in what is a comment, where a line goes on and what is a space. So what could
//! be read in two ways is refused, and the engine never gets the user's text: it gets these instructions,
//! written anew, one on each line.

use crate::error::{Result, refused};
use std::fmt;

/// Every instruction that there is.
const KEYWORDS: [&str; 18] = [
    "FROM",
    "ARG",
    "RUN",
    "COPY",
    "ADD",
    "ONBUILD",
    "CMD",
    "ENTRYPOINT",
    "ENV",
    "EXPOSE",
    "HEALTHCHECK",
    "LABEL",
    "MAINTAINER",
    "SHELL",
    "STOPSIGNAL",
    "USER",
    "VOLUME",
    "WORKDIR",
];
/// Those that newer engines read the lines after, when they say so (`<<EOF`).
const WITH_DOCUMENTS: [&str; 3] = ["RUN", "COPY", "ADD"];
/// Engines read lines of up to 64 KiB.
const MAX_LINE_BYTES: usize = 60_000;

/// An instruction on one line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Instruction {
    /// In capitals.
    pub(crate) keyword: &'static str,
    /// What follows it.
    pub(crate) rest: String,
}

impl fmt::Display for Instruction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.keyword, self.rest)
    }
}

impl Instruction {
    /// Reads one that is on a line of its own.
    pub(crate) fn read(path: &str, line: &str) -> Result<Self> {
        if let Some(odd) = line.chars().find(|c| is_odd(*c)) {
            let odd = odd.escape_unicode();
            return Err(refused(
                path,
                format!("the character {odd} is not supported"),
            ));
        }
        let line = line.trim_matches([' ', '\t']);
        let (word, rest) = line.split_once([' ', '\t']).unwrap_or((line, ""));
        let keyword = KEYWORDS.iter().find(|it| it.eq_ignore_ascii_case(word));
        let keyword =
            keyword.ok_or_else(|| refused(path, format!("`{word}` is not an instruction")))?;
        let rest = rest.trim_start_matches([' ', '\t']);
        if rest.ends_with('\\') {
            return Err(refused(
                path,
                format!("{keyword}: an instruction cannot end with a backslash"),
            ));
        }
        if rest.len() > MAX_LINE_BYTES {
            return Err(refused(
                path,
                format!("{keyword}: the instruction is too long"),
            ));
        }
        if WITH_DOCUMENTS.contains(keyword) && words(rest).any(begins_document) {
            return Err(refused(
                path,
                format!(
                    "{keyword}: here-documents (`<<`) are not supported; use a script among the files"
                ),
            ));
        }
        Ok(Self {
            keyword,
            rest: rest.to_owned(),
        })
    }
}

/// Reads a Dockerfile.
pub(crate) fn read_all(path: &str, text: &str) -> Result<Vec<Instruction>> {
    let mut all = Vec::new();
    let mut begun: Option<String> = None;
    for line in text.lines() {
        if let Some(comment) = line.trim_start_matches([' ', '\t']).strip_prefix('#') {
            // Another sign for "goes on" would make this reader see other lines than the engine does.
            let comment = comment.trim_start().to_ascii_lowercase();
            if all.is_empty() && comment.starts_with("escape") {
                return Err(refused(path, "the directive `escape` is not supported"));
            }
            continue;
        }
        let line = line.trim_end_matches([' ', '\t']);
        if line.is_empty() {
            continue;
        }
        // As the engine joins lines: nothing comes between them, and nothing is lost.
        let so_far = begun.take().unwrap_or_default();
        match line.strip_suffix('\\') {
            // Engines do not agree what two of them mean.
            Some(before) if before.ends_with('\\') => {
                return Err(refused(path, "a line cannot end with two backslashes"));
            }
            Some(before) => begun = Some(so_far + before),
            None => all.push(Instruction::read(path, &(so_far + line))?),
        }
    }
    if let Some(begun) = begun.filter(|begun| !begun.trim().is_empty()) {
        all.push(Instruction::read(path, &begun)?);
    }
    Ok(all)
}

/// The words of an instruction.
pub(crate) fn words(rest: &str) -> impl Iterator<Item = &str> {
    rest.split([' ', '\t']).filter(|word| !word.is_empty())
}

/// What some take for a space or for nothing, and others do not.
pub(crate) fn is_odd(c: char) -> bool {
    let is_odd_space = c.is_whitespace() && !matches!(c, ' ' | '\t');
    is_odd_space || (c.is_control() && c != '\t') || c == '\u{feff}'
}

fn begins_document(word: &str) -> bool {
    let marked = word.trim_start_matches(|c: char| c.is_ascii_digit());
    marked
        .strip_prefix("<<")
        .is_some_and(|name| !name.is_empty() && !name.starts_with('<'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(text: &str) -> Result<String> {
        let all = read_all("Dockerfile", text)?;
        let lines: Vec<_> = all.iter().map(Instruction::to_string).collect();
        Ok(lines.join("\n") + "\n")
    }

    #[test]
    fn lines_are_joined_and_comments_are_gone() {
        let text = "# syntax=x\r\n\n  from  node:22\r\nRUN a \\\n  # why\n\n  b && \\  \n\tc\nCMD [\"x\"]\nENV A=ä \\\n";
        assert_eq!(
            written(text).unwrap(),
            "FROM node:22\nRUN a   b && \tc\nCMD [\"x\"]\nENV A=ä\n"
        );
        assert_eq!(
            written("RUN echo $((1 << 2)) <<<x <<").unwrap(),
            "RUN echo $((1 << 2)) <<<x <<\n"
        );
    }

    #[test]
    fn what_can_be_read_in_two_ways_is_refused() {
        for text in [
            "RUN true \\\u{c}\nFROM x",
            "RUN true \\\u{a0}\nFROM x",
            "RUN true \\\\\nFROM x",
            "RUN true \\ \r \nFROM x",
            "\u{feff}FROM x",
            "FROM\u{b}x",
            "FROM x\ry",
            "#\u{a}FORM x",
            "FROM x\nONBUILD",
            "FROM x\nCOPY <<E /x\nE",
            "FROM x\nRUN 3<<-EOF cat",
            "# Escape = `\nFROM x",
        ] {
            let read = read_all("Dockerfile", text);
            let alone = text.ends_with("ONBUILD");
            assert_eq!(read.is_err(), !alone, "{text:?} {read:?}");
        }
    }
}
