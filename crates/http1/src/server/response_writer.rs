//! Bodies on their way out of an express lane, while an eye is kept on whether the caller is still there.

use crate::buffer_pool;
use crate::server::fast_path::{Input, try_send, write_all};
use bytes::Bytes;
use http_body::Body;
use rustix::net::SendFlags;
use std::future::{Future, poll_fn};
use std::io;
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

/// What a caller may send before its answers are there.
const MAX_PIPELINED_INPUT: usize = 64 * 1024;
/// A part of an answer that is copied behind what comes before it rather than sent beside it.
const MAX_COPIED_PART: usize = 8 * 1024;
/// What is collected of an answer before it is sent.
const MAX_COLLECTED: usize = 32 * 1024;

/// What a caller sends while it is answered.
#[derive(Debug, Default)]
pub struct PipelinedInput {
    bytes: Vec<u8>,
    /// What it had sent already, besides what is being answered.
    before: usize,
    /// Whether it has closed its sending side.
    ended: bool,
    /// How it is treated then; none: it is gone.
    half_close: Option<HalfClose>,
}

/// How a client is treated that has closed its sending side. It may wait for its response or be gone: that is
/// known only when something is sent to it.
#[derive(Debug)]
struct HalfClose {
    timeout: Duration,
    /// Whether it counts as gone all the same; set when the time is over.
    cancel: Arc<AtomicBool>,
    /// When it does anyway, unless something can be sent to it.
    timer: Option<Pin<Box<Sleep>>>,
}

impl PipelinedInput {
    /// Of a client that does not count as gone when it closes its sending side, unless it was sent nothing for
    /// so long, or `cancel` says that it does.
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

    /// An answer begins, and so many bytes wait for the next ones.
    pub fn begin(&mut self, before: usize) {
        self.before = before;
        self.sent();
    }

    /// Something could be sent to the client.
    fn sent(&mut self) {
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

    /// Moves what came behind what waits.
    pub fn move_to(&mut self, input: &mut Input) {
        input.append(&mut self.bytes);
    }

    /// Whether the caller has to wait for its answers first.
    fn is_full(&self) -> bool {
        self.before + self.bytes.len() >= MAX_PIPELINED_INPUT
    }
}

/// Does something for the caller for as long as it is there; what it sends meanwhile is kept. The work stays
/// where it is: to take it by value would be to copy all of it.
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

/// Ready when the caller has gone.
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

/// An eye on whether the caller is still there, for whoever looks often.
#[derive(Default)]
struct DisconnectWatcher {
    /// Whom the socket wakes when something comes.
    registered: Option<Waker>,
}

impl DisconnectWatcher {
    /// Ready when the caller has gone.
    fn poll_disconnected(
        &mut self,
        stream: &mut TcpStream,
        pipelined: &mut PipelinedInput,
        cx: &mut Context<'_>,
    ) -> Poll<()> {
        let registered = self.registered.as_ref();
        let is_registered = registered.is_some_and(|registered| registered.will_wake(cx.waker()));
        // Looking costs less than asking to be registered once more.
        if is_registered && !is_readable(stream) {
            return Poll::Pending;
        }
        let gone = poll_disconnected(stream, pipelined, cx);
        // Who has used up its turn was not even listened to.
        if !has_budget_remaining() {
            self.registered = None;
        } else if !is_registered {
            self.registered = Some(cx.waker().clone());
        }
        gone
    }
}

/// Whether the socket has become readable since it was last read to its end: then nobody is registered of it
/// any more. Nothing is read.
fn is_readable(stream: &TcpStream) -> bool {
    stream.try_io(Interest::READABLE, || Ok(())).is_ok()
}

/// How the end of a body is registered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyEncoding {
    /// The head says how long it is.
    ContentLength,
    /// By the last chunk.
    Chunked,
    /// There is no body by definition.
    NoBody,
}

/// Where parts of a body are written down to go out together.
pub struct OutputBuffer<'o> {
    bytes: &'o mut Vec<u8>,
    encoding: BodyEncoding,
}

