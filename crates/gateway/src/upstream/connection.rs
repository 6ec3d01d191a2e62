//! HTTP/1.1 client connection to a provider: one request and its response at a time.
//!
//! The call that uses a connection owns it: no task and no channel lies between the socket and the client, and dropping
//! the call closes it. `is_fully_sent` decides whether a failed attempt may be billed: a provider that has only a part
//! of a request cannot have worked on it.

use crate::upstream::Upstream;
use crate::upstream::head::{self, ResponseHead};
use bytes::{Bytes, BytesMut};
use estrade_http1::framing::{Decoded, Framing, FramingError};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use futures_util::task::noop_waker_ref;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, lookup_host};
use tokio::task::coop::has_budget_remaining;
use tokio::time::{Instant, Sleep, sleep_until, timeout};
use tokio_rustls::client::TlsStream;
use tokio_util::io::poll_read_buf;

/// What is read at once: little at first, since most answers and all events are small…
const MIN_READ: usize = 4 * 1024;
/// …and more as long as the buffer is filled each time.
const MAX_READ: usize = 64 * 1024;

/// Keep-alive race: a reused connection that ends within one round trip of a request was closed before the request
/// arrived, so the request is sent again. Later, the provider may have read it.
pub(crate) const STALE_CONNECTION_WINDOW: Duration = Duration::from_millis(300);

/// Happy Eyeballs: when an address has not accepted after so long, the next one is tried beside it.
const NEXT_ADDRESS_DELAY: Duration = Duration::from_millis(250);

/// Why there is no response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SendError {
    /// No connection.
    Connect,
    /// No connection in time.
    ConnectTimeout,
    /// The connection ended before the first byte of an answer.
    Unanswered,
    /// What came is not HTTP, or breaks off within the head.
    Garbage,
    /// No answer in time.
    Timeout,
}

/// Why a response has no proper end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ResponseError {
    /// The connection broke off.
    Closed,
    /// What came is not HTTP.
    Garbage,
    /// Nothing came for too long.
    Idle,
    /// Too much came.
    TooLarge,
    /// The caller did not read it.
    Unread,
    /// The call could not be written to disk in time.
    NotRecorded,
}

impl From<FramingError> for ResponseError {
    fn from(end: FramingError) -> Self {
        match end {
            FramingError::UnexpectedEof => Self::Closed,
            FramingError::Malformed => Self::Garbage,
        }
    }
}

#[derive(Clone, Copy)]
pub(crate) struct Http1Request<'q> {
    /// The head as it is for every request to this provider…
    pub(crate) head: &'q [u8],
    /// …and the rest of it.
    pub(crate) extra_headers: &'q [u8],
    pub(crate) body: &'q Bytes,
}

impl Http1Request<'_> {
    fn len(&self) -> usize {
        self.head.len() + self.extra_headers.len() + self.body.len()
    }
}

/// A connection that is used by one call at a time.
pub(crate) struct Connection {
    io: Io,
    buffer: BytesMut,
    read_size: usize,
    framing: Framing,
    keep_alive: bool,
    /// Made once and moved forward only when it fires: setting a timer per read would cost more than
    /// the read.
    timer: Pin<Box<Sleep>>,
    /// When the timer fires: comparing that costs less than polling the timer.
    deadline: Instant,
    /// Whether the present request was written to its last byte.
    fully_sent: bool,
    /// When it was sent.
    sent_at: Instant,
    /// Whether there was another one before it: then it may have been closed meanwhile.
    pub(super) reused: bool,
    /// Since when it waits for the next call.
    pub(super) idle_since: Instant,
}

impl Connection {
    /// Connects. In a box, because it goes from hand to hand.
    pub(crate) async fn open(upstream: &Upstream) -> Result<Box<Self>, SendError> {
        let connecting = timeout(upstream.timeouts.connect, Io::connect(upstream));
        let io = match connecting.await {
            Err(_) => return Err(SendError::ConnectTimeout),
            Ok(Err(error)) => {
                tracing::debug!(provider = %upstream.name, %error, "cannot connect to a provider");
                return Err(SendError::Connect);
            }
            Ok(Ok(io)) => io,
        };
        let now = Instant::now();
        let deadline = now + Duration::from_hours(1);
        Ok(Box::new(Self {
            io,
            buffer: BytesMut::new(),
            read_size: MIN_READ,
            framing: Framing::Done,
            keep_alive: true,
            timer: Box::pin(sleep_until(deadline)),
            deadline,
            fully_sent: false,
            sent_at: now,
            reused: false,
            idle_since: now,
        }))
    }

