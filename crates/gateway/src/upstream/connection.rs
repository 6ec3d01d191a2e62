//! Connections to providers, and the errors of a call on one.
//!
//! `http1` sends the request and reads the response. Two facts that it keeps decide what a failed attempt costs: a
//! request that is not fully sent cannot have been worked on, and a reused connection that ends within
//! `STALE_CONNECTION_WINDOW` was closed before the request arrived.

use crate::upstream::Upstream;
use crate::upstream::stream::Stream;
use estrade_http1::client;
use estrade_http1::framing::FramingError;
use estrade_listener::{UpstreamBudget, UpstreamSocket};
use std::time::Duration;
use tokio::time::timeout;

pub(crate) type Connection = client::Connection<UpstreamSocket<Stream>>;

/// Idle connections of one worker, by [`Upstream::number`].
pub(crate) type Pool = client::Pool<UpstreamSocket<Stream>, ()>;

/// Keep-alive race: a reused connection that ends within one round trip of a request was closed before the request
/// arrived, so the request is sent again. Later, the provider may have read it.
pub(crate) const STALE_CONNECTION_WINDOW: Duration = Duration::from_millis(300);

/// Why there is no response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SendError {
    /// There are as many connections to providers as may be.
    TooManyConnections,
    /// No address accepted a connection, or TLS failed.
    Connect,
    ConnectTimeout,
    /// The connection ended before the first byte of a response.
    Unanswered,
    /// The response is not HTTP, or breaks off within its head.
    Garbage,
    /// No response in time.
    Timeout,
}

impl From<client::SendError> for SendError {
    fn from(error: client::SendError) -> Self {
        match error {
            client::SendError::Closed => Self::Unanswered,
            client::SendError::Malformed => Self::Garbage,
            client::SendError::Timeout => Self::Timeout,
        }
    }
}

/// Why a response has no proper end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ResponseError {
    /// The provider closed the connection within the body.
    Closed,
    /// The framing of the body is invalid.
    Garbage,
    /// The provider sent nothing for the idle timeout.
    Idle,
    TooLarge,
    /// The client did not read it.
    Unread,
    /// The call could not be written to the journal in time.
    NotRecorded,
}

impl From<FramingError> for ResponseError {
    fn from(error: FramingError) -> Self {
        match error {
            FramingError::UnexpectedEof => Self::Closed,
            FramingError::Malformed => Self::Garbage,
        }
    }
}

/// Connects to a provider. The connection is in a box because it is handed on from attempt to response to pool.
pub(crate) async fn open(
    upstream: &Upstream,
    budget: &UpstreamBudget,
) -> Result<Box<Connection>, SendError> {
    let permit = budget.acquire(None);
    let permit = permit.ok_or(SendError::TooManyConnections)?;
    let connecting = timeout(upstream.timeouts.connect, Stream::connect(upstream));
    match connecting.await {
        Err(_) => Err(SendError::ConnectTimeout),
        Ok(Err(error)) => {
            tracing::debug!(provider = %upstream.name, %error, "cannot connect to a provider");
            Err(SendError::Connect)
        }
        Ok(Ok(stream)) => {
            let socket = UpstreamSocket::new(stream, permit);
            Ok(Box::new(Connection::new(socket)))
        }
    }
}
