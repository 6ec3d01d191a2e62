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

pub(crate) struct Worker {
    pub(crate) edge: Arc<Edge>,
    pub(crate) index: usize,
    pub(crate) options: ListenerOptions,
    /// Idle connections to instances.
    pub(crate) pool: Arc<Pool>,
    /// Tasks of upgraded connections.
    pub(crate) tunnels: TaskTracker,
    /// Cancelled when the worker has to shut down.
    pub(crate) stop: CancellationToken,
    /// Cached date texts, for log entries that are written outside the request loop.
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

    /// The date cache, updated to `now`.
    pub(crate) fn date(&self, now: Timestamp) -> MutexGuard<'_, DateCache> {
        // Never contended: the requests of one thread take turns.
        let mut date = self.date.lock_ignoring_poison();
        date.update(now);
        date
    }

    /// The client in `X-Forwarded-For`, if the peer is a trusted proxy.
    pub(crate) fn forwarded_client(&self, peer: IpAddr, forwarded: &[&[u8]]) -> Option<IpAddr> {
        if forwarded.is_empty() || !self.options.trusted_proxies.contains(peer) {
            return None;
        }
        let headers = forwarded_headers(forwarded);
        Some(self.options.trusted_proxies.client(peer, &headers).0)
    }

    /// Records a request in the metrics and the access log.
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

/// Builds the header map that `TrustedProxies` reads.
fn forwarded_headers(forwarded: &[&[u8]]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for value in forwarded {
        if let Ok(value) = http::HeaderValue::from_bytes(value) {
            headers.append("x-forwarded-for", value);
        }
    }
    headers
}
