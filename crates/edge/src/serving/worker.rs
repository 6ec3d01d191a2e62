//! A lane: one thread that serves visitors, from a connection to the end of its answers.

use crate::access_log::LogEntry;
use crate::edge::Edge;
use crate::proxy::pool::Pool;
use crate::routing::route_table::Route;
use crate::serving::fast_path;
use crate::serving::hyper_service::HyperService;
use crate::static_files::request::StaticRequest;
use estrade_listener::express::{Express, Next};
use estrade_listener::{ConnectionHandle, ListenerOptions, Port, Seat, Second};
use estrade_model::Timestamp;
use futures_util::future::BoxFuture;
use http::StatusCode;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::net::TcpStream;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Serves visitors on a port until `stop` is cancelled and what is in flight has ended.
///
/// Boxed, so that it is compiled here.
pub fn serve(port: Port, edge: Arc<Edge>, stop: CancellationToken) -> BoxFuture<'static, ()> {
    let worker = move |seat: Seat| {
        let worker = Arc::new(Worker {
            pool: Arc::new(Pool::new(&edge.proxy)),
            edge: Arc::clone(&edge),
            index: seat.number,
            options: seat.options.clone(),
            tunnels: TaskTracker::new(),
            stop: seat.stop.clone(),
            second: Mutex::default(),
        });
        worker.serve(seat)
    };
    Box::pin(port.serve("edge", worker, stop))
}

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
    second: Mutex<Second>,
}

impl Express for HyperService {
    async fn serve_express(
        &self,
        mut stream: TcpStream,
        peer: IpAddr,
        _: &ListenerOptions,
        connection: &Arc<ConnectionHandle>,
    ) -> Next {
        match fast_path::serve(&self.0, &mut stream, peer, connection).await {
            Some(input) => Next::HandOver(stream, input),
            None => Next::Ended(Some(stream)),
        }
    }
}

impl Worker {
    async fn serve(self: Arc<Self>, seat: Seat) {
        let service = HyperService(Arc::clone(&self));
        tokio::select! {
            () = seat.serve_express(service) => {}
            () = self.pool.sweep() => {}
        }
        // They were told to stop with all others, and do not wait for anybody.
        self.tunnels.close();
        self.tunnels.wait().await;
    }

    /// The texts of this second.
    pub(crate) fn second(&self, now: Timestamp) -> MutexGuard<'_, Second> {
        // Never contended: the requests of one thread take turns.
        let mut second = self.second.lock().unwrap_or_else(PoisonError::into_inner);
        second.update(now);
        second
    }

    /// Who is behind a connection, if it is a proxy that may say so.
    pub(crate) fn forwarded_client(&self, peer: IpAddr, forwarded: &[&[u8]]) -> Option<IpAddr> {
        if forwarded.is_empty() || !self.options.trusted_proxies.contains(peer) {
            return None;
        }
        let headers = fast_path::forwarded_headers(forwarded);
        Some(self.options.trusted_proxies.client(peer, &headers).0)
    }

    /// Counts and logs an answered request.
    #[expect(
        clippy::too_many_arguments,
        reason = "each is a fact about one request, noted once"
    )]
    pub(crate) fn log_request(
        &self,
        second: &Second,
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
        self.edge.log.record(self.index, second, now, &entry);
    }
}