impl OutputBuffer<'_> {
    /// Adds a part.
    pub fn add(&mut self, part: &[u8]) {
        self.add_pieces(&[part]);
    }

    /// Adds a part that lies in several places.
    #[inline]
    pub fn add_pieces(&mut self, pieces: &[&[u8]]) {
        let length = pieces.iter().map(|piece| piece.len()).sum();
        if length == 0 || self.encoding == BodyEncoding::NoBody {
            return;
        }
        self.begin(length);
        for piece in pieces {
            self.bytes.extend_from_slice(piece);
        }
        if self.encoding == BodyEncoding::Chunked {
            self.bytes.extend_from_slice(b"\r\n");
        }
    }

    /// Adds a part, or what comes before it if it is too large to be copied.
    fn add_small(&mut self, part: Bytes) -> Part {
        if part.len() <= MAX_COPIED_PART || self.encoding == BodyEncoding::NoBody {
            self.add(&part);
            return Part::Buffered;
        }
        self.begin(part.len());
        Part::Large(part)
    }

    fn begin(&mut self, length: usize) {
        if self.encoding == BodyEncoding::Chunked {
            write_chunk_size(self.bytes, length);
        }
    }
}

/// What became of a part.
pub enum Part {
    /// It was added, if there was anything in it.
    Buffered,
    /// What comes before it was added; it goes out beside it.
    Large(Bytes),
    /// There is none: the body has ended.
    End,
    /// There is none: the body was cut.
    Aborted,
}

/// A body that is sent in parts.
pub trait OutgoingBody: Body<Data = Bytes> + Unpin {
    /// Adds the next part to what goes out. Who can do so without an owner for it does it another way.
    fn poll_part(&mut self, cx: &mut Context<'_>, output: &mut OutputBuffer<'_>) -> Poll<Part> {
        self.poll_owned_part(cx, output)
    }

    /// The same, by way of a frame.
    fn poll_owned_part(
        &mut self,
        cx: &mut Context<'_>,
        output: &mut OutputBuffer<'_>,
    ) -> Poll<Part> {
        Pin::new(self).poll_frame(cx).map(|frame| match frame {
            Some(Ok(frame)) => output.add_small(frame.into_data().unwrap_or_default()),
            Some(Err(_)) => Part::Aborted,
            None => Part::End,
        })
    }
}

/// An answer on its way to the caller.
pub struct ResponseWriter<'c> {
    /// The caller.
    pub stream: &'c mut TcpStream,
    /// What it sends meanwhile.
    pub pipelined: &'c mut PipelinedInput,
    /// What goes out next: at first the head. A buffer that can be spared when it is empty.
    pub output: &'c mut Vec<u8>,
}

impl ResponseWriter<'_> {
    /// Sends what has been collected and then the body, each part as soon as it is there. False when
    /// that was not possible, and then nothing else may follow.
    pub async fn send_body(
        &mut self,
        body: &mut impl OutgoingBody,
        encoding: BodyEncoding,
    ) -> bool {
        let mut watcher = DisconnectWatcher::default();
        loop {
            let collected = poll_fn(|cx| self.poll_collect(body, encoding, &mut watcher, cx)).await;
            match collected {
                Collected::Part(large) => {
                    if write_all(self.stream, self.output, &large).await.is_err() {
                        return false;
                    }
                    self.output.clear();
                    self.pipelined.sent();
                    if !large.is_empty() && encoding == BodyEncoding::Chunked {
                        self.output.extend_from_slice(b"\r\n");
                    }
                }
                Collected::Complete => {
                    if encoding == BodyEncoding::Chunked {
                        self.output.extend_from_slice(b"0\r\n\r\n");
                    }
                    let sent = write_all(self.stream, self.output, &[]).await.is_ok();
                    buffer_pool::release(std::mem::take(self.output));
                    return sent;
                }
                Collected::Aborted => {
                    // The caller gets what there is, and notices by the end that is missing.
                    drop(write_all(self.stream, self.output, &[]).await);
                    return false;
                }
                Collected::Disconnected => return false,
            }
        }
    }

    /// Collects what is there of a body, and waits only when there is nothing to send. While it waits it has
    /// no buffer.
    // Every event of every stream passes here: so it is compiled where it is written, for speed, and not as
    // a part of whoever awaits it.
    #[inline(never)]
    fn poll_collect(
        &mut self,
        body: &mut impl OutgoingBody,
        encoding: BodyEncoding,
        watcher: &mut DisconnectWatcher,
        cx: &mut Context<'_>,
    ) -> Poll<Collected> {
        let mut bytes = std::mem::take(self.output);
        if bytes.capacity() == 0 {
            bytes = buffer_pool::acquire();
        }
        let polled = self.poll_collect_in(&mut bytes, body, encoding, watcher, cx);
        if polled.is_pending() && bytes.is_empty() {
            buffer_pool::release(bytes);
        } else {
            *self.output = bytes;
        }
        polled
    }

    #[inline]
    fn poll_collect_in(
        &mut self,
        bytes: &mut Vec<u8>,
        body: &mut impl OutgoingBody,
        encoding: BodyEncoding,
        watcher: &mut DisconnectWatcher,
        cx: &mut Context<'_>,
    ) -> Poll<Collected> {
        while bytes.len() < MAX_COLLECTED {
            let polled = body.poll_part(cx, &mut OutputBuffer { bytes, encoding });
            let wrote = !bytes.is_empty();
            match polled {
                Poll::Ready(Part::Buffered) => {}
                Poll::Ready(Part::Large(part)) => return Poll::Ready(Collected::Part(part)),
                Poll::Ready(Part::Aborted) => return Poll::Ready(Collected::Aborted),
                Poll::Ready(Part::End) => return Poll::Ready(Collected::Complete),
                // It wakes us: what is there goes out at once, and nothing is asked twice.
                Poll::Pending => match try_flush(self.stream, bytes) {
                    Ok(true) => {
                        if wrote {
                            self.pipelined.sent();
                        }
                        let gone = watcher.poll_disconnected(self.stream, self.pipelined, cx);
                        return gone.map(|()| Collected::Disconnected);
                    }
                    Ok(false) => break,
                    Err(_) => return Poll::Ready(Collected::Disconnected),
                },
            }
        }
        Poll::Ready(Collected::Part(Bytes::new()))
    }
}

