//! One worker: what the requests of a serving thread share. No lock of it is ever contended, because
//! its requests take turns on one thread.

use crate::access_log::LogEntry;
use crate::edge::Edge;
use crate::proxy::pool::Pool;
use crate::proxy::retry::Upstream;
use crate::routing::route::Route;
use crate::static_files::request::StaticRequest;
use estrade_http1::DateCache;
use estrade_listener::ListenerOptions;
use estrade_model::Timestamp;
use estrade_model::sync::MutexExt;
use http::{HeaderMap, StatusCode};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// One serving thread.
pub(crate) struct Worker {
    pub(crate) edge: Arc<Edge>,
    pub(crate) index: usize,
    pub(crate) options: ListenerOptions,
    /// Connections to instances that wait for the next request.
    pub(crate) pool: Arc<Pool>,
    /// Upgraded connections, which are no requests any more.
    pub(crate) tunnels: TaskTracker,
    /// Cancelled when it shall end.
    pub(crate) stop: CancellationToken,
    /// The present second, for notes that are made without one at hand.
    pub(super) date: Mutex<DateCache>,
}

impl Worker {
    /// What a request needs to reach an instance.
    pub(crate) fn upstream(&self) -> Upstream<'_> {
        Upstream {
            options: &self.edge.proxy,
            pool: &self.pool,
            shared_domains: self.edge.shared_domains(),
        }
    }

    /// The texts of this second.
    pub(crate) fn date(&self, now: Timestamp) -> MutexGuard<'_, DateCache> {
        // Never contended: the requests of one thread take turns.
        let mut date = self.date.lock_ignoring_poison();
        date.update(now);
        date
    }

    /// Who is behind a connection, if it is a proxy that may say so.
    pub(crate) fn forwarded_client(&self, peer: IpAddr, forwarded: &[&[u8]]) -> Option<IpAddr> {
        if forwarded.is_empty() || !self.options.trusted_proxies.contains(peer) {
            return None;
        }
        let headers = forwarded_headers(forwarded);
        Some(self.options.trusted_proxies.client(peer, &headers).0)
    }

    /// Counts and logs an answered request.
    #[expect(
        clippy::too_many_arguments,
        reason = "each is a fact about one request, noted once"
    )]
    pub(crate) fn log_request(
        &self,
        date: &DateCache,
        now: Timestamp,
        request: &StaticRequest<'_>,
        project: Option<(&Route, &str)>,
        client: &str,
        (status, bytes): (StatusCode, u64),
        started: Instant,
    ) {
        let (status, duration) = (status.as_u16(), started.elapsed());
        if let Some((route, _)) = project {
            route.counters().record(status, bytes, duration);
        }
        let project = project.map(|(_, name)| name);
        let entry = LogEntry {
            request,
            project,
            client,
            status,
            bytes,
            duration,
        };
        self.edge.log.record(self.index, date, now, &entry);
    }
}

/// The header that a list of proxies is read from.
fn forwarded_headers(forwarded: &[&[u8]]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for value in forwarded {
        if let Ok(value) = http::HeaderValue::from_bytes(value) {
            headers.append("x-forwarded-for", value);
        }
    }
    headers
}