    /// Sends a request and waits for the head of its answer.
    pub(crate) fn send<'a>(
        &'a mut self,
        request: &'a Http1Request<'a>,
        now: Instant,
        due: Instant,
    ) -> SendRequest<'a> {
        self.fully_sent = false;
        self.sent_at = now;
        SendRequest {
            connection: self,
            request,
            sent: 0,
            due,
        }
    }

    /// So much of a request is out, and that came of it.
    fn finish_send(
        &mut self,
        request: &Http1Request<'_>,
        sent: usize,
        outcome: Result<Box<ResponseHead>, SendError>,
    ) -> Result<Box<ResponseHead>, SendError> {
        self.fully_sent = sent == request.len();
        self.take_head(outcome)
    }

    fn take_head(
        &mut self,
        outcome: Result<Box<ResponseHead>, SendError>,
    ) -> Result<Box<ResponseHead>, SendError> {
        let mut head = outcome?;
        // A provider that responds before it has read everything may take the rest for the next request.
        self.keep_alive = head.keep_alive && self.fully_sent;
        self.framing = std::mem::replace(&mut head.framing, Framing::Done);
        Ok(head)
    }

    /// Whether the last request went out as a whole: then it may have been worked on.
    pub(crate) fn is_fully_sent(&self) -> bool {
        self.fully_sent
    }

    /// Whether an end without an answer means that nobody has read the present request: the connection had
    /// waited, and that was `recently`.
    pub(crate) fn may_have_been_closed(&self, recently: Duration) -> bool {
        self.reused && self.sent_at.elapsed() <= recently
    }

    /// Whether it will be closed after the present answer.
    pub(crate) fn is_last(&self) -> bool {
        !self.keep_alive
    }

    fn poll_send_request(
        &mut self,
        cx: &mut Context<'_>,
        request: &Http1Request<'_>,
        sent: &mut usize,
        due: Instant,
    ) -> Poll<Result<Box<ResponseHead>, SendError>> {
        // A provider that hangs up while we send may have said why: so its answer is looked for anyway.
        let _ = self.poll_send(cx, request, sent);
        self.fully_sent = *sent == request.len();
        if let Poll::Ready(outcome) = self.poll_parse(cx) {
            return Poll::Ready(outcome);
        }
        ready!(self.poll_deadline(cx, due));
        Poll::Ready(Err(SendError::Timeout))
    }

    /// The head of the response to a request that is out, for whoever reads on.
    pub(crate) fn poll_head(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Box<ResponseHead>, SendError>> {
        let outcome = ready!(self.poll_parse(cx));
        Poll::Ready(self.take_head(outcome))
    }

    fn poll_parse(&mut self, cx: &mut Context<'_>) -> Poll<Result<Box<ResponseHead>, SendError>> {
        loop {
            if !self.buffer.is_empty() {
                match head::parse(&mut self.buffer) {
                    Ok(Some(head)) => return Poll::Ready(Ok(head)),
                    Ok(None) => {}
                    Err(head::Garbage) => return Poll::Ready(Err(SendError::Garbage)),
                }
            }
            match self.poll_fill(cx) {
                Poll::Ready(Ok(1..)) => {}
                Poll::Ready(Ok(0) | Err(_)) if self.buffer.is_empty() => {
                    return Poll::Ready(Err(SendError::Unanswered));
                }
                Poll::Ready(Ok(0) | Err(_)) => return Poll::Ready(Err(SendError::Garbage)),
                Poll::Pending => return Poll::Pending,
            }
        }
    }

    fn poll_send(
        &mut self,
        cx: &mut Context<'_>,
        request: &Http1Request<'_>,
        sent: &mut usize,
    ) -> Poll<io::Result<()>> {
        loop {
            let mut skip = *sent;
            let left = [request.head, request.extra_headers, request.body].map(|part| {
                let gone = skip.min(part.len());
                skip -= gone;
                IoSlice::new(&part[gone..])
            });
            let first = left.iter().position(|part| !part.is_empty());
            let Some(first) = first else {
                return Pin::new(&mut self.io).poll_flush(cx);
            };
            match ready!(Pin::new(&mut self.io).poll_write_vectored(cx, &left[first..]))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                written => *sent += written,
            }
        }
    }

    fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        if self.buffer.capacity() - self.buffer.len() < self.read_size / 4 {
            self.buffer.reserve(self.read_size);
        }
        let read = ready!(poll_read_buf(Pin::new(&mut self.io), cx, &mut self.buffer))?;
        if self.buffer.len() == self.buffer.capacity() {
            self.read_size = (self.read_size * 2).min(MAX_READ);
        }
        Poll::Ready(Ok(read))
    }

    /// The next part of the answer's body.
    pub(crate) fn poll_data(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<Bytes>, ResponseError>> {
        loop {
            match self.framing.decode(&mut self.buffer)? {
                Decoded::Data(data) => return Poll::Ready(Ok(Some(data))),
                Decoded::Done => return Poll::Ready(Ok(None)),
                Decoded::NeedMore => {}
            }
            match ready!(self.poll_fill(cx)) {
                Ok(1..) => {}
                Ok(0) => self.framing.on_eof()?,
                Err(_) => return Poll::Ready(Err(ResponseError::Closed)),
            }
        }
    }

    /// Whether a chunk comes next, and nothing of it has been read.
    pub(crate) fn is_before_chunk(&self) -> bool {
        self.framing == Framing::ChunkSize && self.buffer.is_empty()
    }

    /// Reads what is there into the room of a buffer that is not its own.
    pub(crate) fn poll_read_into(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut Vec<u8>,
    ) -> Poll<io::Result<usize>> {
        poll_read_buf(Pin::new(&mut self.io), cx, buffer)
    }

    /// Takes back what was read and not used.
    pub(crate) fn put_back(&mut self, read: &[u8]) {
        self.buffer.extend_from_slice(read);
    }

    /// The whole body, if it has been read already in one piece.
    pub(crate) fn take_whole(&mut self) -> Option<Bytes> {
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

    /// How long the body is, if that is known and nothing of it was taken yet.
    pub(crate) fn length(&self) -> Option<u64> {
        self.framing.remaining()
    }

    /// Whether only the end of the connection tells where the body ends.
    pub(crate) fn is_until_close(&self) -> bool {
        self.framing == Framing::UntilClose
    }

    /// Whether the body has ended, as far as was read.
    pub(crate) fn is_done(&mut self) -> bool {
        self.framing.is_complete(&mut self.buffer)
    }

    /// Whether it can take another request.
    pub(crate) fn is_reusable(&self) -> bool {
        self.keep_alive && self.framing == Framing::Done && self.buffer.is_empty()
    }

    /// Begins to wait for the next call, with no more memory than it needs.
    pub(super) fn rest(&mut self, now: Instant) {
        self.idle_since = now;
        self.reused = true;
        if self.read_size > MIN_READ {
            self.read_size = MIN_READ;
            self.buffer = BytesMut::new();
        }
    }

    /// Whether nothing has come since the last answer: neither its end nor what nobody asked for.
    pub(crate) fn is_quiet(&mut self) -> bool {
        let (mut one, mut cx) = ([0], Context::from_waker(noop_waker_ref()));
        let mut one = ReadBuf::new(&mut one);
        // As long as the socket is not readable this is no system call.
        Pin::new(&mut self.io)
            .poll_read(&mut cx, &mut one)
            .is_pending()
    }

    /// Resolves when this moment has come.
    pub(crate) fn poll_deadline(&mut self, cx: &mut Context<'_>, due: Instant) -> Poll<()> {
        if self.deadline > due {
            self.set_timer(due);
        }
        loop {
            let rang = self.timer.as_mut().poll(cx).is_ready();
            // tokio's coop budget is exhausted: the timer returns `Pending` whatever the time is. Compare the clock, or a
            // provider that sends all the time is never timed out.
            if (rang || !has_budget_remaining()) && Instant::now() >= due {
                // The next deadline is a later one, so the timer stays fired.
                return Poll::Ready(());
            }
            if !rang {
                return Poll::Pending;
            }
            self.set_timer(due);
        }
    }

    fn set_timer(&mut self, due: Instant) {
        self.timer.as_mut().reset(due);
        self.deadline = due;
    }

    /// Whether the timer fires after `now` and no later than `due`: a waker that it has need not poll it again.
    pub(crate) fn is_timer_set(&self, now: Instant, due: Instant) -> bool {
        now < self.deadline && self.deadline <= due
    }
}

/// Future of `Connection::send`. Written by hand: an async function stores its arguments twice.
pub(crate) struct SendRequest<'a> {
    connection: &'a mut Connection,
    request: &'a Http1Request<'a>,
    /// How much of it is out.
    sent: usize,
    due: Instant,
}

