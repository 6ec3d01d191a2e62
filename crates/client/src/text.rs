//! Text of others on its way to a terminal: without what would steer it.
//!
//! Logs, build output, names and answers of models are somebody else's text. A terminal obeys control sequences in
//! them: they move the cursor over earlier lines, change its title, answer for the user, or write its clipboard.

/// A text in which nothing steers a terminal; lines and tabs stay.
pub fn neutralize(text: &str) -> String {
    Neutralizer::default().push(text)
}

/// The same for one line or one cell of a table: no line ends, either.
pub fn neutralize_line(text: &str) -> String {
    neutralize(text).replace(['\n', '\t'], " ")
}

/// The text that these bytes complete. The beginning of a character waits in `begun` for its end; what is no UTF-8 is
/// replaced.
pub(crate) fn take_text(begun: &mut Vec<u8>, bytes: &[u8]) -> String {
    begun.extend_from_slice(bytes);
    let whole = std::mem::take(begun);
    let mut text = String::with_capacity(whole.len());
    let mut chunks = whole.utf8_chunks().peekable();
    while let Some(chunk) = chunks.next() {
        text.push_str(chunk.valid());
        let rest = chunk.invalid();
        if chunks.peek().is_none() && is_begun_character(rest) {
            begun.extend_from_slice(rest);
        } else if !rest.is_empty() {
            text.push('\u{fffd}');
        }
    }
    text
}

fn is_begun_character(bytes: &[u8]) -> bool {
    !bytes.is_empty() && std::str::from_utf8(bytes).is_err_and(|error| error.error_len().is_none())
}

/// Removes control sequences (ECMA-48) from a text that comes in pieces, and replaces other control characters.
///
/// Every sequence ends at its final byte or at the end of the line, whichever comes first: one that is never finished
/// hides no more than a line.
#[derive(Debug, Default)]
pub struct Neutralizer {
    state: State,
    /// The beginning of a character whose other bytes have not come yet.
    begun: Vec<u8>,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum State {
    #[default]
    Text,
    /// After ESC.
    Escape,
    /// `ESC [` up to a byte of `@` to `~`.
    Control,
    /// `ESC ]` and its kin up to BEL or `ESC \`.
    Command,
    /// ESC inside of a command: its end, if `\` follows.
    CommandEscape,
}

impl Neutralizer {
    /// The next piece.
    pub fn push(&mut self, piece: &str) -> String {
        let mut shown = String::with_capacity(piece.len());
        for char in piece.chars() {
            if let Some(char) = self.step(char) {
                shown.push(char);
            }
        }
        shown
    }

    /// The next piece, as bytes of UTF-8.
    pub fn push_bytes(&mut self, piece: &[u8]) -> String {
        let text = take_text(&mut self.begun, piece);
        self.push(&text)
    }

    /// What is left at the end of the bytes: a character that is cut off.
    pub fn finish(&mut self) -> String {
        let rest = std::mem::take(&mut self.begun);
        self.push(&String::from_utf8_lossy(&rest))
    }

    fn step(&mut self, char: char) -> Option<char> {
        if char == '\n' {
            self.state = State::Text;
            return Some('\n');
        }
        match self.state {
            State::Text => self.step_text(char),
            State::Escape => self.step_escape(char),
            State::Control => self.step_control(char),
            State::Command | State::CommandEscape => {
                self.step_command(char);
                None
            }
        }
    }

    fn step_escape(&mut self, char: char) -> Option<char> {
        self.state = match char {
            '[' => State::Control,
            ']' | 'P' | 'X' | '^' | '_' => State::Command,
            // An intermediate byte: the final one follows.
            ' '..='/' => State::Escape,
            '0'..='~' => State::Text,
            _ => return self.give_up(char),
        };
        None
    }

    fn step_control(&mut self, char: char) -> Option<char> {
        self.state = match char {
            ' '..='?' => State::Control,
            '@'..='~' => State::Text,
            _ => return self.give_up(char),
        };
        None
    }

    fn step_command(&mut self, char: char) {
        self.state = match (self.state, char) {
            (State::CommandEscape, '\\') | (_, '\u{7}' | '\u{9c}') => State::Text,
            (_, '\u{1b}') => State::CommandEscape,
            _ => State::Command,
        };
    }

    /// Nothing that a sequence may hold: it was none.
    fn give_up(&mut self, char: char) -> Option<char> {
        self.state = State::Text;
        self.step_text(char)
    }

