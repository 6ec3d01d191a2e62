//! Message framing: where a body ends (RFC 9112, sections 6 and 7).
//!
//! The one place for the rules of `Content-Length` and `Transfer-Encoding`. [`BodyHeaders`] reads both fields of a head
//! and says the [`Framing`] of the body; `Framing` then takes the body out of what was read, as a state machine whose
//! result does not depend on how the bytes were split. Two parties that disagree about where a message ends can be made
//! to see different messages (request smuggling, section 11.2), so everything that is not plainly valid is an error.

use bytes::{Buf, Bytes, BytesMut};
use std::ops::Range;

/// Longest line with a chunk's size, extensions included: who sends one must not make us buffer without end.
const MAX_CHUNK_LINE: usize = 1024;
/// All trailer fields of a message together.
const MAX_TRAILER_BYTES: usize = 8 * 1024;
/// Hexadecimal digits of a chunk's size: fifteen are more than anybody sends, and cannot overflow.
const MAX_CHUNK_SIZE_DIGITS: usize = 15;
/// Digits of a chunk's size that the short parser looks at; with them a chunk has at most 1 MiB.
const MAX_SHORT_SIZE_DIGITS: usize = 5;

/// Why a body has no proper end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FramingError {
    /// The connection ended before the body.
    UnexpectedEof,
    /// What came is not HTTP, or can be read in two ways.
    Malformed,
}

/// The fields of a head that say where its body ends.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BodyHeaders {
    content_length: Option<u64>,
    chunked: bool,
}

impl BodyHeaders {
    /// Adds a `Content-Length` field. Several must agree (section 6.3, rule 5).
    #[inline]
    pub fn add_content_length(&mut self, value: &[u8]) -> Result<(), FramingError> {
        let length = parse_digits(value).ok_or(FramingError::Malformed)?;
        if self.content_length.is_some_and(|earlier| earlier != length) {
            return Err(FramingError::Malformed);
        }
        self.content_length = Some(length);
        Ok(())
    }

    /// Adds a `Transfer-Encoding` field. `chunked` is the only coding that is known here, and is applied once (section
    /// 6.1): with any other the end of the body would be a guess.
    #[inline]
    pub fn add_transfer_encoding(&mut self, value: &[u8]) -> Result<(), FramingError> {
        if self.chunked || !value.eq_ignore_ascii_case(b"chunked") {
            return Err(FramingError::Malformed);
        }
        self.chunked = true;
        Ok(())
    }

    /// The value of `Content-Length`, which is no length of the body when that is chunked.
    #[inline]
    pub fn content_length(self) -> Option<u64> {
        self.content_length
    }

    /// Whether both fields were there. Chunked wins, and the connection must be closed after the message (section 6.3,
    /// rule 3): somebody on the way may have believed the length.
    #[inline]
    pub fn is_ambiguous(self) -> bool {
        self.chunked && self.content_length.is_some()
    }

    /// The framing of a response with these fields. `bodiless` by its status or its request (section 6.3, rules 1 and
    /// 2): 1xx, 204, 304, and every response to HEAD.
    #[inline]
    pub fn response_framing(self, bodiless: bool) -> Framing {
        match self.content_length {
            _ if bodiless => Framing::Done,
            _ if self.chunked => Framing::ChunkSize,
            Some(0) => Framing::Done,
            Some(length) => Framing::Length(length),
            None => Framing::UntilClose,
        }
    }

    /// The framing of a request with these fields. Without any it has no body: a request never ends with its connection
    /// (section 6.3, rule 7). One with both is refused, which the RFC leaves to servers.
    #[inline]
    pub fn request_framing(self) -> Result<Framing, FramingError> {
        match self.content_length {
            Some(_) if self.chunked => Err(FramingError::Malformed),
            None if self.chunked => Ok(Framing::ChunkSize),
            None | Some(0) => Ok(Framing::Done),
            Some(length) => Ok(Framing::Length(length)),
        }
    }
}

