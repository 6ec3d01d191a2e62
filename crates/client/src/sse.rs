//! Server-sent events, as they come in pieces.

use crate::error::{ClientError, Result};
use crate::http::{unreachable, without_query};
use std::time::Duration;
use tokio::time::timeout;

/// A server that sends nothing for so long is gone: it sends a comment every 10 s.
const IDLE_TIMEOUT: Duration = Duration::from_secs(35);
/// Longest event, in bytes: a stream of a hostile server takes no more memory than this.
const MAX_EVENT_BYTES: usize = 4 << 20;

/// One event; comments and keep-alives are none.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Event {
    pub id: Option<String>,
    pub data: String,
}

/// The events of a response.
#[derive(Debug)]
pub struct EventStream {
    response: reqwest::Response,
    parser: EventParser,
    idle_timeout: Duration,
}

impl EventStream {
    pub fn new(response: reqwest::Response) -> Self {
        Self {
            response,
            parser: EventParser::default(),
            idle_timeout: IDLE_TIMEOUT,
        }
    }

    /// Waits so long for the next piece.
    #[must_use]
    pub fn idle_timeout(self, idle_timeout: Duration) -> Self {
        Self {
            idle_timeout,
            ..self
        }
    }

    /// The events that come next, perhaps no whole one; none when the stream has ended. An error that may pass when it
    /// has broken off, or the server is gone without a word.
    pub async fn next(&mut self) -> Result<Option<Vec<Event>>> {
        match timeout(self.idle_timeout, self.response.chunk()).await {
            Ok(Ok(Some(piece))) => self.parser.push(&piece).map(Some),
            Ok(Ok(None)) => Ok(None),
            Ok(Err(error)) => Err(unreachable(self.response.url().as_str(), &error)),
            Err(_) => Err(ClientError::Unreachable {
                url: without_query(self.response.url().as_str()),
                cause: format!("nothing came for {} s", self.idle_timeout.as_secs()),
            }),
        }
    }
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
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

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

    /// A connection of which only this end is left never says so.
    #[tokio::test]
    async fn a_stream_without_keep_alives_has_ended() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        let (response, accepted) = tokio::join!(client.get(url).send(), async {
            let (mut server, _) = listener.accept().await.unwrap();
            assert!(server.read(&mut [0; 1000]).await.unwrap() > 0);
            let head = "HTTP/1.1 200 OK\r\n\r\n: hello\n\ndata: one\n\n";
            server.write_all(head.as_bytes()).await.unwrap();
            server
        });
        let mut stream = EventStream::new(response.unwrap());
        let mut found = Vec::new();
        while found.is_empty() {
            found = stream.next().await.unwrap().unwrap();
        }
        assert_eq!(found[0].data, "one");
        // From here on time passes as soon as everything waits.
        tokio::time::pause();
        let begun = tokio::time::Instant::now();
        let silent = stream.next().await.unwrap_err();
        assert!(
            silent.may_pass() && silent.to_string().ends_with("nothing came for 35 s"),
            "{silent}"
        );
        assert_eq!(begun.elapsed().as_secs(), IDLE_TIMEOUT.as_secs());
        drop(accepted);
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
