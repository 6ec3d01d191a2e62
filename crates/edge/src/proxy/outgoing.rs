//! Request that is being sent to an instance: its head, and its body as it arrives from the client.

use crate::proxy::Connection;
use bytes::{Buf, Bytes};
use estrade_http1::server::write_chunk_size;
use http_body::Body;
use hyper::body::Incoming;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

/// State of sending. Invariant: what is to be sent next is the rest of `head`, then `lead`, then `data`, and no further
/// part of the body is taken before `data` is empty. So a slow instance slows its client down instead of filling memory.
pub(crate) struct OutgoingRequest {
    head: Vec<u8>,
    /// How many bytes of `head` are sent.
    sent: usize,
    /// Chunk syntax before `data`.
    lead: Vec<u8>,
    data: Bytes,
    /// The rest of the body, none once it has ended.
    body: Option<Incoming>,
    chunked: bool,
    /// How many more bytes of the body are accepted.
    room: u64,
    received: u64,
    /// Whether a part of the body was taken, which is not kept: the request cannot be sent again.
    begun: bool,
}

/// Why nothing more is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SendError {
    /// The instance does not read on. It may have sent a response.
    Upstream,
    TooLarge,
    /// The client broke off, or its framing is invalid.
    Client,
}

/// The side that has to act next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Progress {
    /// Everything is sent.
    Done,
    /// The instance has to read.
    WaitingForUpstream,
    /// The client has to send more of the body.
    WaitingForClient,
}

impl OutgoingRequest {
    /// A request without a body.
    pub(crate) fn head(head: Vec<u8>) -> Self {
        Self {
            head,
            sent: 0,
            lead: Vec::new(),
            data: Bytes::new(),
            body: None,
            chunked: false,
            room: 0,
            received: 0,
            begun: false,
        }
    }

    /// A request with a body of at most `room` bytes.
    pub(crate) fn with_body(head: Vec<u8>, body: Incoming, chunked: bool, room: u64) -> Self {
        Self {
            body: Some(body),
            chunked,
            room,
            ..Self::head(head)
        }
    }

    /// Prepares to send it again. False: a part of its body is gone.
    pub(crate) fn rewind(&mut self) -> bool {
        self.sent = 0;
        !self.begun
    }

    pub(crate) fn has_body(&self) -> bool {
        self.body.is_some() || self.begun
    }

    /// How many bytes of the body have arrived.
    pub(crate) fn received(&self) -> u64 {
        self.received
    }

    pub(crate) fn is_done(&self) -> bool {
        self.body.is_none() && self.is_sent()
    }

    fn is_sent(&self) -> bool {
        self.sent == self.head.len() && self.lead.is_empty() && self.data.is_empty()
    }

    /// Sends what there is. `progressed` is set when a byte was written.
    pub(crate) fn poll_send(
        &mut self,
        cx: &mut Context<'_>,
        connection: &mut Connection,
        progressed: &mut bool,
    ) -> Result<Progress, SendError> {
        loop {
            // Before the head is sent: a small body goes out in the same write.
            let waits = match self.poll_body(cx) {
                Poll::Ready(outcome) => {
                    outcome?;
                    false
                }
                Poll::Pending => true,
            };
            if self.is_sent() {
                return Ok(match waits {
                    true => Progress::WaitingForClient,
                    false if self.body.is_some() => continue,
                    false => Progress::Done,
                });
            }
            let parts = [&self.head[self.sent..], &self.lead, &self.data];
            match connection.poll_write(cx, &parts) {
                Poll::Ready(Ok(written)) => {
                    *progressed = true;
                    self.advance(written);
                }
                Poll::Ready(Err(_)) => return Err(SendError::Upstream),
                Poll::Pending => return Ok(Progress::WaitingForUpstream),
            }
        }
    }

    fn advance(&mut self, mut written: usize) {
        let head = written.min(self.head.len() - self.sent);
        self.sent += head;
        written -= head;
        let lead = written.min(self.lead.len());
        self.lead.drain(..lead);
        self.data.advance(written - lead);
    }

    /// Takes the next part of the body, once the last one is sent.
    fn poll_body(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), SendError>> {
        let Some(body) = &mut self.body else {
            return Poll::Ready(Ok(()));
        };
        if !self.data.is_empty() {
            return Poll::Ready(Ok(()));
        }
        let frame = ready!(Pin::new(&mut *body).poll_frame(cx));
        let first = !std::mem::replace(&mut self.begun, true);
        match frame {
            None => {
                self.body = None;
                if self.chunked {
                    let end: &[u8] = if first {
                        b"0\r\n\r\n"
                    } else {
                        b"\r\n0\r\n\r\n"
                    };
                    self.lead.extend_from_slice(end);
                }
            }
            Some(Err(_)) => return Poll::Ready(Err(SendError::Client)),
            Some(Ok(frame)) => {
                // Trailers are not forwarded.
                let data = frame.into_data().unwrap_or_default();
                if data.is_empty() {
                    self.begun = !first;
                    return Poll::Ready(Ok(()));
                }
                let left = self.room.checked_sub(data.len() as u64);
                self.room = left.ok_or(SendError::TooLarge)?;
                self.received += data.len() as u64;
                if self.chunked {
                    if !first {
                        self.lead.extend_from_slice(b"\r\n");
                    }
                    write_chunk_size(&mut self.lead, data.len());
                } else if body.is_end_stream() {
                    self.body = None;
                }
                self.data = data;
            }
        }
        Poll::Ready(Ok(()))
    }
}
