//! Client connection: buffer, timer and state of one request and its response at a time.

use crate::client::response_head::{
    HeadProgress, MalformedResponse, ResponseContext, ResponseHead, parse_response_head,
};
use crate::framing::Framing;
use bytes::BytesMut;
use rustix::net::RecvFlags;
use std::future::Future;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::pin::Pin;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::task::coop::has_budget_remaining;
use tokio::time::{Instant, Sleep, sleep_until, timeout};
use tokio_util::io::poll_read_buf;

/// Room for the first read of a response: most responses and all events of a stream are small.
const MIN_READ: usize = 4 * 1024;
/// The room doubles up to this size while reads fill the buffer.
const MAX_READ: usize = 64 * 1024;

/// Connection that carries one request at a time, over any byte stream.
///
/// Generic instead of `dyn`: the read of each part of a body is a direct call. Users that hand connections on keep them
/// in a `Box`, which is how the [`Pool`](super::Pool) holds them.
pub struct Connection<S> {
    stream: S,
    pub(super) buffer: BytesMut,
    read_size: usize,
    head: HeadProgress,
    pub(super) framing: Framing,
    keep_alive: bool,
    /// Created once and moved forward only when it fires: setting a timer per read would cost more than the read.
    timer: Pin<Box<Sleep>>,
    /// When the timer fires: comparing this costs less than polling the timer.
    deadline: Instant,
    pub(super) fully_sent: bool,
    pub(super) sent_at: Instant,
    reused: bool,
    idle_since: Instant,
}

