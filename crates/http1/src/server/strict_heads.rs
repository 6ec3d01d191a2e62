//! A filter in front of hyper that refuses what its parser lets through: lines of a request's head that end with a bare
//! LF. Servers differ in whether such a line has ended, so a proxy between two of them can be made to see other requests
//! than they do (RFC 9112, section 2.2).
//!
//! A scanner follows messages just far enough to know where heads begin and end, and copies nothing but lines that came
//! in pieces. In place of a refused byte hyper gets a NUL, which no head may contain, so that it answers 400 and closes
//! the connection. What makes no sense otherwise is left to hyper to refuse.

use crate::framing::parse_digits;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Longest line that is followed; hyper refuses heads that are longer.
const MAX_LINE: usize = 64 * 1024;
/// The first line of HTTP/2.
const HTTP2_PREFACE: &[u8] = b"PRI * HTTP/2.0";

/// What hyper gets in place of what is refused: with the end of a head, which it waits for before it
/// looks again.
const POISON: &[u8] = b"\0\r\n\r\n";

/// A stream whose HTTP/1 heads are looked at while they are read.
pub struct StrictHeads<I, U> {
    io: I,
    /// Whether the connection was upgraded, so that what follows are no requests any more.
    is_upgraded: U,
    scanner: MessageScanner,
    /// How much of [`POISON`] was given.
    poisoned: usize,
}

impl<I, U: Fn() -> bool> StrictHeads<I, U> {
    /// Looks at heads until `is_upgraded` says that there will be no more.
    pub fn new(io: I, is_upgraded: U) -> Self {
        Self {
            io,
            is_upgraded,
            scanner: MessageScanner::default(),
            poisoned: 0,
        }
    }

    fn poison(&mut self, buf: &mut ReadBuf<'_>) {
        let left = &POISON[self.poisoned..];
        let count = left.len().min(buf.remaining());
        buf.put_slice(&left[..count]);
        self.poisoned += count;
    }
}

/// Where in the messages of a connection the reader is.
#[derive(Debug, Default)]
struct MessageScanner {
    state: State,
    /// What has come of a line that has not ended.
    line: Vec<u8>,
    /// Whether the first line of the head was seen.
    in_headers: bool,
    /// What the head says of the body.
    length: u64,
    chunked: bool,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum State {
    #[default]
    Head,
    /// So much of a body, or of a chunk and its end, is left.
    Data {
        left: u64,
        then: NextState,
    },
    ChunkSize,
    Trailers,
    /// Not HTTP/1, or nothing that is followed any more.
    Opaque,
    Refused,
}

/// What follows the data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NextState {
    Head,
    ChunkSize,
}

impl MessageScanner {
    /// Looks at what was read; says from where on it is refused.
    fn inspect(&mut self, bytes: &[u8]) -> Option<usize> {
        let mut at = 0;
        while at < bytes.len() {
            match self.state {
                State::Opaque => return None,
                State::Refused => return Some(at),
                State::Data { left, then } => {
                    let here = (bytes.len() - at) as u64;
                    let skipped = left.min(here);
                    at += usize::try_from(skipped).unwrap_or(usize::MAX);
                    self.state = match (left - skipped, then) {
                        (0, NextState::Head) => State::Head,
                        (0, NextState::ChunkSize) => State::ChunkSize,
                        (left, then) => State::Data { left, then },
                    };
                }
                State::Head | State::ChunkSize | State::Trailers => {
                    let Some(end) = memchr::memchr(b'\n', &bytes[at..]) else {
                        self.buffer_line(&bytes[at..]);
                        return None;
                    };
                    self.end_line(&bytes[at..at + end]);
                    if self.state == State::Refused {
                        return Some(at + end);
                    }
                    at += end + 1;
                }
            }
        }
        None
    }

    /// Keeps the beginning of a line.
    fn buffer_line(&mut self, part: &[u8]) {
        if self.line.len() + part.len() > MAX_LINE {
            self.line = Vec::new();
            self.state = State::Opaque;
            return;
        }
        self.line.extend_from_slice(part);
    }

    /// A line has ended; this is the rest of it, without its LF.
    fn end_line(&mut self, rest: &[u8]) {
        let kept = std::mem::take(&mut self.line);
        let joined;
        let line = if kept.is_empty() {
            rest
        } else {
            joined = [&kept, rest].concat();
            &joined
        };
        match line.strip_suffix(b"\r") {
            Some(line) => self.read_line(line),
            None => self.state = State::Refused,
        }
    }

    fn read_line(&mut self, line: &[u8]) {
        match (self.state, line) {
            (State::Head, []) if self.in_headers => self.end_head(),
            // Empty lines before a request are allowed.
            (State::Head, []) => {}
            (State::Head, HTTP2_PREFACE) if !self.in_headers => self.state = State::Opaque,
            (State::Head, header) => self.read_header(header),
            (State::ChunkSize, line) => self.state = after_size(line),
            (State::Trailers, []) => self.state = State::Head,
            _ => {}
        }
    }