/// The number that a field such as `Content-Length` has: digits and nothing else. `+1` is a number for Rust, but not for
/// everybody on the way.
#[inline]
pub fn parse_digits(value: &[u8]) -> Option<u64> {
    let digits = !value.is_empty() && value.iter().all(u8::is_ascii_digit);
    let text = std::str::from_utf8(value).ok().filter(|_| digits)?;
    text.parse().ok()
}

/// State of a body's decoder: what is to come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    /// So many bytes of a body with a known length.
    Length(u64),
    /// A line with a chunk's size.
    ChunkSize,
    /// So many bytes of a chunk's data.
    ChunkData(u64),
    /// The line end after a chunk's data.
    ChunkDataEnd,
    /// Trailer fields, after so many bytes of them.
    Trailers(usize),
    /// Data until the connection ends.
    UntilClose,
    /// Nothing: the body is complete.
    Done,
}

/// What [`Framing::decode`] found.
#[derive(Debug, PartialEq, Eq)]
pub enum Decoded {
    /// Bytes of the body.
    Data(Bytes),
    /// More has to be read.
    NeedMore,
    /// The body is complete; what is left in the buffer is not part of it.
    Done,
}

impl Framing {
    /// How many bytes of the body are left, if that is known.
    pub fn remaining(self) -> Option<u64> {
        match self {
            Self::Done => Some(0),
            Self::Length(left) => Some(left),
            _ => None,
        }
    }

    /// Takes the next bytes of the body out of the buffer, without copying them.
    pub fn decode(&mut self, buffer: &mut BytesMut) -> Result<Decoded, FramingError> {
        if self.has_ended() {
            return Ok(Decoded::Done);
        }
        // Often there is nothing yet: this is called several times per event of a stream.
        if buffer.is_empty() {
            return Ok(Decoded::NeedMore);
        }
        if *self == Self::ChunkSize
            && let Some(data) = take_whole_chunk(buffer)
        {
            return Ok(Decoded::Data(data));
        }
        self.skip_syntax(buffer)?;
        let (left, then) = match self {
            Self::Done => return Ok(Decoded::Done),
            _ if buffer.is_empty() => return Ok(Decoded::NeedMore),
            Self::UntilClose => return Ok(Decoded::Data(buffer.split().freeze())),
            Self::Length(left) => (left, Self::Done),
            Self::ChunkData(left) => (left, Self::ChunkDataEnd),
            _ => return Ok(Decoded::NeedMore),
        };
        let part = usize::try_from(*left)
            .unwrap_or(usize::MAX)
            .min(buffer.len());
        *left -= part as u64;
        if *left == 0 {
            *self = then;
        }
        Ok(Decoded::Data(buffer.split_to(part).freeze()))
    }

    /// Consumes size lines, line ends and trailers, up to the next data or the end of the buffer.
    fn skip_syntax(&mut self, buffer: &mut BytesMut) -> Result<(), FramingError> {
        loop {
            if buffer.is_empty() {
                return Ok(());
            }
            match *self {
                Self::ChunkDataEnd => match &buffer[..] {
                    [b'\r', b'\n', ..] => {
                        buffer.advance(2);
                        *self = Self::ChunkSize;
                    }
                    [b'\r'] => return Ok(()),
                    _ => return Err(FramingError::Malformed),
                },
                Self::ChunkSize => {
                    if let Some((size, length)) = parse_short_size(buffer) {
                        buffer.advance(length);
                        *self = Self::ChunkData(size);
                        continue;
                    }
                    let Some(end) = find_line_end(buffer, MAX_CHUNK_LINE)? else {
                        return Ok(());
                    };
                    let line = strip_cr(&buffer[..end])?;
                    let size = parse_chunk_size(line).ok_or(FramingError::Malformed)?;
                    buffer.advance(end + 1);
                    *self = if size == 0 {
                        Self::Trailers(0)
                    } else {
                        Self::ChunkData(size)
                    };
                }
                Self::Trailers(before) => {
                    let room = MAX_TRAILER_BYTES.saturating_sub(before);
                    let Some(end) = find_line_end(buffer, room)? else {
                        return Ok(());
                    };
                    let empty = strip_cr(&buffer[..end])?.is_empty();
                    buffer.advance(end + 1);
                    *self = if empty {
                        Self::Done
                    } else {
                        Self::Trailers(before + end + 1)
                    };
                }
                _ => return Ok(()),
            }
        }
    }