/// Opens a socket for a [`Connection`].
pub async fn connect(address: SocketAddr, connect_timeout: Duration) -> io::Result<TcpStream> {
    let connecting = timeout(connect_timeout, TcpStream::connect(address)).await;
    let stream = connecting.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    pub fn new(stream: S) -> Self {
        let now = Instant::now();
        let deadline = now + Duration::from_hours(1);
        Self {
            stream,
            buffer: BytesMut::new(),
            read_size: MIN_READ,
            head: HeadProgress::default(),
            framing: Framing::Done,
            keep_alive: true,
            timer: Box::pin(sleep_until(deadline)),
            deadline,
            fully_sent: false,
            sent_at: now,
            reused: false,
            idle_since: now,
        }
    }

    /// Writes as much of these parts, in this order, as the socket takes.
    pub fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        parts: &[&[u8]; 3],
    ) -> Poll<io::Result<usize>> {
        let stream = Pin::new(&mut self.stream);
        // Most requests of a site are a head and nothing else.
        let wrote = match parts {
            [one, [], []] | [[], one, []] | [[], [], one] => stream.poll_write(cx, one),
            several => stream.poll_write_vectored(cx, &several.map(IoSlice::new)),
        };
        match ready!(wrote)? {
            0 => Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
            written => Poll::Ready(Ok(written)),
        }
    }

    /// TLS keeps written bytes back until it is flushed.
    pub(super) fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    /// Reads the head of the response; none when the connection ended before its first byte. An interim response is
    /// a part of it: a peer that has sent one has the request.
    pub fn poll_head<T>(
        &mut self,
        cx: &mut Context<'_>,
        context: ResponseContext,
        read: impl Fn(&ResponseHead<'_>) -> T,
    ) -> Poll<Result<Option<T>, MalformedResponse>> {
        loop {
            if !self.buffer.is_empty() && self.head.is_worth_parsing(&self.buffer) {
                let (framing, keep_alive) = (&mut self.framing, &mut self.keep_alive);
                let head = parse_response_head(&mut self.buffer, context, |head| {
                    *framing = head.framing;
                    *keep_alive = head.keep_alive;
                    read(head)
                })?;
                if head.is_some() {
                    self.head = HeadProgress::default();
                    return Poll::Ready(Ok(head));
                }
                self.head.set_partial(&self.buffer);
            }
            match ready!(self.poll_fill(cx)) {
                Ok(1..) => self.head.begun = true,
                Ok(0) | Err(_) if !self.head.begun => return Poll::Ready(Ok(None)),
                Ok(0) | Err(_) => return Poll::Ready(Err(MalformedResponse)),
            }
        }
    }

    pub(super) fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        if self.buffer.capacity() - self.buffer.len() < self.read_size / 4 {
            self.buffer.reserve(self.read_size);
        }
        let stream = Pin::new(&mut self.stream);
        let read = ready!(poll_read_buf(stream, cx, &mut self.buffer))?;
        if self.buffer.len() == self.buffer.capacity() {
            self.read_size = (self.read_size * 2).min(MAX_READ);
        }
        Poll::Ready(Ok(read))
    }

    /// Reads what has arrived into the spare capacity of the user's buffer. Nothing may be left in the connection's own:
    /// see [`is_before_chunk`](Self::is_before_chunk).
    pub fn poll_read_into(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut Vec<u8>,
    ) -> Poll<io::Result<usize>> {
        poll_read_buf(Pin::new(&mut self.stream), cx, buffer)
    }

    /// Whether the last request was written to its last byte. A peer that has only a part of a request cannot have
    /// worked on it.
    pub fn is_fully_sent(&self) -> bool {
        self.fully_sent
    }

    /// Keep-alive race: whether an end without a response means that the peer had closed the connection before it read
    /// the request. So it is when the connection was reused and the request was sent within `window`.
    pub fn may_have_been_closed(&self, window: Duration) -> bool {
        self.reused && self.sent_at.elapsed() <= window
    }

    /// Whether the connection is closed after this response.
    pub fn is_last(&self) -> bool {
        !self.keep_alive
    }

    /// Excludes the connection from reuse: the peer may take bytes that are still to come for the next request.
    pub(super) fn close_after_response(&mut self) {
        self.keep_alive = false;
    }

    /// Whether another request may be sent: the peer keeps the connection open, the response has ended, and nothing
    /// came after its end.
    pub fn is_reusable(&self) -> bool {
        self.keep_alive && self.framing == Framing::Done && self.buffer.is_empty()
    }

    /// Becomes idle, without the memory that a long response needed.
    pub(super) fn set_idle(&mut self, now: Instant) {
        self.idle_since = now;
        self.reused = true;
        if self.read_size > MIN_READ {
            self.read_size = MIN_READ;
            self.buffer = BytesMut::new();
        }
    }

    pub(super) fn idle_time(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.idle_since)
    }

    /// Stale-connection check: neither an end nor bytes that belong to no request have come, as far as the reactor
    /// knows. No system call as long as the socket is not readable. Needs coop budget: without it, every stream returns
    /// `Pending`.
    pub fn is_quiet(&mut self) -> bool {
        let (mut byte, mut cx) = ([0], Context::from_waker(Waker::noop()));
        let mut byte = ReadBuf::new(&mut byte);
        Pin::new(&mut self.stream)
            .poll_read(&mut cx, &mut byte)
            .is_pending()
    }

    /// Resolves when `due` has passed.
    pub fn poll_deadline(&mut self, cx: &mut Context<'_>, due: Instant) -> Poll<()> {
        if self.deadline > due {
            self.set_timer(due);
        }
        loop {
            let fired = self.timer.as_mut().poll(cx).is_ready();
            // With tokio's coop budget exhausted, the timer returns `Pending` even when it is due. The clock is read as
            // well, or a peer that sends without pause would never time out.
            if (fired || !has_budget_remaining()) && Instant::now() >= due {
                // The timer stays fired: the next call sets a later deadline.
                return Poll::Ready(());
            }
            if !fired {
                return Poll::Pending;
            }
            self.set_timer(due);
        }
    }

    fn set_timer(&mut self, due: Instant) {
        self.timer.as_mut().reset(due);
        self.deadline = due;
    }

    /// Whether the timer fires after `now` and no later than `due`: a waker that is registered with it need not poll it
    /// again.
    pub fn is_timer_set(&self, now: Instant, due: Instant) -> bool {
        now < self.deadline && self.deadline <= due
    }

    pub(super) fn stream(&self) -> &S {
        &self.stream
    }

    /// After a switch of protocols: the stream, and what was read of the new protocol.
    pub fn into_stream(self) -> (S, Vec<u8>) {
        (self.stream, self.buffer.into())
    }
}

impl<S: AsFd> Connection<S> {
    /// [`is_quiet`](Self::is_quiet) by a system call (`MSG_PEEK`): it also sees what the reactor has not reported yet.
    pub fn is_quiet_now(&self) -> bool {
        let mut byte = [0; 1];
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        rustix::net::recv(&self.stream, &mut byte, flags) == Err(rustix::io::Errno::AGAIN)
    }
}