    fn step_text(&mut self, char: char) -> Option<char> {
        match char {
            '\u{1b}' => {
                self.state = State::Escape;
                None
            }
            '\t' => Some('\t'),
            '\r' => None,
            _ if char.is_control() || reorders(char) => Some('\u{fffd}'),
            _ => Some(char),
        }
    }
}

/// Characters that change the direction of the text around them, so that it reads as something else.
fn reorders(char: char) -> bool {
    matches!(char, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{200e}' | '\u{200f}' | '\u{061c}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequences_vanish_and_text_stays() {
        for (text, shown) in [
            ("plain µ→ text\twith tab\n", "plain µ→ text\twith tab\n"),
            ("\u{1b}[32mgreen\u{1b}[0m", "green"),
            ("\u{1b}[2J\u{1b}[1;1Hx", "x"),
            ("\u{1b}]0;title\u{7}x", "x"),
            ("\u{1b}]52;c;Y2xpcA==\u{1b}\\x", "x"),
            ("\u{1b}Pq#0\u{1b}\\x", "x"),
            ("\u{1b}(Bx\u{1b}cy\u{1b}7z", "xyz"),
            ("10 %\r20 %\r\n", "10 %20 %\n"),
            (
                "bell\u{7} null\0 del\u{7f} csi\u{9b}31m",
                "bell\u{fffd} null\u{fffd} del\u{fffd} csi\u{fffd}31m",
            ),
            ("a\u{202e}b\u{2066}c", "a\u{fffd}b\u{fffd}c"),
            ("\u{1b}\u{1b}[31mx", "x"),
        ] {
            assert_eq!(neutralize(text), shown, "{text:?}");
        }
        assert_eq!(neutralize_line("a\nb\tc"), "a b c");
    }

    #[test]
    fn what_is_never_finished_hides_no_more_than_its_line() {
        for open in ["\u{1b}]0;", "\u{1b}[", "\u{1b}P", "\u{1b}"] {
            let shown = neutralize(&format!("{open}1;2\nnext line"));
            assert!(shown.ends_with("\nnext line"), "{open:?} {shown:?}");
        }
    }

    #[test]
    fn pieces_are_treated_like_the_whole() {
        let text = "a\u{1b}[3\u{1b}[32mb\u{1b}]0;t\u{1b}\\c\u{1b}]x\u{7}d\n";
        let whole = neutralize(text);
        let mut pieces = Neutralizer::default();
        let mut joined = String::new();
        for char in text.chars() {
            joined.push_str(&pieces.push(&char.to_string()));
        }
        assert_eq!(joined, whole);
        assert!(!whole.contains('\u{1b}'));
    }

    #[test]
    fn bytes_are_treated_like_the_whole_text() {
        let text = "é\u{1b}[32m→\u{1b}]0;t😀\u{1b}\\\u{9b}x😀\n";
        for size in 1..text.len() {
            let (mut neutralizer, mut joined) = (Neutralizer::default(), String::new());
            for piece in text.as_bytes().chunks(size) {
                joined.push_str(&neutralizer.push_bytes(piece));
            }
            joined.push_str(&neutralizer.finish());
            assert_eq!(joined, neutralize(text), "{size}");
        }
        let mut neutralizer = Neutralizer::default();
        assert_eq!(neutralizer.push_bytes(b"a\xe2\x86"), "a");
        assert_eq!(neutralizer.finish(), "\u{fffd}");
    }

    #[test]
    fn characters_that_come_in_pieces_are_whole() {
        let text = "aé→😀\u{3}z";
        for size in 1..text.len() {
            let (mut begun, mut typed) = (Vec::new(), String::new());
            for piece in text.as_bytes().chunks(size) {
                typed.push_str(&take_text(&mut begun, piece));
            }
            assert_eq!((typed.as_str(), begun.len()), (text, 0), "{size}");
        }
    }

    #[test]
    fn what_is_no_text_is_replaced_and_delays_nothing() {
        let mut begun = Vec::new();
        assert_eq!(take_text(&mut begun, b"a\xffb\xe9c"), "a\u{fffd}b\u{fffd}c");
        assert_eq!(take_text(&mut begun, b"\xe2\x86"), "");
        assert_eq!(take_text(&mut begun, b"x"), "\u{fffd}x");
        assert!(begun.is_empty());
    }

    #[test]
    fn nothing_that_steers_comes_through() {
        let steering = |char: char| char.is_control() && !matches!(char, '\n' | '\t');
        let all: String = (0..0x300_u32).filter_map(char::from_u32).collect();
        assert!(!neutralize(&all).contains(steering));
        for first in (0..0xa0_u32).filter_map(char::from_u32) {
            for second in (0..0xa0_u32).filter_map(char::from_u32) {
                let shown = neutralize(&format!("\u{1b}{first}{second}x"));
                assert!(!shown.contains(steering), "{first:?}{second:?}");
            }
        }
    }
}
