//! Where the body of an answer ends: by length, in chunks, or with the connection. For those of us who
//! are clients.

use bytes::{Buf, Bytes, BytesMut};
use std::ops::Range;

/// A line with a chunk's size, its extensions included, is no longer than this…
const LONGEST_SIZE_LINE: usize = 1024;
/// …and all trailers together than this.
const MOST_TRAILERS: usize = 8 * 1024;

/// Why a body has no proper end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BadEnd {
    /// The connection broke off.
    Closed,
    /// What came is not HTTP.
    Garbage,
}

/// What is left of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    /// So much is left.
    Length(u64),
    /// A size line comes next.
    Size,
    /// So much of a chunk is left.
    Chunk(u64),
    /// The end of a chunk's line comes next.
    ChunkEnd,
    /// Trailers come next, after so many bytes of them.
    Trailers(usize),
    /// It goes on until the connection ends.
    UntilClose,
    /// It has ended.
    Done,
}

/// What a look into the buffer gave.
#[derive(Debug, PartialEq, Eq)]
pub enum Step {
    /// A part of the body.
    Data(Bytes),
    /// More has to be read.
    More,
    /// It has ended.
    Done,
}

impl Framing {
    /// How much of the body is left, if that is known.
    pub fn left(self) -> Option<u64> {
        match self {
            Self::Done => Some(0),
            Self::Length(left) => Some(left),
            _ => None,
        }
    }

    /// The next part of the body from what was read.
    pub fn next(&mut self, buffer: &mut BytesMut) -> Result<Step, BadEnd> {
        if self.has_ended() {
            return Ok(Step::Done);
        }
        // Often there is nothing yet: it is asked several times per event of a stream.
        if buffer.is_empty() {
            return Ok(Step::More);
        }
        if *self == Self::Size
            && let Some(data) = whole_chunk(buffer)
        {
            return Ok(Step::Data(data));
        }
        self.settle(buffer)?;
        let (left, then) = match self {
            Self::Done => return Ok(Step::Done),
            _ if buffer.is_empty() => return Ok(Step::More),
            Self::UntilClose => return Ok(Step::Data(buffer.split().freeze())),
            Self::Length(left) => (left, Self::Done),
            Self::Chunk(left) => (left, Self::ChunkEnd),
            _ => return Ok(Step::More),
        };
        let part = usize::try_from(*left)
            .unwrap_or(usize::MAX)
            .min(buffer.len());
        *left -= part as u64;
        if *left == 0 {
            *self = then;
        }
        Ok(Step::Data(buffer.split_to(part).freeze()))
    }

    /// Reads over what is not data, as far as the buffer goes.
    fn settle(&mut self, buffer: &mut BytesMut) -> Result<(), BadEnd> {
        loop {
            if buffer.is_empty() {
                return Ok(());
            }
            match *self {
                Self::ChunkEnd => match &buffer[..] {
                    [b'\r', b'\n', ..] => {
                        buffer.advance(2);
                        *self = Self::Size;
                    }
                    [b'\r'] => return Ok(()),
                    _ => return Err(BadEnd::Garbage),
                },
                Self::Size => {
                    if let Some((size, length)) = usual_size(buffer) {
                        buffer.advance(length);
                        *self = Self::Chunk(size);
                        continue;
                    }
                    let Some(end) = memchr::memchr(b'\n', buffer) else {
                        let long = buffer.len() > LONGEST_SIZE_LINE;
                        return if long { Err(BadEnd::Garbage) } else { Ok(()) };
                    };
                    let size = chunk_size(&buffer[..end]).ok_or(BadEnd::Garbage)?;
                    buffer.advance(end + 1);
                    *self = if size == 0 {
                        Self::Trailers(0)
                    } else {
                        Self::Chunk(size)
                    };
                }
                Self::Trailers(before) => {
                    let Some(end) = memchr::memchr(b'\n', buffer) else {
                        let long = before + buffer.len() > MOST_TRAILERS;
                        return if long { Err(BadEnd::Garbage) } else { Ok(()) };
                    };
                    let empty = matches!(&buffer[..end], [] | [b'\r']);
                    buffer.advance(end + 1);
                    *self = if empty {
                        Self::Done
                    } else {
                        Self::Trailers(before + end + 1)
                    };
                    if before + end > MOST_TRAILERS {
                        return Err(BadEnd::Garbage);
                    }
                }
                _ => return Ok(()),
            }
        }
    }

    /// Whether the body has ended, as far as the buffer tells.
    pub fn is_done(&mut self, buffer: &mut BytesMut) -> bool {
        self.settle(buffer).is_ok() && self.has_ended()
    }