/// Sends what was collected, as far as that goes without waiting; whether all of it is out.
fn try_flush(stream: &TcpStream, bytes: &mut Vec<u8>) -> io::Result<bool> {
    if bytes.is_empty() {
        return Ok(true);
    }
    match try_send(stream, bytes, SendFlags::empty()) {
        Ok(written) if written == bytes.len() => bytes.clear(),
        Ok(written) => drop(bytes.drain(..written)),
        Err(error) if is_transient(&error) => {}
        Err(error) => return Err(error),
    }
    Ok(bytes.is_empty())
}

fn is_transient(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
    )
}

/// Writes how long a chunk is. By hand: it is done for every event of every stream.
pub fn write_chunk_size(output: &mut Vec<u8>, length: usize) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let (mut line, mut start, mut left) = ([0; 18], 16, length);
    line[16..].copy_from_slice(b"\r\n");
    while left > 0 {
        start -= 1;
        line[start] = DIGITS[left & 15];
        left >>= 4;
    }
    output.extend_from_slice(&line[start..]);
}

/// What was collected of a body.
enum Collected {
    /// What is in the output, and this after it.
    Part(Bytes),
    /// What is in the output is the last of it.
    Complete,
    /// The same, but it was cut there.
    Aborted,
    /// There is nobody to send it to.
    Disconnected,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// However little each request takes of what was sent.
    #[tokio::test]
    async fn a_caller_that_never_waits_cannot_send_without_end() {
        let socket = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = socket.local_addr().unwrap();
        let client = TcpStream::connect(address).await.unwrap();
        let mut server = socket.accept().await.unwrap().0;
        let (mut input, mut pipelined) = (Input::default(), PipelinedInput::default());
        for _ in 0..200 {
            while client.try_write(&[b'x'; 4096]).is_ok() {}
            pipelined.begin(input.bytes().len());
            // Long enough for what was sent to come.
            let answering = std::pin::pin!(tokio::time::sleep(std::time::Duration::from_millis(2)));
            while_connected(&mut server, &mut pipelined, answering).await;
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

    #[test]
    fn lengths_of_chunks_are_hexadecimal() {
        for length in [
            1,
            9,
            10,
            15,
            16,
            255,
            256,
            4095,
            65_535,
            1 << 20,
            usize::MAX,
        ] {
            let mut output = Vec::new();
            write_chunk_size(&mut output, length);
            assert_eq!(output, format!("{length:x}\r\n").into_bytes());
        }
    }
}
