//! A lane: one thread that serves visitors, from a connection to the end of its answers.

use crate::access_log::Noted;
use crate::edge::Edge;
use crate::express;
use crate::proxy::Pool;
use crate::request::StaticRequest;
use crate::routes::Route;
use crate::visitors::Visitors;
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
    let lane = move |seat: Seat| {
        let lane = Arc::new(Lane {
            pool: Arc::new(Pool::new(&edge.proxy)),
            edge: Arc::clone(&edge),
            number: seat.number,
            options: seat.options.clone(),
            tunnels: TaskTracker::new(),
            stop: seat.stop.clone(),
            second: Mutex::default(),
        });
        lane.serve(seat)
    };
    Box::pin(port.serve("edge", lane, stop))
}

/// One serving thread.
pub(crate) struct Lane {
    pub(crate) edge: Arc<Edge>,
    pub(crate) number: usize,
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

impl Express for Visitors {
    async fn serve_express(
        &self,
        mut stream: TcpStream,
        peer: IpAddr,
        _: &ListenerOptions,
        connection: &Arc<ConnectionHandle>,
    ) -> Next {
        match express::serve(&self.0, &mut stream, peer, connection).await {
            Some(input) => Next::HandOver(stream, input),
            None => Next::Ended(Some(stream)),
        }
    }
}

impl Lane {
    async fn serve(self: Arc<Self>, seat: Seat) {
        let visitors = Visitors(Arc::clone(&self));
        tokio::select! {
            () = seat.serve_express(visitors) => {}
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
        let headers = express::forwarded_headers(forwarded);
        Some(self.options.trusted_proxies.client(peer, &headers).0)
    }

    /// Counts and logs an answered request.
    #[expect(
        clippy::too_many_arguments,
        reason = "each is a fact about one request, noted once"
    )]
    pub(crate) fn note(
        &self,
        second: &Second,
        now: Timestamp,
        request: &StaticRequest<'_>,
        project: Option<(&Route, &str)>,
        client: &str,
        (status, bytes): (StatusCode, u64),
        started: Instant,
    ) {
        let (status, took) = (status.as_u16(), started.elapsed());
        if let Some((route, _)) = project {
            route.counters().record(status, bytes, took);
        }
        let project = project.map(|(_, name)| name);
        let noted = Noted {
            request,
            project,
            client,
            status,
            bytes,
            took,
        };
        self.edge.log.note(self.number, second, now, &noted);
    }
}