    /// Whether the body is complete, as far as the buffer tells: the last chunk may be there and not decoded.
    pub fn is_complete(&mut self, buffer: &mut BytesMut) -> bool {
        self.skip_syntax(buffer).is_ok() && self.has_ended()
    }

    fn has_ended(&mut self) -> bool {
        if *self == Self::Length(0) {
            *self = Self::Done;
        }
        *self == Self::Done
    }

    /// The connection has ended. That ends a body without any framing; every other one is incomplete (section 8).
    pub fn on_eof(&mut self) -> Result<(), FramingError> {
        match self {
            Self::UntilClose | Self::Done => {
                *self = Self::Done;
                Ok(())
            }
            _ => Err(FramingError::UnexpectedEof),
        }
    }
}

/// Where the LF of the first line is, none when it has to come. A line with more than `max` bytes before it is refused,
/// whether its end is there or not: so the result does not depend on how the bytes were split.
fn find_line_end(buffer: &[u8], max: usize) -> Result<Option<usize>, FramingError> {
    let end = memchr::memchr(b'\n', buffer);
    if end.unwrap_or(buffer.len()) > max {
        return Err(FramingError::Malformed);
    }
    Ok(end)
}

/// A line of a chunked body without the CR at its end, and without its LF, which is behind it.
///
/// A bare CR or LF is refused, although the RFC lets a recipient take a bare LF for a line end in heads (section 2.2):
/// whoever reads on in a chunk extension until CRLF sees the body end elsewhere. `cargo fuzz run framing` found it.
fn strip_cr(line: &[u8]) -> Result<&[u8], FramingError> {
    let line = line.strip_suffix(b"\r").ok_or(FramingError::Malformed)?;
    if line.contains(&b'\r') {
        return Err(FramingError::Malformed);
    }
    Ok(line)
}

/// Takes out a chunk that is there from its size to its line end, in one go.
fn take_whole_chunk(buffer: &mut BytesMut) -> Option<Bytes> {
    let (data, end) = find_chunk(buffer)?;
    let mut chunk = buffer.split_to(end).freeze();
    chunk.truncate(data.end);
    chunk.advance(data.start);
    Some(chunk)
}

/// Where the data of a chunk is and where the chunk ends, if it is there from its size to its line end: so comes almost
/// every event of every stream.
pub fn find_chunk(buffer: &[u8]) -> Option<(Range<usize>, usize)> {
    let (size, start) = parse_short_size(buffer)?;
    let end = start + usize::try_from(size).ok()?;
    let line_end = buffer.get(end..)?.starts_with(b"\r\n");
    line_end.then_some((start..end, end + 2))
}

/// The size of a chunk and the length of its line, where that is a few digits and a line end. Everything else, the last
/// chunk included, is left to [`parse_chunk_size`]. By hand, because it runs for every event of every stream.
fn parse_short_size(buffer: &[u8]) -> Option<(u64, usize)> {
    let mut size = 0;
    for (at, &byte) in buffer.iter().take(MAX_SHORT_SIZE_DIGITS + 1).enumerate() {
        let Some(digit) = parse_hex_digit(byte) else {
            let ends = size > 0 && buffer[at..].starts_with(b"\r\n");
            return ends.then_some((size, at + 2));
        };
        size = size << 4 | u64::from(digit);
    }
    None
}

fn parse_hex_digit(byte: u8) -> Option<u8> {
    match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        b'A'..=b'F' => Some(byte - b'A' + 10),
        _ => None,
    }
}

