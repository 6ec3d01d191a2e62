//! The note about a request that hyper reads and an instance answers: made when the answer has ended,
//! or when nobody waits for it any more.

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

/// The visitor has gone before there was an answer; what others also note in this case.
const CLIENT_CLOSED_REQUEST: u16 = 499;

pub(crate) fn client_closed_request() -> StatusCode {
    StatusCode::from_u16(CLIENT_CLOSED_REQUEST).unwrap_or(StatusCode::BAD_REQUEST)
}

/// A request that is noted when this is dropped.
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

/// The body of an answer on its way from an instance to a visitor.
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
