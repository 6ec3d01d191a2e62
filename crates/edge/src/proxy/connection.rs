//! One connection to an instance.

use crate::proxy::response_head::{self, MalformedResponse, ResponseContext, ResponseHead};
use bytes::{Bytes, BytesMut};
use estrade_http1::framing::{Decoded, Framing, FramingError};
use futures_util::task::noop_waker_ref;
use rustix::net::RecvFlags;
use std::future::Future;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::task::coop::has_budget_remaining;
use tokio::time::{Instant, Sleep, sleep_until, timeout};
use tokio_util::io::poll_read_buf;

/// What is read at once: little at first, since most answers are small…
const INITIAL_READ: usize = 4 * 1024;
/// …and more as long as the buffer is filled each time.
const MAX_READ: usize = 64 * 1024;

/// A connection that is used by one request at a time.
pub(crate) struct Connection {
    stream: TcpStream,
    buffer: BytesMut,
    read_size: usize,
    framing: Framing,
    keep_alive: bool,
    /// Made once and moved forward only when it fires: setting a timer per read would cost more than
    /// the read.
    timer: Pin<Box<Sleep>>,
    /// Since when it waits for the next request.
    pub(crate) idle_since: Instant,
}

impl Connection {
    pub(crate) async fn open(address: SocketAddr, connect_timeout: Duration) -> io::Result<Self> {
        let connecting = timeout(connect_timeout, TcpStream::connect(address)).await;
        let stream = connecting.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))?;
        stream.set_nodelay(true)?;
        let now = Instant::now();
        Ok(Self {
            stream,
            buffer: BytesMut::new(),
            read_size: INITIAL_READ,
            framing: Framing::Done,
            keep_alive: true,
            timer: Box::pin(sleep_until(now + Duration::from_hours(1))),
            idle_since: now,
        })
    }

    /// Sends as much of these as goes.
    pub(crate) fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        parts: &[&[u8]; 3],
    ) -> Poll<io::Result<usize>> {
        let stream = Pin::new(&mut self.stream);
        // Most requests are a head and nothing else.
        let wrote = match parts {
            [one, [], []] | [[], one, []] | [[], [], one] => stream.poll_write(cx, one),
            several => stream.poll_write_vectored(cx, &several.map(IoSlice::new)),
        };
        match ready!(wrote)? {
            0 => Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
            written => Poll::Ready(Ok(written)),
        }
    }

    /// The head of the answer; none when the connection ended before its first byte.
    pub(crate) fn poll_head(
        &mut self,
        cx: &mut Context<'_>,
        context: ResponseContext,
    ) -> Poll<Result<Option<ResponseHead>, MalformedResponse>> {
        loop {
            if !self.buffer.is_empty()
                && let Some(head) = response_head::parse(&mut self.buffer, context)?
            {
                self.framing = head.framing;
                self.keep_alive = head.keep_alive;
                return Poll::Ready(Ok(Some(head)));
            }
            match ready!(self.poll_fill(cx)) {
                Ok(1..) => {}
                Ok(0) | Err(_) if self.buffer.is_empty() => return Poll::Ready(Ok(None)),
                Ok(0) | Err(_) => return Poll::Ready(Err(MalformedResponse)),
            }
        }
    }

    fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        if self.buffer.capacity() - self.buffer.len() < self.read_size / 4 {
            self.buffer.reserve(self.read_size);
        }
        let read = ready!(poll_read_buf(
            Pin::new(&mut self.stream),
            cx,
            &mut self.buffer
        ))?;
        if self.buffer.len() == self.buffer.capacity() {
            self.read_size = (self.read_size * 2).min(MAX_READ);
        }
        Poll::Ready(Ok(read))
    }

    /// The next part of the answer's body.
    pub(crate) fn poll_data(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<Bytes>, FramingError>> {
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

    /// Whether the body has ended, as far as was read.
    pub(crate) fn is_done(&mut self) -> bool {
        self.framing.is_complete(&mut self.buffer)
    }

    /// How much of the body is left, if that is known.
    pub(crate) fn left(&self) -> Option<u64> {
        self.framing.remaining()
    }

    /// Whether it can take another request.
    pub(crate) fn is_reusable(&self) -> bool {
        self.keep_alive && self.framing == Framing::Done && self.buffer.is_empty()
    }

    /// Begins to wait for the next request, with no more memory than it needs.
    pub(crate) fn rest(&mut self) {
        self.idle_since = Instant::now();
        if self.read_size > INITIAL_READ {
            self.read_size = INITIAL_READ;
            self.buffer = BytesMut::new();
        }
    }

    /// Whether nothing is known to have come since the last answer: neither its end nor what nobody
    /// asked for. As long as the socket is not readable this is no system call.
    pub(crate) fn is_quiet(&mut self) -> bool {
        let (mut one, mut cx) = ([0], Context::from_waker(noop_waker_ref()));
        let mut one = ReadBuf::new(&mut one);
        Pin::new(&mut self.stream)
            .poll_read(&mut cx, &mut one)
            .is_pending()
    }

    /// The same by a system call (`MSG_PEEK`): certain, where `is_quiet` only knows what the reactor has seen.
    pub(crate) fn is_quiet_now(&self) -> bool {
        let mut one = [0; 1];
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        rustix::net::recv(&self.stream, &mut one, flags) == Err(rustix::io::Errno::AGAIN)
    }

    /// Ready when the deadline has passed.
    pub(crate) fn poll_due(&mut self, cx: &mut Context<'_>, due: Instant) -> Poll<()> {
        if self.timer.deadline() > due {
            self.timer.as_mut().reset(due);
        }
        loop {
            let rang = self.timer.as_mut().poll(cx).is_ready();
            // tokio's coop budget may be exhausted: then the timer returns `Pending` even when it is due, and a
            // peer that sends without pause would never time out. So the clock is read as well.
            if (rang || !has_budget_remaining()) && Instant::now() >= due {
                // The timer has fired; the next call sets a later deadline.
                return Poll::Ready(());
            }
            if !rang {
                return Poll::Pending;
            }
            self.timer.as_mut().reset(due);
        }
    }

    /// What is left of it once it speaks another protocol: the socket, and what was read of it.
    pub(crate) fn into_stream(self) -> (TcpStream, Vec<u8>) {
        (self.stream, self.buffer.into())
    }
}
