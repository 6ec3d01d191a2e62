//! Body of an instance's response, while the rest of the request may still be on its way.

use crate::proxy::Connection;
use crate::proxy::outgoing::{OutgoingRequest, SendError};
use crate::proxy::pool::Pool;
use crate::routing::load_balancer::InFlightGuard;
use bytes::Bytes;
use estrade_http1::server::OutgoingBody;
use http_body::{Body, Frame, SizeHint};
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::time::Instant;

/// Body of a response. Dropping it closes the connection to the instance, unless the body has ended.
pub(crate) struct UpstreamBody {
    /// None once the body has ended or failed.
    active: Option<ActiveUpstream>,
    pool: Arc<Pool>,
    /// The rest of the request: some instances respond before they have read it.
    outgoing: OutgoingRequest,
    idle_timeout: Duration,
    /// Since when the instance has sent nothing although it was read. Time that a slow client takes does not count.
    silent_since: Option<Instant>,
    pub(crate) bytes: u64,
}

struct ActiveUpstream {
    connection: Box<Connection>,
    in_flight: InFlightGuard,
}

/// The body has no proper end. The client's connection is broken off, too, so that it does not take a part for the whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TruncatedBody;

impl fmt::Display for TruncatedBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the response of an instance was cut")
    }
}

impl std::error::Error for TruncatedBody {}

impl UpstreamBody {
    pub(crate) fn new(
        connection: Box<Connection>,
        in_flight: InFlightGuard,
        pool: Arc<Pool>,
        outgoing: OutgoingRequest,
        idle_timeout: Duration,
    ) -> Self {
        let mut body = Self {
            active: Some(ActiveUpstream {
                connection,
                in_flight,
            }),
            pool,
            outgoing,
            idle_timeout,
            silent_since: None,
            bytes: 0,
        };
        body.end_if_done();
        body
    }

    /// Returns the connection to the pool as soon as the body has ended: servers that know its length do not poll for
    /// the end.
    fn end_if_done(&mut self) {
        let done = |active: &mut ActiveUpstream| active.connection.is_done();
        if let Some(ActiveUpstream {
            connection,
            in_flight,
        }) = self.active.take_if(done)
            // An instance that responds before it has read everything may take the rest for the next request.
            && self.outgoing.is_done()
        {
            self.pool.put(in_flight.instance(), connection);
        }
    }

    fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, TruncatedBody>> {
        let Some(active) = &mut self.active else {
            return Poll::Ready(Ok(None));
        };
        let sent = self
            .outgoing
            .poll_send(cx, &mut active.connection, &mut false);
        // An instance that stops reading may finish its response. But when the client broke off, the instance must not
        // take a part of the request for the whole: the connection is closed.
        if let Err(SendError::TooLarge | SendError::Client) = sent {
            return Poll::Ready(Err(TruncatedBody));
        }
        if let Poll::Ready(data) = active.connection.poll_data(cx) {
            self.silent_since = None;
            return Poll::Ready(data.map_err(|_| TruncatedBody));
        }
        let since = *self.silent_since.get_or_insert_with(Instant::now);
        ready!(
            active
                .connection
                .poll_deadline(cx, since + self.idle_timeout)
        );
        Poll::Ready(Err(TruncatedBody))
    }
}

impl Body for UpstreamBody {
    type Data = Bytes;
    type Error = TruncatedBody;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, TruncatedBody>>> {
        let this = self.get_mut();
        let data = ready!(this.poll_data(cx));
        if data.is_err() {
            this.active = None;
        }
        this.end_if_done();
        Poll::Ready(data.transpose().map(|data| {
            let data = data?;
            this.bytes += data.len() as u64;
            Ok(Frame::data(data))
        }))
    }

    fn is_end_stream(&self) -> bool {
        self.active.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        let left = self
            .active
            .as_ref()
            .map_or(Some(0), |it| it.connection.remaining());
        left.map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}

impl OutgoingBody for UpstreamBody {}
