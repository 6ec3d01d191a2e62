//! Body of a response, decoded while it is read. Parts share the memory of the read buffer: nothing is copied.

use crate::client::Connection;
use crate::framing::{Decoded, Framing, FramingError};
use bytes::Bytes;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite};

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    /// The next part of the body, none at its end.
    pub fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, FramingError>> {
        loop {
            match self.framing.decode(&mut self.buffer)? {
                Decoded::Data(data) => return Poll::Ready(Ok(Some(data))),
                Decoded::Done => return Poll::Ready(Ok(None)),
                Decoded::NeedMore => {}
            }
            match ready!(self.poll_fill(cx)) {
                Ok(1..) => {}
                Ok(0) => self.framing.on_eof()?,
                Err(_) => return Poll::Ready(Err(FramingError::UnexpectedEof)),
            }
        }
    }

    /// The whole body, if it has been read already in one piece.
    pub fn take_whole(&mut self) -> Option<Bytes> {
        match self.framing {
            Framing::Done => Some(Bytes::new()),
            Framing::Length(length) if self.buffer.len() as u64 >= length => {
                self.framing = Framing::Done;
                let length = usize::try_from(length).ok()?;
                Some(self.buffer.split_to(length).freeze())
            }
            _ => None,
        }
    }

    /// Whether the body has ended, as far as it was read.
    pub fn is_done(&mut self) -> bool {
        self.framing.is_complete(&mut self.buffer)
    }

    /// How many bytes of the body are left, if that is known.
    pub fn remaining(&self) -> Option<u64> {
        self.framing.remaining()
    }

    /// Whether only the end of the connection ends the body.
    pub fn is_until_close(&self) -> bool {
        self.framing == Framing::UntilClose
    }

    /// Whether a chunk comes next and nothing of it has been read: then a user that decodes whole chunks itself may read
    /// into its own buffer.
    pub fn is_before_chunk(&self) -> bool {
        self.framing == Framing::ChunkSize && self.buffer.is_empty()
    }

    /// Takes back what [`poll_read_into`](Self::poll_read_into) read and its user did not decode.
    pub fn put_back(&mut self, read: &[u8]) {
        self.buffer.extend_from_slice(read);
    }
}
