//! The reading half of the fast path's loop: input, timeouts and the order to close.

use crate::server::disconnect::PipelinedInput;
use crate::server::input::Input;
use crate::server::keep_alive::{ConnectionState, KeepAliveTimeout};
use std::pin::Pin;
use tokio::net::TcpStream;
use tokio_util::sync::WaitForCancellationFuture;

/// Reads the requests of a connection. One turn of the loop is: [`parse_head`](super::parse_head) of
/// [`bytes`](Self::bytes), [`read`](Self::read) while that is partial, a response, [`finish`](Self::finish).
pub struct RequestReader<'p, 't, C> {
    input: Input,
    timeout: KeepAliveTimeout<C>,
    /// Ready when the connection shall close.
    closing: Pin<&'p mut WaitForCancellationFuture<'t>>,
    /// Whether a request got its response: before, the time for the first one runs from the beginning.
    responded: bool,
}

impl<'p, 't, C: ConnectionState> RequestReader<'p, 't, C> {
    /// Reads until `closing` is ready; a request that has begun to come may still end.
    pub fn new(
        timeout: KeepAliveTimeout<C>,
        closing: Pin<&'p mut WaitForCancellationFuture<'t>>,
    ) -> Self {
        Self {
            input: Input::default(),
            timeout,
            closing,
            responded: false,
        }
    }

    /// What was read and has no response yet.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        self.input.bytes()
    }

    /// Reads more of a request. False when no more will come: the client has closed or was silent for too long, or the
    /// connection shall close and no request has begun.
    pub async fn read(&mut self, stream: &mut TcpStream) -> bool {
        let idle = self.input.is_empty();
        match (idle, self.responded) {
            (true, false) => {}
            (true, true) => self.timeout.wait_for_request(),
            (false, _) => self.timeout.wait_for_head(),
        }
        loop {
            tokio::select! {
                biased;
                more = self.input.read(stream) => {
                    self.timeout.set_busy();
                    return more.unwrap_or(false);
                }
                () = self.timeout.timer() => {
                    if self.timeout.is_expired() {
                        return false;
                    }
                }
                () = self.closing.as_mut(), if idle => return false,
            }
        }
    }

    /// Reads until `count` bytes are there, without a timeout; false when the client closes before.
    pub async fn read_until(&mut self, stream: &mut TcpStream, count: usize) -> bool {
        while self.input.bytes().len() < count {
            if !self.input.read(stream).await.unwrap_or(false) {
                return false;
            }
        }
        true
    }

    /// A request of so many bytes got its response; the next ones may have come meanwhile.
    #[inline]
    pub fn finish(&mut self, length: usize, pipelined: &mut PipelinedInput) {
        self.input.advance(length);
        pipelined.move_to(&mut self.input);
        self.timeout.request_done();
        self.responded = true;
    }

    /// What was read and has no response yet, for who goes on with the connection.
    pub fn into_input(self) -> Input {
        self.input
    }
}
