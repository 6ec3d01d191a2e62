//! Access log of requests that hyper reads and an instance responds to: written when the response has
//! ended or the client has disconnected.

use crate::proxy::upstream_body::{TruncatedBody, UpstreamBody};
use crate::routing::route::Route;
use crate::serving::hyper_request::read_request;
use crate::serving::worker::Worker;
use bytes::Bytes;
use http::StatusCode;
use http::request::Parts;
use http_body::{Body, Frame, SizeHint};
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tokio::time::Instant;

/// The client disconnected before there was a response; nginx logs the same status.
const CLIENT_CLOSED_REQUEST: u16 = 499;

pub(crate) fn client_closed_request() -> StatusCode {
    StatusCode::from_u16(CLIENT_CLOSED_REQUEST).unwrap_or(StatusCode::BAD_REQUEST)
}

/// Guard: logs a request when it is dropped.
pub(crate) struct LogOnDrop {
    pub(crate) worker: Arc<Worker>,
    pub(crate) route: Arc<Route>,
    pub(crate) parts: Parts,
    pub(crate) client: IpAddr,
    pub(crate) started: Instant,
    pub(crate) status: Option<StatusCode>,
    pub(crate) bytes: u64,
}

impl Drop for LogOnDrop {
    fn drop(&mut self) {
        let now = self.worker.edge.now();
        let date = self.worker.date(now);
        let request = read_request(&self.parts, self.worker.options.tls.is_some());
        self.worker.log_request(
            &date,
            now,
            &request,
            Some((&self.route, &self.route.name)),
            &self.client.to_string(),
            (
                self.status.unwrap_or_else(client_closed_request),
                self.bytes,
            ),
            self.started,
        );
    }
}

/// A response body from an instance that holds the log guard.
pub(crate) struct LoggedBody {
    pub(crate) body: UpstreamBody,
    pub(crate) log: LogOnDrop,
}

impl LoggedBody {
    pub(crate) fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, TruncatedBody>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        self.log.bytes = self.body.bytes;
        Poll::Ready(frame)
    }

    pub(crate) fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    pub(crate) fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
