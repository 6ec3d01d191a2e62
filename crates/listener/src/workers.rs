//! Workers: one thread per core, each with its own socket and its own runtime.
//!
//! Each worker listens on the same port, and the kernel spreads the connections. A request is read,
//! answered and written on one thread, so nothing of it is handed from core to core.

use crate::socket::{Accepted, accept};
use crate::{
    Admission, ConnectionHandle, ConnectionSlot, Connections, Handshake, HttpBody, HttpService,
    Lingering, ListenerOptions, bind_reuseport, bind_shared,
};
use estrade_http1::Rewind;
use estrade_http1::server::Outcome;
use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

/// One worker per core.
pub fn worker_count() -> usize {
    thread::available_parallelism().map_or(1, NonZeroUsize::get)
}

/// A port that is bound, once per worker.
pub struct Port {
    address: SocketAddr,
    sockets: Vec<std::net::TcpListener>,
    options: ListenerOptions,
    tls: Option<Handshake>,
}

/// A service that answers ordinary requests itself.
pub trait FastPath: Sync {
    /// Serves a plain connection for as long as the fast path supports its requests, and until it has to
    /// close.
    fn serve_fast_path(
        &self,
        stream: TcpStream,
        peer: IpAddr,
        options: &ListenerOptions,
        connection: &Arc<ConnectionHandle>,
    ) -> impl Future<Output = Outcome> + Send;
}

/// What a worker serves with.
pub struct WorkerContext {
    /// Which of the workers it is, from 0.
    pub index: usize,
    pub socket: std::net::TcpListener,
    /// The connections that all workers together have.
    pub admission: Arc<Admission>,
    /// How connections are treated.
    pub options: ListenerOptions,
    /// Makes TLS of them; none: they are plain.
    pub tls: Option<Handshake>,
    /// Cancelled when it shall end.
    pub stop: CancellationToken,
}

impl Port {
    /// Binds the address for so many workers, and reads certificates, so that mistakes show at start.
    pub async fn bind(
        address: SocketAddr,
        options: ListenerOptions,
        workers: usize,
    ) -> io::Result<Self> {
        let tls = match &options.tls {
            Some(source) => Some(source.handshake().await?),
            None => None,
        };
        let first = bind_shared(address)?;
        let address = first.local_addr()?;
        let others = (1..workers.max(1)).map(|_| bind_reuseport(address));
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

    /// Runs one worker per socket, in threads of this name, until `stop` is cancelled and all have
    /// ended.
    pub async fn serve<F, Fut>(self, name: &'static str, worker: F, stop: CancellationToken)
    where
        F: Fn(WorkerContext) -> Fut + Clone + Send + 'static,
        Fut: Future<Output = ()>,
    {
        let admission = self.options.admission(&stop);
        let mut running = Vec::new();
        for (index, socket) in self.sockets.into_iter().enumerate() {
            let context = WorkerContext {
                index,
                socket,
                admission: Arc::clone(&admission),
                options: self.options.clone(),
                tls: self.tls.clone(),
                stop: stop.clone(),
            };
            match start(name, worker.clone(), context) {
                Ok(started) => running.push(started),
                Err(error) => tracing::error!(%error, "cannot start a serving thread"),
            }
        }
        for (ended, thread) in running {
            // Whether it ended or broke: the thread is over after it.
            let _ = ended.await;
            if thread.join().is_err() {
                tracing::error!("a worker thread panicked");
            }
        }
    }
}

fn start<F, Fut>(
    name: &'static str,
    worker: F,
    context: WorkerContext,
) -> io::Result<(oneshot::Receiver<()>, JoinHandle<()>)>
where
    F: Fn(WorkerContext) -> Fut + Send + 'static,
    Fut: Future<Output = ()>,
{
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let (end, ended) = oneshot::channel();
    let run = move || {
        runtime.block_on(worker(context));
        // Fails only when the receiver was dropped.
        let _ = end.send(());
    };
    let thread = thread::Builder::new().name(name.into()).spawn(run)?;
    Ok((ended, thread))
}

impl WorkerContext {
    /// Serves every connection with hyper, until it shall stop and what is in flight has ended.
    pub async fn serve<S, B>(self, service: S)
    where
        S: HttpService<B> + Clone,
        S::Future: Send + 'static,
        B: HttpBody,
    {
        self.serve_with(|connections, (stream, peer, slot)| {
            connections.open(stream, peer, slot, service.clone());
        })
        .await;
    }

    /// The same, but plain connections begin on the fast path of the service.
    pub async fn serve_fast_path<S, B>(self, service: S)
    where
        S: FastPath + HttpService<B> + Clone,
        S::Future: Send + 'static,
        B: HttpBody,
    {
        let options = Arc::new(self.options.clone());
        let plain = self.tls.is_none();
        self.serve_with(|connections, (stream, peer, slot)| {
            let service = service.clone();
            if !plain {
                return connections.open(stream, peer, slot, service);
            }
            let (others, options) = (connections.clone(), Arc::clone(&options));
            connections.track(async move {
                serve_plain(&others, stream, peer.ip(), service, &options, &slot).await;
                drop(slot);
            });
        })
        .await;
    }

    async fn serve_with(self, open: impl Fn(&Connections, Accepted)) {
        let socket = match TcpListener::from_std(self.socket) {
            Ok(socket) => socket,
            Err(error) => {
                tracing::error!(%error, "cannot serve on a socket");
                return;
            }
        };
        let refused = self.options.refuse_peers.clone();
        let connections = Connections::new(self.options, self.tls, self.stop.clone());
        let accepting = async {
            loop {
                open(
                    &connections,
                    accept(&socket, &self.admission, &refused).await,
                );
            }
        };
        tokio::select! {
            () = self.stop.cancelled() => {}
            () = accepting => {}
        }
        // Closes the port: who connects from now on is refused instead of left waiting.
        drop(socket);
        connections.drain().await;
    }
}

/// Serves a connection on the fast path, and what is left of it with hyper.
async fn serve_plain<S, B>(
    connections: &Connections,
    stream: TcpStream,
    peer: IpAddr,
    service: S,
    options: &ListenerOptions,
    slot: &ConnectionSlot,
) where
    S: FastPath + HttpService<B>,
    S::Future: Send + 'static,
    B: HttpBody,
{
    let peer = peer.to_canonical();
    let handle = slot.handle();
    let linger = |stream| Lingering::new(stream, handle);
    match service.serve_fast_path(stream, peer, options, handle).await {
        Outcome::Fallback(stream, read) => {
            let io = Rewind::new(read.into_bytes(), linger(stream));
            connections.serve_http(io, peer, service, handle).await;
        }
        Outcome::Closed(Some(stream)) => {
            // An error is ignored: the connection is over.
            drop(linger(stream).shutdown().await);
        }
        Outcome::Closed(None) => {}
    }
}
