//! Requests: how their bodies are framed, and sending one whose bytes are all in memory.

use crate::client::Connection;
use crate::client::response_head::{ResponseContext, ResponseHead};
use bytes::Bytes;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::Instant;

/// How the end of a request's body is declared (RFC 9112, section 6.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestFraming {
    /// No header: there is no body.
    None,
    Length(u64),
    Chunked,
}

impl RequestFraming {
    /// Appends the one header that declares it.
    pub fn write(self, out: &mut Vec<u8>) {
        match self {
            Self::None => {}
            Self::Length(length) => {
                out.extend_from_slice(b"content-length: ");
                out.extend_from_slice(itoa::Buffer::new().format(length).as_bytes());
                out.extend_from_slice(b"\r\n");
            }
            Self::Chunked => out.extend_from_slice(b"transfer-encoding: chunked\r\n"),
        }
    }
}

/// Why there is no response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SendError {
    /// The connection ended before the first byte of a response.
    Closed,
    /// The response is not HTTP, or breaks off within its head.
    Malformed,
    /// No complete head until the deadline.
    Timeout,
}

/// Request whose bytes are all in memory.
#[derive(Clone, Copy)]
pub struct Request<'q> {
    /// The part of the head that is the same for all requests to a target.
    pub head: &'q [u8],
    /// The rest of the head, with its empty line.
    pub extra_headers: &'q [u8],
    /// By reference, not as a slice: a request is part of the state of every call, and that is 8 bytes less.
    pub body: &'q Bytes,
}

impl Request<'_> {
    fn len(&self) -> usize {
        self.head.len() + self.extra_headers.len() + self.body.len()
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    /// Sends a request and waits for the head of its response, until `due`.
    pub fn send<'a, R, T>(
        &'a mut self,
        request: &'a Request<'a>,
        now: Instant,
        due: Instant,
        read: R,
    ) -> SendRequest<'a, S, R>
    where
        R: Fn(&ResponseHead<'_>) -> T,
    {
        self.fully_sent = false;
        self.sent_at = now;
        SendRequest {
            connection: self,
            request,
            sent: 0,
            due,
            read,
        }
    }

    fn poll_send(
        &mut self,
        cx: &mut Context<'_>,
        request: &Request<'_>,
        sent: &mut usize,
    ) -> Poll<io::Result<()>> {
        while *sent < request.len() {
            let mut skip = *sent;
            let rest = [request.head, request.extra_headers, request.body].map(|part| {
                let gone = skip.min(part.len());
                skip -= gone;
                &part[gone..]
            });
            *sent += ready!(self.poll_write(cx, &rest))?;
        }
        self.fully_sent = true;
        self.poll_flush(cx)
    }
}

/// Future of [`Connection::send`]. Written by hand: an async function stores its arguments twice.
pub struct SendRequest<'a, S, R> {
    connection: &'a mut Connection<S>,
    request: &'a Request<'a>,
    sent: usize,
    due: Instant,
    read: R,
}

impl<S, R, T> Future for SendRequest<'_, S, R>
where
    S: AsyncRead + AsyncWrite + Unpin,
    R: Fn(&ResponseHead<'_>) -> T + Unpin,
{
    type Output = Result<T, SendError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        let connection = &mut *this.connection;
        // A peer that stops reading may have sent why: an error here does not end the wait for its response.
        let _ = connection.poll_send(cx, this.request, &mut this.sent);
        let Poll::Ready(head) = connection.poll_head(cx, ResponseContext::default(), &this.read)
        else {
            ready!(connection.poll_deadline(cx, this.due));
            return Poll::Ready(Err(SendError::Timeout));
        };
        if !connection.fully_sent {
            // A peer that responds before it has read everything may take the rest for the next request.
            connection.close_after_response();
        }
        Poll::Ready(match head {
            Ok(Some(head)) => Ok(head),
            Ok(None) => Err(SendError::Closed),
            Err(_) => Err(SendError::Malformed),
        })
    }
}
