//! Noticing that a client is gone while its request is under way, and keeping what it sends meanwhile.
//!
//! A disconnect shows only in reading, so the socket is read during the response. What comes is either the next request
//! (pipelining, RFC 9112, section 9.3.2), which is kept up to a limit, or the end of the stream. The end may be a client
//! that is gone or one that has only closed its sending side and waits for its response: who allows half-closed
//! connections says for how long that is believed.

use crate::server::input::Input;
use std::future::{Future, poll_fn};
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tokio::io::{AsyncRead, Interest, ReadBuf};
use tokio::net::TcpStream;
use tokio::task::coop::has_budget_remaining;
use tokio::time::{Sleep, sleep};

/// What a client may send before its responses are there. Beyond it the socket is not read, and TCP slows the client.
const MAX_PIPELINED_INPUT: usize = 64 * 1024;

/// What a client sends before its request has its response.
#[derive(Debug, Default)]
pub struct PipelinedInput {
    bytes: Vec<u8>,
    /// Bytes that had come before, behind that request.
    before: usize,
    /// Whether the end of the stream was read.
    ended: bool,
    /// What the end of the stream means; none: the client is gone.
    half_close: Option<HalfClose>,
}

/// How a client is treated that has closed its sending side.
#[derive(Debug)]
struct HalfClose {
    timeout: Duration,
    /// Whether it counts as gone all the same: set by others, or by us when the time is over.
    cancel: Arc<AtomicBool>,
    /// Runs while nothing could be sent.
    timer: Option<Pin<Box<Sleep>>>,
}

impl PipelinedInput {
    /// For a client that may close its sending side. It counts as gone when nothing could be sent to it for `timeout`,
    /// or when `cancel` is set.
    pub fn with_half_close(timeout: Duration, cancel: Arc<AtomicBool>) -> Self {
        let half_close = Some(HalfClose {
            timeout,
            cancel,
            timer: None,
        });
        Self {
            half_close,
            ..Self::default()
        }
    }

    /// A response begins, while `before` bytes wait behind its request.
    #[inline]
    pub fn begin(&mut self, before: usize) {
        self.before = before;
        self.sent();
    }

    /// Something could be sent to the client.
    #[inline]
    pub(super) fn sent(&mut self) {
        if let Some(half_close) = &mut self.half_close {
            half_close.timer = None;
        }
    }

    /// Ready when a client that has closed its sending side counts as gone.
    fn poll_half_closed(&mut self, stream: &TcpStream, cx: &mut Context<'_>) -> Poll<()> {
        let Some(half_close) = &mut self.half_close else {
            return Poll::Ready(());
        };
        let failed = !matches!(stream.take_error(), Ok(None));
        if failed || half_close.cancel.load(Ordering::Relaxed) {
            return Poll::Ready(());
        }
        let timeout = half_close.timeout;
        let timer = half_close
            .timer
            .get_or_insert_with(|| Box::pin(sleep(timeout)));
        let over = timer.as_mut().poll(cx);
        if over.is_ready() {
            half_close.cancel.store(true, Ordering::Relaxed);
        }
        over
    }

    /// Moves what came behind what waits in `input`.
    #[inline]
    pub fn move_to(&mut self, input: &mut Input) {
        input.append(&mut self.bytes);
    }

    fn is_full(&self) -> bool {
        self.before + self.bytes.len() >= MAX_PIPELINED_INPUT
    }
}

/// Awaits `work` for as long as the client is connected; none when it is gone. `work` is pinned by the caller: to take
/// it by value would copy a future that may be large.
pub async fn while_connected<T>(
    stream: &mut TcpStream,
    pipelined: &mut PipelinedInput,
    mut work: Pin<&mut impl Future<Output = T>>,
) -> Option<T> {
    poll_fn(|cx| {
        if let Poll::Ready(done) = work.as_mut().poll(cx) {
            return Poll::Ready(Some(done));
        }
        poll_disconnected(stream, pipelined, cx).map(|()| None)
    })
    .await
}

/// Ready when the client is gone.
fn poll_disconnected(
    stream: &mut TcpStream,
    pipelined: &mut PipelinedInput,
    cx: &mut Context<'_>,
) -> Poll<()> {
    let mut piece = [MaybeUninit::uninit(); 1024];
    while !pipelined.ended && !pipelined.is_full() {
        let mut buffer = ReadBuf::uninit(&mut piece);
        match Pin::new(&mut *stream).poll_read(cx, &mut buffer) {
            Poll::Pending => return Poll::Pending,
            Poll::Ready(Ok(())) if !buffer.filled().is_empty() => {
                pipelined.bytes.extend_from_slice(buffer.filled());
            }
            Poll::Ready(Ok(())) => pipelined.ended = true,
            Poll::Ready(Err(_)) => return Poll::Ready(()),
        }
    }
    if pipelined.ended {
        return pipelined.poll_half_closed(stream, cx);
    }
    Poll::Pending
}

/// [`poll_disconnected`] for who polls often: it remembers the waker that the socket has.
///
/// Invariant: `registered` is a waker that the socket will wake when something comes. While it is the current one and
/// nothing has come, there is nothing to do, and a look at the readiness costs less than to register once more.
#[derive(Default)]
pub(super) struct DisconnectWatcher {
    registered: Option<Waker>,
}

impl DisconnectWatcher {
    /// Ready when the client is gone.
    pub(super) fn poll_disconnected(
        &mut self,
        stream: &mut TcpStream,
        pipelined: &mut PipelinedInput,
        cx: &mut Context<'_>,
    ) -> Poll<()> {
        let registered = self.registered.as_ref();
        let is_registered = registered.is_some_and(|waker| waker.will_wake(cx.waker()));
        if is_registered && !is_readable(stream) {
            return Poll::Pending;
        }
        let gone = poll_disconnected(stream, pipelined, cx);
        // tokio's coop budget is exhausted: the read returned `Pending` without registering our waker, so the one that
        // is remembered is not the socket's. To rely on it would be to miss the disconnect.
        if !has_budget_remaining() {
            self.registered = None;
        } else if !is_registered {
            self.registered = Some(cx.waker().clone());
        }
        gone
    }
}

/// Whether the socket has become readable since it was last read to `WouldBlock`: then the registered waker was used up.
/// Nothing is read.
fn is_readable(stream: &TcpStream) -> bool {
    stream.try_io(Interest::READABLE, || Ok(())).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// However little each request takes of what was sent.
    #[tokio::test]
    async fn a_client_that_never_waits_cannot_send_without_end() {
        let socket = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = socket.local_addr().unwrap();
        let client = TcpStream::connect(address).await.unwrap();
        let mut server = socket.accept().await.unwrap().0;
        let (mut input, mut pipelined) = (Input::default(), PipelinedInput::default());
        for _ in 0..200 {
            while client.try_write(&[b'x'; 4096]).is_ok() {}
            pipelined.begin(input.bytes().len());
            // Long enough for what was sent to come.
            let response = std::pin::pin!(tokio::time::sleep(std::time::Duration::from_millis(2)));
            while_connected(&mut server, &mut pipelined, response).await;
            pipelined.move_to(&mut input);
            assert!(input.bytes().len() < MAX_PIPELINED_INPUT + 1024);
            input.advance(2000);
        }
        assert!(
            input.bytes().len() > MAX_PIPELINED_INPUT / 2,
            "it was not tried"
        );
        assert!(input.into_bytes().capacity() < 4 * MAX_PIPELINED_INPUT);
    }
}
