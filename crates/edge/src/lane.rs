//! A lane: one thread that serves visitors, from a connection to the end of its answers.

use crate::access_log::Noted;
use crate::ask::Ask;
use crate::clock::Second;
use crate::edge::Edge;
use crate::express::{self, Next};
use crate::prefixed::Prefixed;
use crate::routes::Route;
use crate::visitors::Visitors;
use estrade_listener::{Connections, Handshake, Lingering, ListenerOptions, Port, Seat, accept};
use estrade_model::Timestamp;
use futures_util::future::BoxFuture;
use http::StatusCode;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Serves visitors on a port until `stop` is cancelled and what is in flight has ended.
///
/// Boxed, so that it is compiled here.
pub fn serve(port: Port, edge: Arc<Edge>, stop: CancellationToken) -> BoxFuture<'static, ()> {
    let lane = move |seat: Seat| {
        let lane = Lane {
            edge: Arc::clone(&edge),
            number: seat.number,
            options: seat.options,
            tls: seat.tls,
        };
        Arc::new(lane).serve(seat.socket, seat.slots, seat.stop)
    };
    Box::pin(port.serve("edge", lane, stop))
}

/// One serving thread.
pub(crate) struct Lane {
    pub(crate) edge: Arc<Edge>,
    pub(crate) number: usize,
    pub(crate) options: ListenerOptions,
    /// Makes TLS of its connections; none: they are plain.
    pub(crate) tls: Option<Handshake>,
}

impl Lane {
    /// Serves until `stop`, then finishes what is in flight.
    async fn serve(
        self: Arc<Self>,
        socket: std::net::TcpListener,
        slots: Arc<Semaphore>,
        stop: CancellationToken,
    ) {
        let socket = match TcpListener::from_std(socket) {
            Ok(socket) => socket,
            Err(error) => {
                tracing::error!(%error, "cannot serve on a socket");
                return;
            }
        };
        let connections = Connections::new(self.options.clone(), self.tls.clone(), stop.clone());
        let accepting = async {
            while let Some((stream, peer, slot)) = accept(&socket, &slots).await {
                if self.tls.is_some() {
                    connections.open(stream, peer, slot, Visitors(Arc::clone(&self)));
                } else {
                    self.open(&connections, stream, peer, slot, &stop);
                }
            }
        };
        tokio::select! {
            () = stop.cancelled() => {}
            () = accepting => {}
        }
        // Closes the port: who connects from now on is refused instead of left waiting.
        drop(socket);
        connections.drain().await;
    }

    fn open(
        self: &Arc<Self>,
        connections: &Connections,
        mut stream: TcpStream,
        peer: SocketAddr,
        slot: OwnedSemaphorePermit,
        stop: &CancellationToken,
    ) {
        let (lane, others) = (Arc::clone(self), connections.clone());
        // A token of its own: all connections waiting on one would share its lock.
        let (stop, server_stop) = (stop.child_token(), stop.clone());
        connections.track(async move {
            let peer = peer.ip().to_canonical();
            if let Next::HandOver(read) = express::serve(&lane, &mut stream, peer, &stop).await {
                let io = Prefixed::new(read, Lingering::new(stream, server_stop));
                others.serve_http(io, peer, Visitors(lane)).await;
            }
            drop(slot);
        });
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
        ask: &Ask<'_>,
        route: Option<&Route>,
        client: &str,
        (status, bytes): (StatusCode, u64),
        started: Instant,
    ) {
        let (status, took) = (status.as_u16(), started.elapsed());
        if let Some(route) = route {
            route.counts.note(status, bytes, took);
        }
        let project = route.map(|route| &*route.name);
        let noted = Noted {
            ask,
            project,
            client,
            status,
            bytes,
            took,
        };
        self.edge.log.note(self.number, second, now, &noted);
    }
}
