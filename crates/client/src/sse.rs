//! Server-sent events, as they come in pieces.

use crate::error::{ClientError, Result};

/// Longest event, in bytes: a stream of a hostile server takes no more memory than this.
const MAX_EVENT_BYTES: usize = 4 << 20;

/// One event; comments and keep-alives are none.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Event {
    pub id: Option<String>,
    pub data: String,
}

/// Finds the events in the bytes of a stream.
#[derive(Debug, Default)]
pub struct EventParser {
    /// What was received of the current line.
    line: Vec<u8>,
    event: Event,
    has_data: bool,
}

impl EventParser {
    /// The events that end within these bytes.
    pub fn push(&mut self, bytes: &[u8]) -> Result<Vec<Event>> {
        let mut found = Vec::new();
        for &byte in bytes {
            if byte != b'\n' {
                if self.line.len() + self.event.data.len() >= MAX_EVENT_BYTES {
                    return Err(ClientError::Malformed {
                        url: "the stream".to_owned(),
                        reason: "an event is too long".to_owned(),
                    });
                }
                self.line.push(byte);
                continue;
            }
            let line = std::mem::take(&mut self.line);
            let line =
                String::from_utf8_lossy(line.strip_suffix(b"\r").unwrap_or(&line)).into_owned();
            if let Some(event) = self.end_line(&line) {
                found.push(event);
            }
        }
        Ok(found)
    }

    fn end_line(&mut self, line: &str) -> Option<Event> {
        if line.is_empty() {
            let event = std::mem::take(&mut self.event);
            return std::mem::take(&mut self.has_data).then_some(event);
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "data" => {
                if self.has_data {
                    self.event.data.push('\n');
                }
                self.event.data.push_str(value);
                self.has_data = true;
            }
            "id" => self.event.id = Some(value.to_owned()),
            _ => {}
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_found_however_they_are_cut() {
        let text = ": hello\n\nid: 7\ndata: {\"a\":1}\n\ndata:one\r\ndata: two\r\n\r\nevent: x\n\ndata: [DONE]\n\n";
        let expected = [
            (Some("7"), "{\"a\":1}"),
            (None, "one\ntwo"),
            (None, "[DONE]"),
        ];
        for size in [1, 3, 1000] {
            let mut parser = EventParser::default();
            let mut found = Vec::new();
            for piece in text.as_bytes().chunks(size) {
                found.extend(parser.push(piece).unwrap());
            }
            let found: Vec<_> = found
                .iter()
                .map(|it| (it.id.as_deref(), it.data.as_str()))
                .collect();
            assert_eq!(found, expected, "{size}");
        }
    }

    #[test]
    fn an_endless_event_is_refused() {
        let mut parser = EventParser::default();
        let piece = vec![b'x'; 1 << 20];
        let refused = (0..10).any(|_| parser.push(&piece).is_err());
        assert!(refused);
        let mut parser = EventParser::default();
        let line = format!("data: {}\n", "x".repeat(1 << 20));
        assert!((0..10).any(|_| parser.push(line.as_bytes()).is_err()));
    }
}
