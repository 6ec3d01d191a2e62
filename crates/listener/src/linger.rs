//! A socket that closes politely.
//!
//! When a request is refused before its body was read (401, 413), closing the socket at once makes
//! the kernel answer the rest of the body with a reset, and the client loses the response that is
//! already on its way. So after our last byte we read and discard for a moment, until the client
//! has closed its side too.

use crate::ConnectionHandle;
use crate::admission::ConnectionPermit;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::Sleep;
use tokio_util::sync::CancellationToken;

/// How long a client may go on sending after our last byte.
const LINGER_TIMEOUT: Duration = Duration::from_secs(2);

/// A TCP stream whose shutdown waits for the client to finish.
pub struct Lingering {
    stream: TcpStream,
    shutdown: CancellationToken,
    state: State,
    /// The connection is counted for as long as its socket is open: after an upgrade the socket belongs to a tunnel or a
    /// WebSocket, and no longer to the task that serves requests.
    _permit: Option<Arc<ConnectionPermit>>,
}

enum State {
    Open,
    Discarding(Pin<Box<Sleep>>),
    Closed,
}

impl Lingering {
    /// Wraps the stream of a connection; once that shall close, it does so without waiting.
    pub fn new(stream: TcpStream, connection: &ConnectionHandle) -> Self {
        Self {
            stream,
            shutdown: connection.close().clone(),
            state: State::Open,
            _permit: connection.permit(),
        }
    }
}

impl AsyncRead for Lingering {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Lingering {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        loop {
            match &mut this.state {
                State::Open => {
                    ready!(Pin::new(&mut this.stream).poll_shutdown(cx))?;
                    this.state = if this.shutdown.is_cancelled() {
                        State::Closed
                    } else {
                        State::Discarding(Box::pin(tokio::time::sleep(LINGER_TIMEOUT)))
                    };
                }
                State::Discarding(deadline) => {
                    if deadline.as_mut().poll(cx).is_pending() {
                        ready!(poll_discard(&mut this.stream, cx));
                    }
                    this.state = State::Closed;
                }
                State::Closed => return Poll::Ready(Ok(())),
            }
        }
    }
}

/// Reads until the client has closed its side, or the connection broke.
fn poll_discard(stream: &mut TcpStream, cx: &mut Context<'_>) -> Poll<()> {
    let mut scratch = [0; 8 * 1024];
    loop {
        let mut buf = ReadBuf::new(&mut scratch);
        match ready!(Pin::new(&mut *stream).poll_read(cx, &mut buf)) {
            Ok(()) if !buf.filled().is_empty() => {}
            _ => return Poll::Ready(()),
        }
    }
}
