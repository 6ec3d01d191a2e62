//! The read buffer of a connection.

use bytes::BufMut;
use std::io;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;

/// Bytes of one read. A client must not be able to send so much at once that others wait until all of it got a response.
const MAX_READ: usize = 8 * 1024;
/// Capacity that a connection keeps after a large request.
const MAX_IDLE_CAPACITY: usize = 8 * 1024;

/// What was read of a connection and has no response yet.
///
/// Consumed bytes are removed when more is read, and not after each of many pipelined requests: that would move the rest
/// of the buffer every time.
#[derive(Debug, Default)]
pub struct Input {
    bytes: Vec<u8>,
    consumed: usize,
}

impl Input {
    /// The bytes that have no response yet.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[self.consumed..]
    }

    /// Whether all bytes have their response.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.consumed == self.bytes.len()
    }

    /// Marks so many bytes as done.
    #[inline]
    pub fn advance(&mut self, count: usize) {
        self.consumed = (self.consumed + count).min(self.bytes.len());
    }

    /// Adds what was read elsewhere, and empties it.
    pub fn append(&mut self, more: &mut Vec<u8>) {
        // A client that never waits for a response must not make the buffer grow. Not each time: the rest is moved.
        if self.consumed > self.bytes.len() / 2 {
            self.compact();
        }
        self.bytes.append(more);
    }

    fn compact(&mut self) {
        self.bytes.drain(..self.consumed);
        self.consumed = 0;
    }

    /// Reads more; false at the end of the stream. Cancel-safe: dropping the future loses no byte.
    pub async fn read(&mut self, stream: &mut TcpStream) -> io::Result<bool> {
        self.compact();
        self.bytes
            .shrink_to(MAX_IDLE_CAPACITY.max(self.bytes.len() + MAX_READ));
        self.bytes.reserve_exact(MAX_READ);
        Ok(stream
            .read_buf(&mut (&mut self.bytes).limit(MAX_READ))
            .await?
            > 0)
    }

    /// The bytes that have no response yet, for who goes on with the connection.
    pub fn into_bytes(mut self) -> Vec<u8> {
        self.bytes.drain(..self.consumed);
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_capacity_of_a_large_request_is_not_kept() {
        let socket = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut client = TcpStream::connect(socket.local_addr().unwrap())
            .await
            .unwrap();
        let mut server = socket.accept().await.unwrap().0;
        let mut input = Input::default();
        input.append(&mut vec![b'x'; 300_000]);
        input.advance(299_999);
        tokio::io::AsyncWriteExt::write_all(&mut client, b"y")
            .await
            .unwrap();
        assert!(input.read(&mut server).await.unwrap());
        assert_eq!(input.bytes(), b"xy");
        let capacity = input.bytes.capacity();
        assert!(capacity <= MAX_IDLE_CAPACITY + MAX_READ, "{capacity}");
    }
}
