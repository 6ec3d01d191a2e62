//! What express lanes share: plain HTTP/1.1 connections whose ordinary requests are consumed without
//! a framework, until one comes that is not.

use crate::server::WRITE_TIMEOUT;
use bytes::BufMut;
use http::StatusCode;
use rustix::net::{SendFlags, send};
use std::io::{self, IoSlice, Write};
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, Interest};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, sleep_until, timeout};
use tokio_util::sync::WaitForCancellationFuture;

/// What is read at once. One caller shall not be able to send so much in one go that others wait for
/// all of it to be consumed.
const MAX_READ: usize = 8 * 1024;
/// What a connection keeps of the room that a large request took.
const MAX_IDLE_CAPACITY: usize = 8 * 1024;
/// A head that has not ended after so many bytes is not for an express lane.
const MAX_HEAD: usize = 16 * 1024;
/// More headers than this neither.
const MAX_HEADERS: usize = 64;

/// What becomes of a connection.
pub enum Outcome {
    /// It has ended; none: it was lost by who had it, and is closed.
    Closed(Option<TcpStream>),
    /// It goes on elsewhere; this was read of it and not consumed.
    Fallback(TcpStream, Input),
}

/// What is told whether a connection waits for a request: who closes idle connections to make room for others.
pub trait ConnectionState {
    /// It waits for a request since `now`.
    fn set_idle(&self, now: Instant);

    /// It has one.
    fn set_busy(&self);
}

/// What was read of a connection and not consumed yet.
#[derive(Debug, Default)]
pub struct Input {
    bytes: Vec<u8>,
    /// How many of them were consumed: they are removed when more is read, and not one by one.
    consumed: usize,
}

impl Input {
    /// What is to be consumed.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[self.consumed..]
    }

    /// Whether there is nothing to be consumed.
    pub fn is_empty(&self) -> bool {
        self.consumed == self.bytes.len()
    }

    /// So many of its bytes were consumed.
    pub fn advance(&mut self, count: usize) {
        self.consumed = (self.consumed + count).min(self.bytes.len());
    }

    /// Adds what was read elsewhere.
    pub fn append(&mut self, more: &mut Vec<u8>) {
        // A caller that never waits must not make it grow. Not each time: what is left is moved.
        if self.consumed > self.bytes.len() / 2 {
            self.compact();
        }
        self.bytes.append(more);
    }

    fn compact(&mut self) {
        self.bytes.drain(..self.consumed);
        self.consumed = 0;
    }

    /// Reads more; false when no more will come. Dropping the future loses nothing.
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

    /// All that is to be consumed, for who goes on.
    pub fn into_bytes(mut self) -> Vec<u8> {
        self.bytes.drain(..self.consumed);
        self.bytes
    }
}

/// What was read, as an express lane sees it.
pub enum Parsed<T> {
    /// A request that it knows all about.
    Supported(T),
    /// The rest of the head has to come.
    Partial,
    /// It is for hyper.
    Unsupported,
}

/// Parses a head; `ordinary` is given it and its length, and says whether it knows all about it.
pub fn parse_head<'i, T>(
    input: &'i [u8],
    ordinary: impl FnOnce(&httparse::Request<'_, 'i>, usize) -> Option<T>,
) -> Parsed<T> {
    if input.is_empty() {
        return Parsed::Partial;
    }
    let mut slots = [const { MaybeUninit::uninit() }; MAX_HEADERS];
    let mut request = httparse::Request::new(&mut []);
    let known = match request.parse_with_uninit_headers(input, &mut slots) {
        // Lines that end with a bare LF are refused by who reads for hyper.
        Ok(httparse::Status::Complete(length)) if has_bare_lf(&input[..length]) => None,
        Ok(httparse::Status::Complete(length)) => ordinary(&request, length),
        Ok(httparse::Status::Partial) if input.len() < MAX_HEAD => return Parsed::Partial,
        Ok(httparse::Status::Partial) | Err(_) => None,
    };
    known.map_or(Parsed::Unsupported, Parsed::Supported)
}

fn has_bare_lf(head: &[u8]) -> bool {
    let is_bare = |at: usize| at == 0 || head[at - 1] != b'\r';
    memchr::memchr_iter(b'\n', head).any(is_bare)
}

/// What a `Connection` header says: whether the client wants to close; none when it is unusual. It
/// may come twice, and who wants to close once wants to close.
pub fn parse_connection(value: &[u8]) -> Option<bool> {
    let close = value.eq_ignore_ascii_case(b"close");
    (close || value.eq_ignore_ascii_case(b"keep-alive")).then_some(close)
}

/// Reads what there is; false when the client is done, or has been silent for too long.
pub async fn read_more<C: ConnectionState>(
    stream: &mut TcpStream,
    input: &mut Input,
    timeout: &mut KeepAliveTimeout<C>,
    mut stopped: Pin<&mut WaitForCancellationFuture<'_>>,
) -> io::Result<bool> {
    let waiting = input.is_empty();
    loop {
        tokio::select! {
            biased;
            more = input.read(stream) => {
                timeout.connection.set_busy();
                return more;
            }
            () = timeout.sleep.as_mut() => {
                if timeout.is_expired() {
                    return Ok(false);
                }
            }
            () = stopped.as_mut(), if waiting => return Ok(false),
        }
    }
}

