//! A request that an instance has answered: the rest of its answer, as it comes.

use crate::proxy::connection::Connection;
use crate::proxy::outgoing::{OutgoingRequest, SendError};
use crate::proxy::pool::Pool;
use crate::routing::load_balancer::InFlightGuard;
use bytes::Bytes;
use estrade_http1::server::sending::Parts;
use http_body::{Body, Frame, SizeHint};
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::time::Instant;

/// The body of an answer. Dropping it closes the connection to the instance, unless it has ended.
pub(crate) struct UpstreamBody {
    /// None once the answer has ended, one way or another.
    active: Option<ActiveUpstream>,
    pool: Arc<Pool>,
    /// What the visitor still sends while it is being answered.
    outgoing: OutgoingRequest,
    idle_timeout: Duration,
    /// Since when there was nothing to pass on. A slow visitor is not the instance's fault.
    silent_since: Option<Instant>,
    /// Bytes that were passed on.
    pub(crate) bytes: u64,
}

struct ActiveUpstream {
    connection: Connection,
    in_flight: InFlightGuard,
}

/// The answer has no proper end, and the visitor shall notice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TruncatedBody;

impl fmt::Display for TruncatedBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the answer of an instance broke off")
    }
}

impl std::error::Error for TruncatedBody {}

impl UpstreamBody {
    pub(crate) fn new(
        connection: Connection,
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

    /// Gives the connection back once the answer has ended, so that nobody who does not ask for the
    /// end keeps it.
    fn end_if_done(&mut self) {
        let done = |active: &mut ActiveUpstream| active.connection.is_done();
        if let Some(ActiveUpstream {
            connection,
            in_flight,
        }) = self.active.take_if(done)
            // Who answers before it has read everything may take the rest for the next request.
            && connection.is_reusable()
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
        // One that takes no more goes on answering. But what it was sent must not end in the middle
        // as if that was all.
        if let Err(SendError::TooLarge | SendError::Client) = sent {
            return Poll::Ready(Err(TruncatedBody));
        }
        if let Poll::Ready(data) = active.connection.poll_data(cx) {
            self.silent_since = None;
            return Poll::Ready(data.map_err(|_| TruncatedBody));
        }
        let since = *self.silent_since.get_or_insert_with(Instant::now);
        ready!(active.connection.poll_due(cx, since + self.idle_timeout));
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
            .map_or(Some(0), |it| it.connection.left());
        left.map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}

impl Parts for UpstreamBody {}
