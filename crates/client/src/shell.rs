//! A shell in a running instance (`/v1/exec`).
//!
//! Two subprotocols: `estrade` is a terminal, with text in and bytes out; `estrade.streams` keeps standard input,
//! output and error apart, as bytes. Either end says with its close frame how it went.

use crate::error::{ClientError, Refusal, Result};
use crate::http::Client;
use crate::text::take_text;
use crate::websocket::{self, WebSocket};
use bytes::Bytes;
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt, StreamExt};
use reqwest::{Method, Upgraded};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::timeout;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::{Error as SocketError, Message};

/// Most that is sent at once: a message of the server has room for 64 KiB, and JSON makes six bytes of some.
pub const MAX_INPUT_BYTES: usize = 8 << 10;
/// A server that sends nothing for so long is gone: it pings every 30 s.
const READ_TIMEOUT: Duration = Duration::from_secs(80);

const TERMINAL_SUBPROTOCOL: &str = "estrade";
const STREAMS_SUBPROTOCOL: &str = "estrade.streams";
/// The first byte of what came from standard error; any other is standard output.
const STDERR: u8 = 2;

/// What is at this end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ends {
    /// A terminal of so many columns and rows.
    Terminal { columns: u16, rows: u16 },
    /// Files or pipes.
    Streams,
}

/// What comes of a shell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Output {
    /// For standard output: what the terminal shows.
    Stdout(Bytes),
    /// For standard error.
    Stderr(Bytes),
    /// The command has ended, with this code.
    Exited(i64),
}

/// The end that one types at.
pub struct ShellInput {
    sink: SplitSink<WebSocketStream<Upgraded>, Message>,
    ends: Ends,
    /// The beginning of a character whose end was not typed yet.
    begun: Vec<u8>,
}

/// The end that one reads.
pub struct ShellOutput {
    stream: SplitStream<WebSocketStream<Upgraded>>,
    ends: Ends,
    url: String,
    request_id: Option<String>,
}

/// Opens a shell in an instance of a project. `command` is a line for `sh`; none: `sh` itself.
pub async fn open(
    client: &Client,
    project: &str,
    command: Option<&str>,
    ends: Ends,
) -> Result<(ShellInput, ShellOutput)> {
    let request = client
        .request(Method::GET, "/v1/exec")
        .query("project_id", project)
        .maybe_query("cmd", command);
    let subprotocol = match ends {
        Ends::Terminal { .. } => TERMINAL_SUBPROTOCOL,
        Ends::Streams => STREAMS_SUBPROTOCOL,
    };
    let url = request.shown_url();
    let WebSocket { stream, request_id } = websocket::connect(request, subprotocol).await?;
    let (sink, stream) = stream.split();
    let mut input = ShellInput {
        sink,
        ends,
        begun: Vec::new(),
    };
    let start = match ends {
        Ends::Terminal { columns, rows } => {
            json!({"action": "start", "cols": columns, "rows": rows})
        }
        Ends::Streams => json!({"action": "start"}),
    };
    // When this fails the server has said why, which is the other end's to read.
    let _ = input.send_json(&start).await;
    let output = ShellOutput {
        stream,
        ends,
        url,
        request_id,
    };
    Ok((input, output))
}

/// The connection takes no more; the other end says why.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Closed;

impl ShellInput {
    /// Types, or sends to standard input, at most [`MAX_INPUT_BYTES`]; waits until it is on its way.
    pub async fn send(&mut self, bytes: &[u8]) -> Result<(), Closed> {
        if self.ends == Ends::Streams {
            return self.send_message(Message::binary(bytes.to_vec())).await;
        }
        let text = take_text(&mut self.begun, bytes);
        if text.is_empty() {
            return Ok(());
        }
        self.send_json(&json!({"type": "input", "data": text}))
            .await
    }

    /// The terminal here has another size now.
    pub async fn resize(&mut self, columns: u16, rows: u16) -> Result<(), Closed> {
        if self.ends == Ends::Streams {
            return Ok(());
        }
        self.send_json(&json!({"type": "resize", "cols": columns, "rows": rows}))
            .await
    }

    /// Standard input has ended here; at a terminal that is Ctrl-D.
    pub async fn end(&mut self) -> Result<(), Closed> {
        match self.ends {
            Ends::Terminal { .. } => self.send(b"\x04").await,
            Ends::Streams => self.send_json(&json!({"type": "eof"})).await,
        }
    }

