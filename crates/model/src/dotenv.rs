//! Reads and writes the text of a `.env` file.
//!
//! A line is `NAME=value`, perhaps with `export` before it. A value may stand in quotes and then go over several
//! lines: single quotes and backticks keep everything as it is, double quotes know `\n`, `\r`, `\t`, `\"`, `\\` and
//! `\$`. Without quotes it ends with the line, or before a `#` that follows a space. Nothing is expanded: `$HOME`
//! stays `$HOME`, because the values of this server are none of a project's business.

use crate::Invalid;
use crate::names::EnvKey;
use crate::project::{EnvSetting, MAX_ENVS};

/// Most errors that are reported at once.
const MAX_ERRORS: usize = 10;

/// What is wrong with a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LineError {
    /// Counted from 1.
    pub line: usize,
    pub message: String,
}

/// Reads every variable of a text, in its order; of two with one name the last one counts, at the place of the first.
///
/// # Errors
///
/// What is wrong with which lines, the first few of them.
pub fn parse(text: &str) -> Result<Vec<EnvSetting>, Vec<LineError>> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut reader = Reader {
        rest: text,
        line: 1,
    };
    let (mut found, mut errors): (Vec<EnvSetting>, Vec<LineError>) = (Vec::new(), Vec::new());
    while !reader.rest.is_empty() && errors.len() < MAX_ERRORS {
        let line = reader.line;
        match reader.read_entry() {
            Ok(None) => {}
            Ok(Some(new)) => {
                let known = found.iter().position(|old| old.key == new.key);
                let is_full = found.len() == MAX_ENVS;
                match known.and_then(|at| found.get_mut(at)) {
                    Some(old) => *old = new,
                    None if is_full => {
                        let message = format!("a project has at most {MAX_ENVS} variables");
                        errors.push(LineError { line, message });
                        // Bounds the search above, too.
                        break;
                    }
                    None => found.push(new),
                }
            }
            Err(message) => {
                errors.push(LineError { line, message });
                reader.skip_line();
            }
        }
    }
    if errors.is_empty() {
        Ok(found)
    } else {
        Err(errors)
    }
}

/// What is left of the text, and where it begins.
struct Reader<'t> {
    rest: &'t str,
    line: usize,
}

impl Reader<'_> {
    /// Reads a line, or several when a value in quotes goes over them. None: there is nothing on it.
    fn read_entry(&mut self) -> Result<Option<EnvSetting>, String> {
        self.skip_blanks();
        if self.rest.is_empty() || self.rest.starts_with(['\n', '#']) || self.at_crlf() {
            self.skip_line();
            return Ok(None);
        }
        if let Some(rest) = self.rest.strip_prefix("export")
            && rest.starts_with([' ', '\t'])
        {
            self.rest = rest;
            self.skip_blanks();
        }
        let key = self.read_key()?;
        self.skip_blanks();
        let value = match self.rest.chars().next() {
            Some(quote @ ('"' | '\'' | '`')) => self.read_quoted(quote)?,
            _ => self.read_plain(),
        };
        Ok(Some(EnvSetting { key, value }))
    }

    fn read_key(&mut self) -> Result<EnvKey, String> {
        let line = self.rest.split('\n').next().unwrap_or_default();
        let Some((name, _)) = line.split_once('=') else {
            return Err("there is no = in this line; write NAME=value".into());
        };
        let key = name.trim().parse();
        let key = key.map_err(|Invalid(reason)| format!("the name before = {reason}"))?;
        self.rest = self.rest.get(name.len() + 1..).unwrap_or_default();
        Ok(key)
    }

    /// A value without quotes: the rest of the line, without a comment.
    fn read_plain(&mut self) -> String {
        let line = self.rest.split('\n').next().unwrap_or_default();
        let is_comment = |at: &usize| {
            let before = line.get(..*at).unwrap_or_default();
            before.is_empty() || before.ends_with([' ', '\t'])
        };
        let end = line
            .match_indices('#')
            .map(|(at, _)| at)
            .find(is_comment)
            .unwrap_or(line.len());
        let value = line.get(..end).unwrap_or_default().trim().to_owned();
        self.skip_line();
        value
    }

    /// A value in quotes, and the end of its line.
    fn read_quoted(&mut self, quote: char) -> Result<String, String> {
        let mut value = String::new();
        let mut chars = self.rest.char_indices().skip(1).peekable();
        let mut end = None;
        while let Some((at, char)) = chars.next() {
            match char {
                _ if char == quote => {
                    end = Some(at + quote.len_utf8());
                    break;
                }
                '\\' if quote == '"' => {
                    let escaped = chars.peek().and_then(|&(_, next)| unescape(next));
                    value.push(escaped.unwrap_or('\\'));
                    if escaped.is_some() {
                        chars.next();
                    }
                }
                // Forms send every line end as CR LF, whatever the file has.
                '\r' if chars.peek().is_some_and(|&(_, next)| next == '\n') => {}
                _ => value.push(char),
            }
        }
        let Some(end) = end else {
            return Err(format!("the quote {quote} is never closed"));
        };
        let (inside, rest) = self.rest.split_at_checked(end).unwrap_or((self.rest, ""));
        let after = rest.split('\n').next().unwrap_or_default();
        if !(after.trim().is_empty() || after.trim_start().starts_with('#')) {
            return Err(format!(
                "there is more text after the closing {quote}; write \\{quote} inside, or use other quotes"
            ));
        }
        self.line += inside.matches('\n').count();
        self.rest = rest;
        self.skip_line();
        Ok(value)
    }

    fn skip_blanks(&mut self) {
        self.rest = self.rest.trim_start_matches([' ', '\t']);
    }

    fn at_crlf(&self) -> bool {
        self.rest.starts_with("\r\n") || self.rest == "\r"
    }

    fn skip_line(&mut self) {
        self.rest = self.rest.split_once('\n').map_or("", |(_, rest)| rest);
        self.line += 1;
    }
}

