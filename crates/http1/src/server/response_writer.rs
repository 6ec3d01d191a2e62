//! Bodies of responses: collected into one buffer, framed, and sent while the client is watched.

use crate::buffer_pool;
use crate::server::disconnect::{DisconnectWatcher, PipelinedInput};
use crate::server::write::{try_send, write_all};
use bytes::Bytes;
use http::StatusCode;
use http_body::Body;
use rustix::net::SendFlags;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::net::TcpStream;

/// A part of a body that is copied behind what comes before it. A larger one is sent beside it (`writev`).
const MAX_COPIED_PART: usize = 8 * 1024;
/// What is collected of a body before it is sent.
const MAX_COLLECTED: usize = 32 * 1024;

/// How the end of a body is told (RFC 9112, section 6).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyEncoding {
    /// By the length that the head says.
    ContentLength,
    /// By the last chunk.
    Chunked,
    /// There is no body: a response to HEAD, or 204 or 304.
    NoBody,
}

impl BodyEncoding {
    /// The encoding of a response with this status, whose head does or does not say a length (section 6.3).
    #[inline]
    pub fn of_response(status: StatusCode, to_head_request: bool, has_length: bool) -> Self {
        if to_head_request || matches!(status.as_u16(), 204 | 304) {
            Self::NoBody
        } else if has_length {
            Self::ContentLength
        } else {
            Self::Chunked
        }
    }
}

/// Where the parts of a body are written to be sent together.
pub struct OutputBuffer<'o> {
    bytes: &'o mut Vec<u8>,
    encoding: BodyEncoding,
}

impl OutputBuffer<'_> {
    /// Adds a part.
    pub fn add(&mut self, part: &[u8]) {
        self.add_pieces(&[part]);
    }

    /// Adds a part that lies in several places, as one chunk. An empty one is left out: it would be the last chunk.
    #[inline]
    pub fn add_pieces(&mut self, pieces: &[&[u8]]) {
        let length = pieces.iter().map(|piece| piece.len()).sum();
        if length == 0 || self.encoding == BodyEncoding::NoBody {
            return;
        }
        self.begin(length);
        for piece in pieces {
            self.bytes.extend_from_slice(piece);
        }
        if self.encoding == BodyEncoding::Chunked {
            self.bytes.extend_from_slice(b"\r\n");
        }
    }

    /// Adds a part, or what comes before it if it is too large to be copied.
    fn add_small(&mut self, part: Bytes) -> Part {
        if part.len() <= MAX_COPIED_PART || self.encoding == BodyEncoding::NoBody {
            self.add(&part);
            return Part::Buffered;
        }
        self.begin(part.len());
        Part::Large(part)
    }

    fn begin(&mut self, length: usize) {
        if self.encoding == BodyEncoding::Chunked {
            write_chunk_size(self.bytes, length);
        }
    }
}

/// What became of a part.
pub enum Part {
    /// It was added, if there was anything in it.
    Buffered,
    /// What comes before it was added; the part itself is sent from where it is.
    Large(Bytes),
    /// There is none: the body is complete.
    End,
    /// There is none: the body broke off.
    Aborted,
}

/// A body that can be sent by a [`ResponseWriter`].
pub trait OutgoingBody: Body<Data = Bytes> + Unpin {
    /// Adds the next part to the output. Override it where a part can be written without an allocation of its own: that
    /// is 2 to 3 % of the CPU per event of a stream and 14 of 97 MiB for 5,000 streams, see [`buffer_pool`].
    fn poll_part(&mut self, cx: &mut Context<'_>, output: &mut OutputBuffer<'_>) -> Poll<Part> {
        self.poll_owned_part(cx, output)
    }

    /// The same, by way of a frame.
    fn poll_owned_part(
        &mut self,
        cx: &mut Context<'_>,
        output: &mut OutputBuffer<'_>,
    ) -> Poll<Part> {
        Pin::new(self).poll_frame(cx).map(|frame| match frame {
            Some(Ok(frame)) => output.add_small(frame.into_data().unwrap_or_default()),
            Some(Err(_)) => Part::Aborted,
            None => Part::End,
        })
    }
}

/// Sends a response.
///
/// Mechanism: parts that are there are collected in one buffer and sent with one system call, at the latest when the body
/// has no more for now, so that no event of a stream waits for the next one. While the body is pending and nothing is
/// left to send, the buffer goes back to the pool of the thread and the client is watched.
///
/// Invariant: after `false` nothing else may be written to the connection, because the response has no proper end. That
/// is how a client notices a body that broke off (RFC 9112, section 8).
pub struct ResponseWriter<'c> {
    pub stream: &'c mut TcpStream,
    /// What the client sends meanwhile.
    pub pipelined: &'c mut PipelinedInput,
    /// What is sent next: at first the head. A buffer of the pool, or without capacity when it is empty.
    pub output: &'c mut Vec<u8>,
}