    async fn send_json(&mut self, message: &Value) -> Result<(), Closed> {
        self.send_message(Message::text(message.to_string())).await
    }

    async fn send_message(&mut self, message: Message) -> Result<(), Closed> {
        self.sink.send(message).await.map_err(|_| Closed)
    }
}

impl ShellOutput {
    /// What comes next; an error says why nothing more does.
    pub async fn next(&mut self) -> Result<Output> {
        loop {
            let message = timeout(READ_TIMEOUT, self.stream.next()).await;
            match message {
                Ok(Some(Ok(Message::Binary(bytes)))) => {
                    if let Some(output) = self.read(bytes) {
                        return Ok(output);
                    }
                }
                Ok(Some(Ok(Message::Close(frame)))) => return self.ended(frame),
                // The library responds to pings.
                Ok(Some(Ok(_))) => {}
                Ok(Some(Err(SocketError::Capacity(error)))) => {
                    return Err(ClientError::Malformed {
                        url: self.url.clone(),
                        reason: error.to_string(),
                    });
                }
                Ok(Some(Err(error))) => return Err(self.lost(&error.to_string())),
                Ok(None) => return Err(self.lost("the connection was closed")),
                Err(_) => return Err(self.lost("nothing came for a long time")),
            }
        }
    }

    fn read(&self, mut bytes: Bytes) -> Option<Output> {
        if bytes.is_empty() {
            return None;
        }
        if self.ends != Ends::Streams {
            return Some(Output::Stdout(bytes));
        }
        Some(match bytes.split_to(1)[..] {
            [STDERR] => Output::Stderr(bytes),
            _ => Output::Stdout(bytes),
        })
    }

    fn ended(&self, frame: Option<CloseFrame>) -> Result<Output> {
        let Some(frame) = frame else {
            return Err(self.lost("it was closed without a reason"));
        };
        ending(
            frame.code.into(),
            frame.reason.as_str(),
            self.request_id.as_deref(),
        )
    }

    fn lost(&self, cause: &str) -> ClientError {
        ClientError::Unreachable {
            url: self.url.clone(),
            cause: cause.to_owned(),
        }
    }
}

/// What a close frame says, as the response to a request would have.
fn ending(code: u16, reason: &str, request_id: Option<&str>) -> Result<Output> {
    if code == 1000 {
        let exited = reason
            .strip_prefix("exit code ")
            .and_then(|code| code.parse().ok());
        let unknown = || ClientError::Failed("the command has ended; how is not known".to_owned());
        return exited.map(Output::Exited).ok_or_else(unknown);
    }
    let (status, stable_code) = match code {
        1001 => (503, "stopping"),
        4401 => (403, "no_permission"),
        4404 => (409, "nothing_runs"),
        4408 => (408, "too_long"),
        4429 => (429, "too_many"),
        _ => (400, "no_shell"),
    };
    let message = if reason.is_empty() {
        format!("the server ended the shell with code {code}")
    } else {
        reason.to_owned()
    };
    Err(ClientError::Refused(Box::new(Refusal {
        status,
        code: stable_code.to_owned(),
        message,
        request_id: request_id.map(str::to_owned),
        has_retry_after: false,
        missing: Vec::new(),
    })))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_input_fits_into_a_message() {
        let worst = "\u{1}".repeat(MAX_INPUT_BYTES);
        let message = json!({"type": "input", "data": worst}).to_string();
        assert!(message.len() <= 64 << 10, "{}", message.len());
    }

    #[test]
    fn close_frames_are_told_apart() {
        assert_eq!(
            ending(1000, "exit code 3", None).unwrap(),
            Output::Exited(3)
        );
        assert!(matches!(
            ending(1000, "it has ended", None),
            Err(ClientError::Failed(_))
        ));
        for (code, status) in [
            (1001, 503),
            (1011, 400),
            (4401, 403),
            (4404, 409),
            (4408, 408),
            (4429, 429),
        ] {
            let error = ending(code, "because", Some("r1")).unwrap_err();
            let refusal = error.refusal().unwrap();
            assert_eq!(
                (refusal.status, refusal.message.as_str()),
                (status, "because")
            );
        }
    }
}
