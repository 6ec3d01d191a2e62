//! The accept loop: sockets in, requests to a service, an orderly stop.
//!
//! `axum::serve` has no header timeout, no connection cap and no bound on its drain, so this is our
//! own, over hyper-util's connection builder. Each of the process's listeners is one [`Listener`].

mod admission;
mod certificates;
mod connection;
mod descriptors;
mod hosts;
mod linger;
mod options;
pub mod peer;
mod service;
mod socket;
mod tls;
mod tracked;
mod upstream_budget;
mod workers;

pub use admission::{Admission, ConnectionHandle, ConnectionSlot};
pub use certificates::{CertificateFuture, Certificates, FileCertificates, TlsFiles};
pub use connection::Connections;
pub use descriptors::{DescriptorPool, DescriptorShare};
pub use hosts::AllowedHosts;
pub use linger::Lingering;
pub use options::ListenerOptions;
pub use service::{BoxError, HttpBody, HttpService};
pub use socket::{bind_reuseport, bind_shared};
pub use tls::{Handshake, TlsSource};
pub use upstream_budget::{IdleConnections, UpstreamBudget, UpstreamPermit, UpstreamSocket};
pub use workers::{FastPath, Port, WorkerContext, worker_count};

use socket::{accept, bind_socket};
use std::io;
use std::net::SocketAddr;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// A bound socket, ready to serve.
pub struct Listener {
    socket: TcpListener,
    address: SocketAddr,
    tls: Option<Handshake>,
    options: ListenerOptions,
}

impl Listener {
    /// Binds the address and reads the certificate, so that mistakes show at start.
    pub async fn bind(address: SocketAddr, options: ListenerOptions) -> io::Result<Self> {
        let tls = match &options.tls {
            Some(source) => Some(source.handshake().await?),
            None => None,
        };
        let socket = TcpListener::from_std(bind_socket(address, false)?)?;
        Ok(Self {
            address: socket.local_addr()?,
            socket,
            tls,
            options,
        })
    }

    /// The address that was bound, with the port that the system chose for port 0.
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Serves until `shutdown` is cancelled, then finishes what is in flight and returns.
    ///
    /// After the cancellation nothing is accepted, idle connections close at once, and requests in
    /// flight have `drain_timeout` to end; what is left then is cut off.
    pub async fn serve<S, B>(self, service: S, shutdown: CancellationToken)
    where
        S: HttpService<B> + Clone,
        S::Future: Send + 'static,
        B: HttpBody,
    {
        let Self {
            socket,
            tls,
            options,
            ..
        } = self;
        let admission = options.admission(&shutdown);
        let refused = options.refuse_peers.clone();
        let connections = Connections::new(options, tls, shutdown.clone());
        let accept = async {
            loop {
                let (stream, peer, slot) = accept(&socket, &admission, &refused).await;
                connections.open(stream, peer, slot, service.clone());
            }
        };
        tokio::select! {
            () = shutdown.cancelled() => {}
            () = accept => {}
        }
        // Closes the port: who connects from now on is refused instead of left waiting.
        drop(socket);
        connections.drain().await;
    }
}
