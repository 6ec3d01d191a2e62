//! Writing to a socket without a buffered writer: the bytes are sent from where they are.

use crate::server::WRITE_TIMEOUT;
use rustix::net::{SendFlags, send};
use std::io::{self, IoSlice};
use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Waits until the client takes more, up to [`WRITE_TIMEOUT`].
pub async fn writable(stream: &TcpStream) -> io::Result<()> {
    let ready = timeout(WRITE_TIMEOUT, stream.writable()).await;
    ready.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

/// Writes both, one after the other, with as few system calls as it takes.
pub async fn write_all(stream: &TcpStream, first: &[u8], then: &[u8]) -> io::Result<()> {
    let mut both = [IoSlice::new(first), IoSlice::new(then)];
    let mut slices = &mut both[..if then.is_empty() { 1 } else { 2 }];
    // Empty slices are dropped: 0 bytes written of one would look like the end of the stream.
    IoSlice::advance_slices(&mut slices, 0);
    while !slices.is_empty() {
        let wrote = match &*slices {
            [one] => try_send(stream, one, SendFlags::empty()),
            several => stream.try_write_vectored(several),
        };
        match wrote {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => IoSlice::advance_slices(&mut slices, written),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => writable(stream).await?,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Writes bytes that others follow at once (`MSG_MORE`): the kernel may send them in one segment.
pub async fn write_more(stream: &TcpStream, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match try_send(stream, bytes, SendFlags::MORE) {
            Ok(written) => bytes = &bytes[written..],
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => writable(stream).await?,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Sends what the socket takes at once. The system call is made directly: the C library's `send` is a cancellation
/// point of its threads and takes twice as many instructions.
pub fn try_send(stream: &TcpStream, bytes: &[u8], flags: SendFlags) -> io::Result<usize> {
    let send = || Ok(send(stream, bytes, flags | SendFlags::NOSIGNAL)?);
    stream.try_io(Interest::WRITABLE, send)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncReadExt;

    #[tokio::test]
    async fn to_write_nothing_is_no_failure() {
        let socket = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = socket.local_addr().unwrap();
        let mut client = TcpStream::connect(address).await.unwrap();
        let server = socket.accept().await.unwrap().0;
        for (first, then) in [("", ""), ("a", ""), ("", "b"), ("c", "d")] {
            let wrote = write_all(&server, first.as_bytes(), then.as_bytes());
            wrote.await.unwrap();
        }
        drop(server);
        let mut read = String::new();
        client.read_to_string(&mut read).await.unwrap();
        assert_eq!(read, "abcd");
    }
}