impl Future for SendRequest<'_> {
    type Output = Result<Box<ResponseHead>, SendError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let it = self.get_mut();
        let outcome = ready!(
            it.connection
                .poll_send_request(cx, it.request, &mut it.sent, it.due)
        );
        Poll::Ready(it.connection.finish_send(it.request, it.sent, outcome))
    }
}

/// The socket, with or without TLS.
enum Io {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl Io {
    async fn connect(upstream: &Upstream) -> io::Result<Self> {
        let addresses = lookup_host((&*upstream.host, upstream.port)).await?;
        let stream = reach(addresses).await?;
        stream.set_nodelay(true)?;
        let Some((connector, name)) = &upstream.tls else {
            return Ok(Self::Plain(stream));
        };
        let stream = connector.connect(name.clone(), stream).await?;
        Ok(Self::Tls(Box::new(stream)))
    }
}

/// The first of these addresses that accepts. They are tried in order, each with a head start: one
/// that is silent does not take the time of all.
async fn reach(mut addresses: impl Iterator<Item = SocketAddr>) -> io::Result<TcpStream> {
    let mut last = io::Error::from(io::ErrorKind::NotFound);
    let mut tried = FuturesUnordered::new();
    loop {
        match addresses.next() {
            Some(address) => tried.push(TcpStream::connect(address)),
            None if tried.is_empty() => return Err(last),
            None => {}
        }
        match timeout(NEXT_ADDRESS_DELAY, tried.next()).await {
            Ok(Some(Ok(stream))) => return Ok(stream),
            Ok(Some(Err(error))) => last = error,
            Ok(None) | Err(_) => {}
        }
    }
}

impl AsyncRead for Io {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_read(cx, buffer),
            Self::Tls(stream) => Pin::new(stream).poll_read(cx, buffer),
        }
    }
}