    fn read_header(&mut self, line: &[u8]) {
        if !std::mem::replace(&mut self.in_headers, true) {
            return;
        }
        // What makes no sense is refused by hyper.
        if let Some(value) = value_of(line, b"content-length:") {
            self.length = parse_digits(value.trim_ascii()).unwrap_or_default();
        } else if value_of(line, b"transfer-encoding:").is_some() {
            self.chunked = true;
        }
    }

    fn end_head(&mut self) {
        let (length, chunked) = (self.length, self.chunked);
        *self = Self::default();
        self.state = match length {
            _ if chunked => State::ChunkSize,
            0 => State::Head,
            left => State::Data {
                left,
                then: NextState::Head,
            },
        };
    }
}

/// What follows a line with a chunk's size.
fn after_size(line: &[u8]) -> State {
    let digits = line
        .split(|byte| matches!(byte, b';' | b' ' | b'\t'))
        .next();
    let digits = std::str::from_utf8(digits.unwrap_or_default()).unwrap_or_default();
    match u64::from_str_radix(digits, 16) {
        Ok(0) => State::Trailers,
        // With the end of its line.
        Ok(size) => State::Data {
            left: size.saturating_add(2),
            then: NextState::ChunkSize,
        },
        // hyper refuses it.
        Err(_) => State::Opaque,
    }
}

fn value_of<'l>(line: &'l [u8], name: &[u8]) -> Option<&'l [u8]> {
    let (start, value) = line.split_at_checked(name.len())?;
    start.eq_ignore_ascii_case(name).then_some(value)
}

impl<I: AsyncRead + Unpin, U: Fn() -> bool + Unpin> AsyncRead for StrictHeads<I, U> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if this.scanner.state == State::Refused {
            // Nothing at all in the end, which is the end.
            this.poison(buf);
            return Poll::Ready(Ok(()));
        }
        let before = buf.filled().len();
        ready!(Pin::new(&mut this.io).poll_read(cx, buf))?;
        if (this.is_upgraded)() {
            this.scanner.state = State::Opaque;
        }
        if let Some(at) = this.scanner.inspect(&buf.filled()[before..]) {
            buf.set_filled(before + at);
            this.poison(buf);
        }
        Poll::Ready(Ok(()))
    }
}

impl<I: AsyncWrite + Unpin, U: Unpin> AsyncWrite for StrictHeads<I, U> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

/// Scans pieces of a connection: where it is refused, and whether its end is between two messages, if that is known.
pub(crate) fn scan_requests(pieces: &[&[u8]]) -> (Option<usize>, Option<bool>) {
    let (mut scanner, mut before) = (MessageScanner::default(), 0);
    for piece in pieces {
        if let Some(at) = scanner.inspect(piece) {
            return (Some(before + at), None);
        }
        before += piece.len();
    }
    let between = scanner.state == State::Head && !scanner.in_headers && scanner.line.is_empty();
    (None, (scanner.state != State::Opaque).then_some(between))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where it is refused, however it is cut.
    fn refused_at(sent: &str, cut: usize) -> Option<usize> {
        let mut scanner = MessageScanner::default();
        let mut parts = sent.as_bytes().chunks(cut).enumerate();
        parts.find_map(|(number, part)| Some(number * cut + scanner.inspect(part)?))
    }

    #[test]
    fn a_bare_lf_in_a_head_is_refused_wherever_it_is() {
        let plain = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
        let length = "POST / HTTP/1.1\r\ncontent-LENGTH: 5\r\n\r\na\nb\n\n";
        let chunks = "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\n\n\n\n\r\nA\r\n0123456789\r\n0\r\nT: x\r\n\r\n";
        let bad = [
            "GET / HTTP/1.1\nHost: a\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a\n\r\n",
            "GET / HTTP/1.1\r\nHost: a\r\n\n",
            "\nGET / HTTP/1.1\r\n",
        ];
        for before in ["", "\r\n", plain, length, chunks] {
            let good = format!("{before}{plain}{length}{chunks}{plain}");
            for cut in [1, 2, 3, 7, 1000] {
                assert_eq!(refused_at(&good, cut), None, "{cut}");
                for bad in bad {
                    let whole = format!("{before}{bad}{plain}");
                    let lf = before.len() + bare_lf(bad);
                    assert_eq!(refused_at(&whole, cut), Some(lf), "{bad:?} {cut}");
                }
            }
        }
    }

    fn bare_lf(text: &str) -> usize {
        let bytes = text.as_bytes();
        let is_bare = |at: &usize| bytes[*at] == b'\n' && (*at == 0 || bytes[*at - 1] != b'\r');
        (0..bytes.len()).find(is_bare).unwrap()
    }

    #[test]
    fn http2_is_none_of_its_business() {
        let frames = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\n\n\n";
        for cut in [1, 5, 100] {
            assert_eq!(refused_at(frames, cut), None);
        }
    }
}
