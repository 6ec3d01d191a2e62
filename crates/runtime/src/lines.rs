//! Text in pieces becomes lines of a bounded length.

/// The longest line; a longer one becomes several.
pub(crate) const LONGEST: usize = 16 << 10;

/// Collects pieces of text until they are lines.
#[derive(Default)]
pub(crate) struct Lines {
    begun: Vec<u8>,
}

impl Lines {
    /// Adds a piece; calls `line` for every line that is complete now.
    pub(crate) fn push(&mut self, mut piece: &[u8], mut line: impl FnMut(String)) {
        while !piece.is_empty() {
            let end = memchr::memchr(b'\n', piece);
            let room = LONGEST - self.begun.len();
            let taken = end.unwrap_or(piece.len()).min(room);
            self.begun.extend_from_slice(&piece[..taken]);
            let whole = end == Some(taken);
            piece = &piece[taken + usize::from(whole)..];
            if whole {
                line(self.take(self.begun.len()));
            } else if self.begun.len() == LONGEST {
                line(self.take(boundary(&self.begun)));
            }
        }
    }

    /// What was begun and has no end.
    pub(crate) fn rest(&mut self) -> Option<String> {
        (!self.begun.is_empty()).then(|| self.take(self.begun.len()))
    }

    fn take(&mut self, length: usize) -> String {
        let rest = self.begun.split_off(length);
        let line = std::mem::replace(&mut self.begun, rest);
        let line = line.strip_suffix(b"\r").unwrap_or(&line);
        // A progress bar goes back to the beginning of its line: what was last is what one sees.
        let seen = memchr::memrchr(b'\r', line).map_or(line, |at| &line[at + 1..]);
        String::from_utf8_lossy(seen).into_owned()
    }
}

/// Where to cut so that no character is.
fn boundary(text: &[u8]) -> usize {
    let continues = |at: &usize| text.get(*at).is_some_and(|byte| byte & 0xc0 == 0x80);
    let last = (text.len().saturating_sub(4)..text.len())
        .rev()
        .find(|at| !continues(at));
    match last {
        Some(at) if at > 0 && std::str::from_utf8(&text[at..]).is_err() => at,
        _ => text.len(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &[u8], size: usize) -> Vec<String> {
        let (mut lines, mut all) = (Lines::default(), Vec::new());
        for piece in text.chunks(size) {
            lines.push(piece, |line| all.push(line));
        }
        all.extend(lines.rest());
        all
    }

    #[test]
    fn pieces_become_lines() {
        for size in 1..12 {
            let text = b"one\r\n\n10 %\r20 %\rdone\nlast";
            assert_eq!(lines(text, size), ["one", "", "done", "last"], "{size}");
        }
        assert!(lines(b"", 1).is_empty());
    }

    #[test]
    fn long_lines_are_cut_between_characters() {
        let text = "ä".repeat(LONGEST);
        for size in [1, 1000, text.len()] {
            let lines = lines(format!("x{text}\n").as_bytes(), size);
            assert!(lines.iter().all(|line| line.len() <= LONGEST));
            assert_eq!(lines.concat(), format!("x{text}"), "{size}");
        }
    }
}