impl AsyncWrite for Io {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write_vectored(cx, parts),
            Self::Tls(stream) => Pin::new(stream).poll_write_vectored(cx, parts),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(_) => Poll::Ready(Ok(())),
            Self::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::{TcpListener, TcpSocket};

    #[tokio::test]
    async fn a_silent_address_does_not_take_the_time_of_the_next() {
        // A socket whose queue is full lets nobody in and says nothing.
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let silent = socket.listen(1).unwrap();
        let address = silent.local_addr().unwrap();
        let mut waiting = Vec::new();
        while let Ok(Ok(stream)) = timeout(NEXT_ADDRESS_DELAY, TcpStream::connect(address)).await {
            waiting.push(stream);
            assert!(waiting.len() < 100, "it lets everybody in");
        }
        let good = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let good = (good.local_addr().unwrap(), good);
        let reached = timeout(4 * NEXT_ADDRESS_DELAY, reach([address, good.0].into_iter())).await;
        let stream = reached.unwrap().unwrap();
        assert_eq!(stream.peer_addr().unwrap(), good.0);
        let nobody = timeout(4 * NEXT_ADDRESS_DELAY, reach([address].into_iter())).await;
        assert!(nobody.is_err(), "it waits for as long as it may");
        assert!(reach(std::iter::empty()).await.is_err());
    }
}
