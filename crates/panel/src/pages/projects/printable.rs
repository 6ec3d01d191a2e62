//! Texts of strangers (log lines, messages, commits) without what would mislead a reader.
//!
//! The template engine escapes markup; this removes terminal escape sequences and characters that are invisible or that
//! change the direction of what follows them.

/// Longest line that is shown, in characters.
const MAX_LINE_CHARS: usize = 4000;

/// A line of a log.
pub(super) fn line(text: &str) -> String {
    cut(&visible(text), MAX_LINE_CHARS)
}

/// A text on one line, at most so many characters long.
pub(super) fn short(text: &str, max_chars: usize) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    cut(&visible(&words.join(" ")), max_chars)
}

fn cut(text: &str, max_chars: usize) -> String {
    match text.char_indices().nth(max_chars) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}…", &text[..end]),
    }
}

fn visible(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\u{1b}' => skip_escape(&mut chars),
            '\t' => shown.push_str("    "),
            // What a progress bar overwrites is of no interest.
            '\r' if chars.peek().is_none() => {}
            c if c.is_control() || is_misleading(c) => shown.push('\u{fffd}'),
            c => shown.push(c),
        }
    }
    shown
}

/// Skips an escape sequence (ECMA-48): CSI up to its final byte, OSC and other strings up to their terminator.
fn skip_escape(chars: &mut std::iter::Peekable<std::str::Chars<'_>>) {
    match chars.next() {
        Some('[') => {
            chars.find(|c| ('\u{40}'..='\u{7e}').contains(c));
        }
        Some(']' | 'P' | 'X' | '^' | '_') => {
            while let Some(c) = chars.next() {
                let is_end = c == '\u{7}' || c == '\u{9c}';
                if is_end || (c == '\u{1b}' && chars.next_if_eq(&'\\').is_some()) {
                    return;
                }
            }
        }
        // Two-byte sequences, perhaps with bytes in between.
        Some(c) if (' '..='/').contains(&c) => {
            chars.find(|c| ('0'..='~').contains(c));
        }
        _ => {}
    }
}

/// Marks of direction, and characters without width.
fn is_misleading(c: char) -> bool {
    matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2028}' | '\u{2029}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escape_sequences_are_not_shown() {
        for (text, shown) in [
            ("plain größer 🦀", "plain größer 🦀"),
            ("\u{1b}[1;31merror\u{1b}[0m: x", "error: x"),
            ("\u{1b}]0;title\u{7}after", "after"),
            ("\u{1b}]8;;http://x\u{1b}\\link\u{1b}]8;;\u{1b}\\", "link"),
            ("\u{1b}(Btext", "text"),
            ("cut \u{1b}[31", "cut "),
            ("end\u{1b}", "end"),
            ("a\tb\r", "a    b"),
            ("nul\0bell\u{7}", "nul\u{fffd}bell\u{fffd}"),
            ("safe\u{202e}gpj.exe", "safe\u{fffd}gpj.exe"),
        ] {
            assert_eq!(line(text), shown, "{text:?}");
        }
    }

    #[test]
    fn long_texts_are_cut() {
        assert_eq!(line(&"ä".repeat(5000)).chars().count(), MAX_LINE_CHARS + 1);
        assert_eq!(short("a\nb\n\n  c", 100), "a b c");
        assert_eq!(short("abcdef", 3), "abc…");
    }
}
