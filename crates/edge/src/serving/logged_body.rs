//! The note about a request that hyper reads and an instance answers: made when the answer has ended,
//! or when nobody waits for it any more.

use crate::routing::route_table::Route;
use crate::serving::hyper_service::read_request;
use crate::serving::worker::Worker;
use http::StatusCode;
use http::request::Parts;
use std::net::IpAddr;
use std::sync::Arc;
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
        let second = self.worker.second(now);
        let request = read_request(&self.parts, self.worker.options.tls.is_some());
        self.worker.log_request(
            &second,
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
