//! The edge's sockets and threads, from binding to the end.

use crate::edge::Edge;
use crate::lane::Lane;
use estrade_listener::{Handshake, ListenerOptions, bind_shared};
use futures_util::future::BoxFuture;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use tokio::sync::{Semaphore, oneshot};
use tokio_util::sync::CancellationToken;

/// A port that is bound, once per lane.
pub struct Port {
    address: SocketAddr,
    sockets: Vec<std::net::TcpListener>,
    options: ListenerOptions,
    tls: Option<Handshake>,
}

impl Port {
    /// Binds the address for so many lanes, and reads certificates, so that mistakes show at start.
    pub async fn bind(
        address: SocketAddr,
        options: ListenerOptions,
        lanes: usize,
    ) -> io::Result<Self> {
        let tls = match &options.tls {
            Some(source) => Some(source.handshake().await?),
            None => None,
        };
        let first = bind_shared(address)?;
        let address = first.local_addr()?;
        let others = (1..lanes.max(1)).map(|_| estrade_listener::bind_again(address));
        let sockets = std::iter::once(Ok(first))
            .chain(others)
            .collect::<io::Result<_>>()?;
        Ok(Self {
            address,
            sockets,
            options,
            tls,
        })
    }

    /// The address that was bound, with the port that the system chose for port 0.
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Serves until `stop` is cancelled and what is in flight has ended.
    pub fn serve(self, edge: Arc<Edge>, stop: CancellationToken) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            let slots = Arc::new(Semaphore::new(self.options.max_connections));
            let mut lanes = Vec::new();
            for (number, socket) in self.sockets.into_iter().enumerate() {
                let lane = Lane {
                    edge: Arc::clone(&edge),
                    number,
                    options: self.options.clone(),
                    tls: self.tls.clone(),
                };
                match start_lane(lane, socket, Arc::clone(&slots), stop.clone()) {
                    Ok(started) => lanes.push(started),
                    Err(error) => tracing::error!(%error, "cannot start a serving thread"),
                }
            }
            for (ended, thread) in lanes {
                // Whether it ended or broke: the thread is over after it.
                let _ = ended.await;
                if thread.join().is_err() {
                    tracing::error!("a serving thread broke off");
                }
            }
        })
    }
}

fn start_lane(
    lane: Lane,
    socket: std::net::TcpListener,
    slots: Arc<Semaphore>,
    stop: CancellationToken,
) -> io::Result<(oneshot::Receiver<()>, JoinHandle<()>)> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let (end, ended) = oneshot::channel();
    let run = move || {
        runtime.block_on(Arc::new(lane).serve(socket, slots, stop));
        // The other side is gone only when nobody waits any more.
        let _ = end.send(());
    };
    let thread = thread::Builder::new().name("edge".into()).spawn(run)?;
    Ok((ended, thread))
}