/// How long a client may take. The timer is moved when it rings and not with every request.
pub struct KeepAliveTimeout<C> {
    sleep: Pin<Box<Sleep>>,
    deadline: Instant,
    in_head: bool,
    header_timeout: Duration,
    idle_timeout: Duration,
    /// Told when it waits for a request.
    connection: Arc<C>,
}

impl<C: ConnectionState> KeepAliveTimeout<C> {
    /// The first request must be complete as soon as any other, counted from the beginning.
    pub fn new(header_timeout: Duration, idle_timeout: Duration, connection: &Arc<C>) -> Self {
        let deadline = Instant::now() + header_timeout;
        let sleep = Box::pin(sleep_until(deadline));
        Self {
            sleep,
            deadline,
            in_head: true,
            header_timeout,
            idle_timeout,
            connection: Arc::clone(connection),
        }
    }

    /// Waits for the next request.
    pub fn wait_for_request(&mut self) {
        let now = Instant::now();
        self.in_head = false;
        self.deadline = now + self.idle_timeout;
        self.connection.set_idle(now);
    }

    /// A request was consumed. What has come of the next one already began only now.
    pub fn request_done(&mut self) {
        self.in_head = false;
    }

    /// Waits for the rest of a request, counted from when it began.
    pub fn wait_for_head(&mut self) {
        if !self.in_head {
            self.in_head = true;
            self.deadline = Instant::now() + self.header_timeout;
            self.sleep.as_mut().reset(self.deadline);
        }
    }

    /// Whether the time is really over; if not, the timer is set to what is left.
    pub fn is_expired(&mut self) -> bool {
        let over = Instant::now() >= self.deadline;
        if !over {
            self.sleep.as_mut().reset(self.deadline);
        }
        over
    }
}

/// Begins the head of an answer: its first line and its date.
pub fn begin_head(head: &mut Vec<u8>, status: StatusCode, date: &str) {
    begin_status(head, status);
    head.extend_from_slice(b"date: ");
    head.extend_from_slice(date.as_bytes());
    head.extend_from_slice(b"\r\n");
}

/// Begins the head of an answer that has a date already.
pub fn begin_status(head: &mut Vec<u8>, status: StatusCode) {
    match status.as_u16() {
        200 => head.extend_from_slice(b"HTTP/1.1 200 OK\r\n"),
        code => {
            let reason = status.canonical_reason().unwrap_or_default();
            // Writing into memory does not fail.
            let _ = write!(head, "HTTP/1.1 {code} {reason}\r\n");
        }
    }
}

/// Waits until the client takes more, for a while.
pub async fn writable(stream: &TcpStream) -> io::Result<()> {
    let ready = timeout(WRITE_TIMEOUT, stream.writable()).await;
    ready.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

/// Writes both, one after the other, with as few calls as it takes.
pub async fn write_all(stream: &TcpStream, first: &[u8], then: &[u8]) -> io::Result<()> {
    let mut both = [IoSlice::new(first), IoSlice::new(then)];
    let mut slices = &mut both[..if then.is_empty() { 1 } else { 2 }];
    // What is empty is not sent: that nothing of it was taken would seem to be the end.
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

/// Sends what the socket takes at once. Without the C library, whose `send` is twice as long: it makes a point
/// where threads can be cancelled of it.
pub fn try_send(stream: &TcpStream, bytes: &[u8], flags: SendFlags) -> io::Result<usize> {
    let send = || Ok(send(stream, bytes, flags | SendFlags::NOSIGNAL)?);
    stream.try_io(Interest::WRITABLE, send)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Unobserved;

    impl ConnectionState for Unobserved {
        fn set_idle(&self, _: Instant) {}
        fn set_busy(&self) {}
    }

    #[tokio::test]
    async fn the_room_of_a_large_request_is_not_kept() {
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
        assert!(
            input.bytes.capacity() <= MAX_IDLE_CAPACITY + MAX_READ,
            "{}",
            input.bytes.capacity()
        );
    }

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

    #[tokio::test(start_paused = true)]
    async fn each_request_has_its_own_time_for_its_head() {
        let (head, idle) = (Duration::from_secs(10), Duration::from_secs(75));
        let mut timeout = KeepAliveTimeout::new(head, idle, &Arc::new(Unobserved));
        // Each read ends in the middle of a request, as with a client that never waits.
        for _ in 0..10 {
            tokio::time::advance(Duration::from_secs(4)).await;
            timeout.request_done();
            timeout.wait_for_head();
            assert!(!timeout.is_expired());
        }
        tokio::time::advance(Duration::from_secs(11)).await;
        assert!(timeout.is_expired());
    }
}