/// What a backslash and this character mean in double quotes; none: the backslash is one.
fn unescape(char: char) -> Option<char> {
    match char {
        'n' => Some('\n'),
        'r' => Some('\r'),
        't' => Some('\t'),
        '"' | '\\' | '$' => Some(char),
        _ => None,
    }
}

/// A value in double quotes, on one line, as [`parse`] reads it back.
pub fn quote(value: &str) -> String {
    let mut quoted = String::from("\"");
    for char in value.chars() {
        match char {
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '"' | '\\' | '$' => quoted.extend(['\\', char]),
            _ => quoted.push(char),
        }
    }
    quoted + "\""
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(text: &str) -> Vec<(String, String)> {
        let pair = |it: EnvSetting| (it.key.to_string(), it.value);
        parse(text).unwrap().into_iter().map(pair).collect()
    }

    fn one(text: &str) -> String {
        let all = read(text);
        assert_eq!(all.len(), 1, "{text:?} {all:?}");
        all[0].1.clone()
    }

    #[test]
    fn values_without_quotes() {
        for (text, value) in [
            ("A=1", "1"),
            ("A=", ""),
            ("  A = two words  ", "two words"),
            ("export A=1", "1"),
            ("export\tA=1\r\n", "1"),
            ("A=1 # comment", "1"),
            ("A=#comment", ""),
            ("A=a#b", "a#b"),
            ("A=https://x.example/#top", "https://x.example/#top"),
            ("A=it's", "it's"),
            ("A=x=y==", "x=y=="),
            ("A=$HOME/${B}", "$HOME/${B}"),
            (r"A=C:\new", r"C:\new"),
            ("\u{feff}A=1", "1"),
        ] {
            assert_eq!(one(text), value, "{text:?}");
        }
    }

    #[test]
    fn values_in_quotes() {
        for (text, value) in [
            ("A='a # b'", "a # b"),
            ("A=' a '", " a "),
            (r"A='a\nb'", r"a\nb"),
            (r#"A="a\nb\t\"c\" \\ \$D""#, "a\nb\t\"c\" \\ $D"),
            (r#"A="C:\Users""#, r"C:\Users"),
            ("A=`both \" and '`", "both \" and '"),
            ("A=\"one\ntwo\"", "one\ntwo"),
            ("A=\"one\r\ntwo\" # comment", "one\ntwo"),
            ("A=''", ""),
            ("A=\"\"   ", ""),
            ("A='µ→'", "µ→"),
        ] {
            assert_eq!(one(text), value, "{text:?}");
        }
    }

    #[test]
    fn comments_empty_lines_and_the_last_of_two() {
        let text =
            "# top\r\n\r\nA=1\n   # indented\nexport B='x\ny' # why\n\t\nA=3\nexportC=4\nexport=5";
        let found = read(text);
        let expected = [("A", "3"), ("B", "x\ny"), ("exportC", "4"), ("export", "5")];
        let owned = expected.map(|(key, value)| (key.to_owned(), value.to_owned()));
        assert_eq!(found, owned);
        assert_eq!(read(""), []);
        assert_eq!(read("#"), []);
        assert_eq!(read("\r\n\n \t"), []);
    }

    #[test]
    fn errors_name_their_lines() {
        let text = "A=1\nnonsense\nB='x\ny'\n1C=2\nD E=3\n<b>=4\nF=\"never";
        let errors = parse(text).unwrap_err();
        let lines: Vec<_> = errors.iter().map(|it| it.line).collect();
        assert_eq!(lines, [2, 5, 6, 7, 8], "{errors:?}");
        assert!(errors[4].message.contains("never closed"));
        assert_eq!(parse("A='x' y").unwrap_err()[0].line, 1);
        assert_eq!(parse("=x").unwrap_err().len(), 1);
        assert_eq!(parse(&"x\n".repeat(1000)).unwrap_err().len(), MAX_ERRORS);
        let line = |at: usize| format!("A{at}=");
        let many: Vec<_> = (0..=MAX_ENVS).map(line).collect();
        let many = many.join("\n");
        assert_eq!(parse(&many).unwrap_err()[0].line, MAX_ENVS + 1);
    }

    proptest! {
        #[test]
        fn what_is_written_in_double_quotes_is_read_back(
            variables in proptest::collection::btree_map("[A-Za-z_][A-Za-z0-9_.-]{0,20}", any::<String>(), 0..20),
            export: bool,
        ) {
            let prefix = if export { "export " } else { "" };
            let line = |(key, value): (&String, &String)| {
                format!("{prefix}{key}={} # comment", quote(value))
            };
            let lines: Vec<_> = variables.iter().map(line).collect();
            let text = lines.join("\n");
            let expected: Vec<_> = variables.into_iter().collect();
            prop_assert_eq!(read(&text), expected);
        }

        #[test]
        fn single_quotes_keep_all_but_their_own_kind(value in "[^'\r]*") {
            prop_assert_eq!(one(&format!("A='{value}'")), value);
        }

        #[test]
        fn no_text_breaks_it(text in any::<String>()) {
            if let Err(errors) = parse(&text) {
                prop_assert!(!errors.is_empty() && errors.len() <= MAX_ERRORS);
            }
        }

        #[test]
        fn no_text_of_its_own_characters_breaks_it(text in "[A='\"`\\\\n#$ \t\r\n]{0,60}") {
            let lines = text.lines().count().max(1);
            if let Err(errors) = parse(&text) {
                prop_assert!(errors.iter().all(|it| (1..=lines + 1).contains(&it.line)));
            }
        }
    }
}