/// The size of a chunk from its line, with or without extensions, which are ignored (section 7.1.1).
fn parse_chunk_size(line: &[u8]) -> Option<u64> {
    let (mut size, mut digits) = (0, 0);
    for &byte in line {
        let Some(digit) = parse_hex_digit(byte) else {
            break;
        };
        if digits == MAX_CHUNK_SIZE_DIGITS {
            return None;
        }
        size = size << 4 | u64::from(digit);
        digits += 1;
    }
    let rest = &line[digits..];
    let spaces = rest.iter().take_while(|byte| matches!(byte, b' ' | b'\t'));
    let rest_is_extension = matches!(&rest[spaces.count()..], [] | [b';', ..]);
    (digits > 0 && rest_is_extension).then_some(size)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Feeds bytes in two parts, and collects what comes out.
    fn decode(framing: Framing, bytes: &[u8], at: usize) -> Result<(Vec<u8>, bool), FramingError> {
        let (mut framing, mut buffer, mut out) = (framing, BytesMut::new(), Vec::new());
        for part in [&bytes[..at], &bytes[at..]] {
            buffer.extend_from_slice(part);
            loop {
                match framing.decode(&mut buffer)? {
                    Decoded::Data(data) => out.extend_from_slice(&data),
                    Decoded::NeedMore => break,
                    Decoded::Done => return Ok((out, true)),
                }
            }
        }
        Ok((out, framing.on_eof().is_ok()))
    }

    #[test]
    fn chunks_are_read_wherever_they_are_split() {
        let bytes = b"5\r\nhello\r\n1;a=b\r\n \r\n005 ;x\r\nworld\r\n0\r\nx-a: b\r\n\r\n";
        for at in 0..=bytes.len() {
            assert_eq!(
                decode(Framing::ChunkSize, bytes, at),
                Ok((b"hello world".to_vec(), true)),
                "{at}"
            );
            let (_, done) = decode(Framing::ChunkSize, &bytes[..at], 0).unwrap();
            assert_eq!(done, at == bytes.len(), "{at}");
        }
    }

    #[test]
    fn garbage_is_refused() {
        for bad in [
            &b"x\r\n"[..],
            b"\r\n",
            b"5\r\nhelloX",
            b"5\r\nhelloXX5\r\n",
            b"-1\r\n",
            b"5 5\r\n",
            b"ffffffffffffffff\r\n",
            // A line end is CRLF.
            b"5\nhello\r\n0\r\n\r\n",
            b"0\n\r\n",
            b"0;\n\n",
            b"0;a\rb\r\n\r\n",
            b"0\r\r\n\r\n",
            b"5\x0c;a\r\nhello\r\n",
            b"0\r\n\n",
            b"0\r\na: b\n\r\n",
        ] {
            assert_eq!(
                decode(Framing::ChunkSize, bad, 0),
                Err(FramingError::Malformed),
                "{bad:?}"
            );
        }
        assert_eq!(
            decode(Framing::ChunkSize, &[b'0'; 2000], 0),
            Err(FramingError::Malformed)
        );
        let trailers = [b"0\r\n".as_slice(), &b"a: b\r\n".repeat(5000)].concat();
        assert_eq!(
            decode(Framing::ChunkSize, &trailers, 3),
            Err(FramingError::Malformed)
        );
    }

    #[test]
    fn lengths_and_closes_end_a_body() {
        assert_eq!(
            decode(Framing::Length(3), b"abcd", 2),
            Ok((b"abc".to_vec(), true))
        );
        assert_eq!(
            decode(Framing::Length(5), b"abcd", 2),
            Ok((b"abcd".to_vec(), false))
        );
        assert_eq!(
            decode(Framing::UntilClose, b"abcd", 2),
            Ok((b"abcd".to_vec(), true))
        );
    }

    #[test]
    fn a_body_of_no_bytes_has_ended() {
        for rest in [&b""[..], b"HTTP/1.1"] {
            let mut buffer = BytesMut::from(rest);
            assert_eq!(Framing::Length(0).decode(&mut buffer), Ok(Decoded::Done));
            assert!(Framing::Length(0).is_complete(&mut buffer));
            // What follows is not its.
            assert_eq!(buffer, rest);
        }
    }
}
