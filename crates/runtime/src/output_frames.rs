//! What a command without a terminal writes: standard output and error in turn, each piece behind a header.
//!
//! The header has eight bytes: the stream, three zeros, and the length of the piece, big endian.

use bytes::Bytes;
use std::io;
use tokio::io::{AsyncRead, AsyncReadExt};

/// Bytes of a header.
pub(crate) const HEADER_BYTES: usize = 8;

/// One of the streams of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutputStream {
    Stdout,
    Stderr,
}

/// Reads pieces of bounded size, however long the frames are.
#[derive(Debug)]
pub struct OutputFrames<R> {
    from: R,
    buffer: Vec<u8>,
    header: [u8; HEADER_BYTES],
    /// How much of the header was read.
    read: usize,
    stream: OutputStream,
    /// Bytes of the present frame that are still to come.
    left: usize,
}

impl<R: AsyncRead + Unpin> OutputFrames<R> {
    /// Reads pieces of at most so many bytes.
    pub fn new(from: R, max_piece: usize) -> Self {
        Self {
            from,
            buffer: vec![0; max_piece],
            header: [0; HEADER_BYTES],
            read: 0,
            stream: OutputStream::Stdout,
            left: 0,
        }
    }

    /// The next piece; none: the command has closed both streams. It may be cancelled and called again.
    pub async fn next(&mut self) -> io::Result<Option<(OutputStream, Bytes)>> {
        while self.left == 0 {
            let count = self.from.read(&mut self.header[self.read..]).await?;
            if count == 0 {
                return Ok(None);
            }
            self.read += count;
            if self.read < HEADER_BYTES {
                continue;
            }
            self.read = 0;
            let (stream, length) = parse_header(self.header).ok_or_else(|| {
                io::Error::new(io::ErrorKind::InvalidData, "this is no header of a stream")
            })?;
            (self.stream, self.left) = (stream, length);
        }
        let most = self.left.min(self.buffer.len());
        let count = self.from.read(&mut self.buffer[..most]).await?;
        self.left -= count;
        let piece = Bytes::copy_from_slice(&self.buffer[..count]);
        Ok((count > 0).then_some((self.stream, piece)))
    }
}

/// Stream and length; none: it is no header.
pub(crate) fn parse_header(header: [u8; HEADER_BYTES]) -> Option<(OutputStream, usize)> {
    let [stream, 0, 0, 0, length @ ..] = header else {
        return None;
    };
    let stream = match stream {
        1 => OutputStream::Stdout,
        2 => OutputStream::Stderr,
        _ => return None,
    };
    Some((stream, usize::try_from(u32::from_be_bytes(length)).ok()?))
}

/// The header of a piece.
pub(crate) fn build_header(stream: OutputStream, length: usize) -> [u8; HEADER_BYTES] {
    let kind = match stream {
        OutputStream::Stdout => 1,
        OutputStream::Stderr => 2,
    };
    let [a, b, c, d] = u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes();
    [kind, 0, 0, 0, a, b, c, d]
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn read(bytes: &[u8], max_piece: usize) -> Vec<(OutputStream, String)> {
        let mut frames = OutputFrames::new(bytes, max_piece);
        let mut pieces = Vec::new();
        while let Some((stream, piece)) = frames.next().await.unwrap() {
            pieces.push((stream, String::from_utf8(piece.to_vec()).unwrap()));
        }
        pieces
    }

    #[tokio::test]
    async fn streams_are_told_apart_in_pieces() {
        let bytes = b"\x01\0\0\0\0\0\0\x05hello\x02\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\x02no";
        let (out, err) = (OutputStream::Stdout, OutputStream::Stderr);
        assert_eq!(
            read(bytes, 3).await,
            [(out, "hel".into()), (out, "lo".into()), (err, "no".into())]
        );
        assert_eq!(
            read(&bytes[..11], 100).await,
            [(out, "hel".into())],
            "cut off inside of a piece"
        );
        assert_eq!(read(&bytes[..15], 100).await.len(), 1, "inside of a header");
    }

    #[tokio::test]
    async fn what_is_no_frame_is_an_error() {
        let mut frames = OutputFrames::new(&b"OCI runtime exec failed"[..], 10);
        let error = frames.next().await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    }
}