impl ResponseWriter<'_> {
    /// Sends the output and then the body, each part as soon as it is there; false when that was not possible.
    pub async fn send_body(
        &mut self,
        body: &mut impl OutgoingBody,
        encoding: BodyEncoding,
    ) -> bool {
        let mut watcher = DisconnectWatcher::default();
        loop {
            let collected = poll_fn(|cx| self.poll_collect(body, encoding, &mut watcher, cx)).await;
            match collected {
                Collected::Part(large) => {
                    if write_all(self.stream, self.output, &large).await.is_err() {
                        return false;
                    }
                    self.output.clear();
                    self.pipelined.sent();
                    if !large.is_empty() && encoding == BodyEncoding::Chunked {
                        self.output.extend_from_slice(b"\r\n");
                    }
                }
                Collected::Complete => {
                    if encoding == BodyEncoding::Chunked {
                        self.output.extend_from_slice(b"0\r\n\r\n");
                    }
                    let sent = write_all(self.stream, self.output, &[]).await.is_ok();
                    buffer_pool::release(std::mem::take(self.output));
                    return sent;
                }
                Collected::Aborted => {
                    // The client gets what there is, and notices by the end that is missing.
                    drop(write_all(self.stream, self.output, &[]).await);
                    return false;
                }
                Collected::Disconnected => return false,
            }
        }
    }

    /// Collects what is there of a body, and is pending only when there is nothing to send; then it holds no buffer.
    // Every event of every stream passes here: it is a function of its own, and not a part of whatever future awaits it.
    #[inline(never)]
    fn poll_collect(
        &mut self,
        body: &mut impl OutgoingBody,
        encoding: BodyEncoding,
        watcher: &mut DisconnectWatcher,
        cx: &mut Context<'_>,
    ) -> Poll<Collected> {
        let mut bytes = std::mem::take(self.output);
        if bytes.capacity() == 0 {
            bytes = buffer_pool::acquire();
        }
        let polled = self.poll_collect_in(&mut bytes, body, encoding, watcher, cx);
        if polled.is_pending() && bytes.is_empty() {
            buffer_pool::release(bytes);
        } else {
            *self.output = bytes;
        }
        polled
    }

    #[inline]
    fn poll_collect_in(
        &mut self,
        bytes: &mut Vec<u8>,
        body: &mut impl OutgoingBody,
        encoding: BodyEncoding,
        watcher: &mut DisconnectWatcher,
        cx: &mut Context<'_>,
    ) -> Poll<Collected> {
        while bytes.len() < MAX_COLLECTED {
            let polled = body.poll_part(cx, &mut OutputBuffer { bytes, encoding });
            let wrote = !bytes.is_empty();
            match polled {
                Poll::Ready(Part::Buffered) => {}
                Poll::Ready(Part::Large(part)) => return Poll::Ready(Collected::Part(part)),
                Poll::Ready(Part::Aborted) => return Poll::Ready(Collected::Aborted),
                Poll::Ready(Part::End) => return Poll::Ready(Collected::Complete),
                // The body has registered our waker: what is there is sent at once, and the body is not polled twice.
                Poll::Pending => match try_flush(self.stream, bytes) {
                    Ok(true) => {
                        if wrote {
                            self.pipelined.sent();
                        }
                        let gone = watcher.poll_disconnected(self.stream, self.pipelined, cx);
                        return gone.map(|()| Collected::Disconnected);
                    }
                    Ok(false) => break,
                    Err(_) => return Poll::Ready(Collected::Disconnected),
                },
            }
        }
        Poll::Ready(Collected::Part(Bytes::new()))
    }
}

/// What was collected of a body.
enum Collected {
    /// The output, and this after it.
    Part(Bytes),
    /// The output, and the body is complete.
    Complete,
    /// The output, and the body broke off.
    Aborted,
    /// The client is gone.
    Disconnected,
}

/// Sends what was collected, as far as the socket takes it; whether all of it is out.
fn try_flush(stream: &TcpStream, bytes: &mut Vec<u8>) -> io::Result<bool> {
    if bytes.is_empty() {
        return Ok(true);
    }
    match try_send(stream, bytes, SendFlags::empty()) {
        Ok(written) if written == bytes.len() => bytes.clear(),
        Ok(written) => drop(bytes.drain(..written)),
        Err(error) if is_transient(&error) => {}
        Err(error) => return Err(error),
    }
    Ok(bytes.is_empty())
}

fn is_transient(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
    )
}

/// Writes the size line of a chunk. By hand, because it runs for every event of every stream.
pub fn write_chunk_size(output: &mut Vec<u8>, length: usize) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let (mut line, mut start, mut left) = ([0; 18], 16, length);
    line[16..].copy_from_slice(b"\r\n");
    while left > 0 {
        start -= 1;
        line[start] = DIGITS[left & 15];
        left >>= 4;
    }
    output.extend_from_slice(&line[start..]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_of_chunks_are_hexadecimal() {
        for length in [
            1,
            9,
            10,
            15,
            16,
            255,
            256,
            4095,
            65_535,
            1 << 20,
            usize::MAX,
        ] {
            let mut output = Vec::new();
            write_chunk_size(&mut output, length);
            assert_eq!(output, format!("{length:x}\r\n").into_bytes());
        }
    }
}
