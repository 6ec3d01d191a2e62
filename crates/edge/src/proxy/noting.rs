//! The note about a request that hyper reads and an instance answers: made when the answer has ended,
//! or when nobody waits for it any more.

use crate::lane::Lane;
use crate::routes::Route;
use crate::visitors::read_request;
use http::StatusCode;
use http::request::Parts;
use std::net::IpAddr;
use std::sync::Arc;
use tokio::time::Instant;

/// The visitor has gone before there was an answer; what others also note in this case.
const GONE: u16 = 499;

pub(crate) fn gone() -> StatusCode {
    StatusCode::from_u16(GONE).unwrap_or(StatusCode::BAD_REQUEST)
}

/// A request that is noted when this is dropped.
pub(crate) struct Noting {
    pub(crate) lane: Arc<Lane>,
    pub(crate) route: Arc<Route>,
    pub(crate) parts: Parts,
    pub(crate) client: IpAddr,
    pub(crate) started: Instant,
    pub(crate) status: Option<StatusCode>,
    pub(crate) bytes: u64,
}

impl Drop for Noting {
    fn drop(&mut self) {
        let now = self.lane.edge.now();
        let second = self.lane.second(now);
        let request = read_request(&self.parts, self.lane.options.tls.is_some());
        self.lane.note(
            &second,
            now,
            &request,
            Some((&self.route, &self.route.name)),
            &self.client.to_string(),
            (self.status.unwrap_or_else(gone), self.bytes),
            self.started,
        );
    }
}