    /// Whether nothing of the body is left.
    fn has_ended(&mut self) -> bool {
        if *self == Self::Length(0) {
            *self = Self::Done;
        }
        *self == Self::Done
    }

    /// What the end of the connection means.
    pub fn closed(&mut self) -> Result<(), BadEnd> {
        match self {
            Self::UntilClose | Self::Done => {
                *self = Self::Done;
                Ok(())
            }
            _ => Err(BadEnd::Closed),
        }
    }
}

/// Takes out a chunk that is there with its size before it and the end of its line behind it, in one go.
fn whole_chunk(buffer: &mut BytesMut) -> Option<Bytes> {
    let (data, end) = find_chunk(buffer)?;
    let mut chunk = buffer.split_to(end).freeze();
    chunk.truncate(data.end);
    chunk.advance(data.start);
    Some(chunk)
}

/// Where the data of a chunk is and where the chunk ends, if it is there with its size before it and the end of
/// its line behind it: so comes almost every event of every stream.
pub fn find_chunk(buffer: &[u8]) -> Option<(Range<usize>, usize)> {
    let (size, start) = usual_size(buffer)?;
    let end = start + usize::try_from(size).ok()?;
    let line_end = buffer.get(end..)?.starts_with(b"\r\n");
    line_end.then_some((start..end, end + 2))
}

/// The size of a chunk, and how long its line is, where that is a few digits as almost always. By hand: it is
/// done for every event of every stream.
fn usual_size(buffer: &[u8]) -> Option<(u64, usize)> {
    let mut size = 0;
    for (at, &byte) in buffer.iter().take(6).enumerate() {
        let Some(digit) = hex_digit(byte) else {
            let ends = size > 0 && buffer[at..].starts_with(b"\r\n");
            return ends.then_some((size, at + 2));
        };
        size = size << 4 | u64::from(digit);
    }
    None
}

fn hex_digit(byte: u8) -> Option<u8> {
    match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        b'A'..=b'F' => Some(byte - b'A' + 10),
        _ => None,
    }
}

fn chunk_size(line: &[u8]) -> Option<u64> {
    let (mut size, mut digits) = (0, 0);
    for &byte in line {
        let Some(digit) = hex_digit(byte) else {
            break;
        };
        // Fifteen digits are more than anybody sends, and cannot overflow.
        if digits == 15 {
            return None;
        }
        size = size << 4 | u64::from(digit);
        digits += 1;
    }
    let rest_is_extension = matches!(line[digits..].trim_ascii_start(), [] | [b';', ..]);
    (digits > 0 && rest_is_extension).then_some(size)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Feeds bytes in two parts, and collects what comes out.
    fn decode(framing: Framing, bytes: &[u8], at: usize) -> Result<(Vec<u8>, bool), BadEnd> {
        let (mut framing, mut buffer, mut out) = (framing, BytesMut::new(), Vec::new());
        for part in [&bytes[..at], &bytes[at..]] {
            buffer.extend_from_slice(part);
            loop {
                match framing.next(&mut buffer)? {
                    Step::Data(data) => out.extend_from_slice(&data),
                    Step::More => break,
                    Step::Done => return Ok((out, true)),
                }
            }
        }
        Ok((out, framing.closed().is_ok()))
    }

    #[test]
    fn chunks_are_read_wherever_they_are_split() {
        let bytes = b"5\r\nhello\r\n1;a=b\r\n \r\n005 ;x\r\nworld\r\n0\r\nx-a: b\r\n\r\n";
        for at in 0..=bytes.len() {
            assert_eq!(
                decode(Framing::Size, bytes, at),
                Ok((b"hello world".to_vec(), true)),
                "{at}"
            );
            let (_, done) = decode(Framing::Size, &bytes[..at], 0).unwrap();
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
        ] {
            assert_eq!(
                decode(Framing::Size, bad, 0),
                Err(BadEnd::Garbage),
                "{bad:?}"
            );
        }
        assert_eq!(
            decode(Framing::Size, &[b'0'; 2000], 0),
            Err(BadEnd::Garbage)
        );
        let trailers = [b"0\r\n".as_slice(), &b"a: b\r\n".repeat(5000)].concat();
        assert_eq!(decode(Framing::Size, &trailers, 3), Err(BadEnd::Garbage));
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
            assert_eq!(Framing::Length(0).next(&mut buffer), Ok(Step::Done));
            assert!(Framing::Length(0).is_done(&mut buffer));
            // What follows is not its.
            assert_eq!(buffer, rest);
        }
    }
}
