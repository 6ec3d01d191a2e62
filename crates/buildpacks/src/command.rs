//! Commands: what starts an app, and what builds it.

use crate::error::{Result, refused};
use serde_json::Value;

/// Longest command, in bytes. A line of a Dockerfile is at most 64 KiB, and JSON may need six
/// bytes for one.
const MAX_COMMAND_BYTES: usize = 8 * 1024;
/// Most words of a command.
const MAX_WORDS: usize = 500;
/// Words that only a shell knows.
const OF_THE_SHELL: [&str; 27] = [
    ".", ":", "[", "alias", "case", "cd", "command", "eval", "exec", "exit", "export", "for", "if",
    "read", "readonly", "set", "shift", "source", "test", "time", "trap", "type", "ulimit",
    "umask", "unset", "until", "while",
];

/// Something to run. Both kinds are rendered as a JSON array, so nothing in them can end the
/// instruction that they are part of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Command {
    /// A program with its arguments.
    Words(Vec<String>),
    /// A line for a shell.
    Shell(String),
}

impl Command {
    /// A program with its arguments.
    pub(crate) fn words<S: AsRef<str>>(words: &[S]) -> Self {
        Self::Words(words.iter().map(|word| word.as_ref().to_owned()).collect())
    }

    /// What somebody wrote on one line. It goes to a shell only when it needs one.
    pub(crate) fn from_line(line: &str) -> Option<Self> {
        let line = line.trim();
        if line.is_empty() || line.len() > MAX_COMMAND_BYTES || line.contains('\0') {
            return None;
        }
        let words: Vec<_> = line.split_ascii_whitespace().collect();
        let first = words.first()?;
        let program = !first.contains('=') && !OF_THE_SHELL.contains(first) && !line.contains('\n');
        if program && words.len() <= MAX_WORDS && words.iter().all(|word| is_plain(word)) {
            return Some(Self::words(&words));
        }
        // The program shall get the signals that stop it, not the shell around it.
        let several = line.contains([';', '&', '|', '<', '>', '(', ')', '`', '\n', '{', '#']);
        if program && !several {
            return Some(Self::Shell(format!("exec {line}")));
        }
        Some(Self::Shell(line.to_owned()))
    }

    /// Reads a line, or a list of words.
    pub(crate) fn from_json(place: &str, value: &Value) -> Result<Self> {
        let wrong = || {
            let advice = "must be a command: a line of text or a list of words, 8 KiB at most";
            refused(place, advice)
        };
        match value {
            Value::String(line) => Self::from_line(line).ok_or_else(wrong),
            Value::Array(_) => word_list(value).map(Self::Words).ok_or_else(wrong),
            _ => Err(wrong()),
        }
    }

    /// The words that the engine is to run.
    pub(crate) fn argv(&self) -> Vec<&str> {
        match self {
            Self::Words(words) => words.iter().map(String::as_str).collect(),
            Self::Shell(line) => vec!["/bin/sh", "-c", line],
        }
    }

    /// As a person would write it, for notes.
    pub(crate) fn shown(&self) -> String {
        match self {
            Self::Words(words) => words.join(" "),
            Self::Shell(line) => line.strip_prefix("exec ").unwrap_or(line).to_owned(),
        }
    }
}

/// A list of words, not empty and not endless.
pub(crate) fn word_list(value: &Value) -> Option<Vec<String>> {
    let words = value
        .as_array()?
        .iter()
        .map(|word| word.as_str().map(str::to_owned));
    let words: Vec<_> = words.collect::<Option<_>>()?;
    let length: usize = words.iter().map(String::len).sum();
    let sane = length <= MAX_COMMAND_BYTES && !words.iter().any(|word| word.contains('\0'));
    let named = words.first().is_some_and(|word| !word.is_empty());
    (sane && named && words.len() <= MAX_WORDS).then_some(words)
}

/// Whether neither a shell nor a Dockerfile sees anything but a word in it.
pub(crate) fn is_plain(word: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"@%+=:,./_-".contains(&byte);
    !word.is_empty() && word.bytes().all(plain)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_line_needs_a_shell_only_if_it_says_so() {
        let words = |line: &str| match Command::from_line(line) {
            Some(Command::Words(words)) => words.join("|"),
            other => panic!("{line}: {other:?}"),
        };
        assert_eq!(
            words(" node  server.js --port=80 "),
            "node|server.js|--port=80"
        );
        for (line, shell) in [
            ("serve -p $PORT", "exec serve -p $PORT"),
            ("serve \"a b\"", "exec serve \"a b\""),
            ("A=1 node x", "A=1 node x"),
            ("exec node x", "exec node x"),
            ("cd app", "cd app"),
            ("a && b", "a && b"),
            ("a\nb", "a\nb"),
            ("a $(b)", "a $(b)"),
        ] {
            assert_eq!(
                Command::from_line(line),
                Some(Command::Shell(shell.into())),
                "{line}"
            );
        }
        let long = "x".repeat(MAX_COMMAND_BYTES + 1);
        for bad in ["", "  ", "a\0b", &long] {
            assert_eq!(Command::from_line(bad), None);
        }
    }

    #[test]
    fn lists_are_words() {
        let list = Command::from_json("x", &json!(["a b", "$c"])).unwrap();
        assert_eq!(list.argv(), ["a b", "$c"]);
        let line = Command::from_json("x", &json!("a $c")).unwrap();
        assert_eq!(line.argv(), ["/bin/sh", "-c", "exec a $c"]);
        assert_eq!(line.shown(), "a $c");
        for bad in [
            json!([]),
            json!([""]),
            json!([1]),
            json!(1),
            json!(["a\0"]),
            json!(""),
        ] {
            let error = Command::from_json("build.command", &bad)
                .unwrap_err()
                .to_string();
            assert!(error.starts_with("build.command: "), "{bad}: {error}");
        }
    }
}
