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
pub mod peer;
mod tls;
mod tracked;
mod upstream_budget;
mod workers;

pub use admission::{Admission, ConnectionHandle, ConnectionSlot};
pub use certificates::FileCertificates;
pub use connection::Connections;
pub use descriptors::{DescriptorPool, DescriptorShare};
pub use hosts::AllowedHosts;
pub use linger::Lingering;
pub use tls::{CertificateFuture, Certificates, Handshake, TlsFiles, TlsSource};
pub use upstream_budget::{IdleConnections, UpstreamBudget, UpstreamPermit, UpstreamSocket};
pub use workers::{FastPath, Port, WorkerContext, worker_count};

use bytes::Bytes;
use estrade_http1::server::WRITE_TIMEOUT;
use estrade_model::ip_range::IpRange;
use http::{Request, Response};
use hyper::body::{Body, Incoming};
use hyper::service::Service;
use peer::TrustedProxies;
use socket2::{Domain, Protocol, Socket, Type};
use std::convert::Infallible;
use std::error::Error;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

/// Connections that the kernel holds for us while we are busy.
const BACKLOG: i32 = 4096;
/// Pause after a failed accept, so that running out of file descriptors does not spin a core.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(100);

/// How a listener treats its connections.
#[derive(Debug, Clone)]
pub struct ListenerOptions {
    /// Where its certificates come from; plain HTTP without.
    pub tls: Option<TlsSource>,
    /// Whose forwarded headers are believed.
    pub trusted_proxies: TrustedProxies,
    /// Who is not served: their connections are closed before anything is read.
    pub refuse_peers: Vec<IpRange>,
    /// The hosts that requests may name; any without.
    pub allowed_hosts: Option<AllowedHosts>,
    /// Connections at once; when they are taken, the longest idle ones make room, and without any new
    /// ones wait in the backlog.
    pub max_connections: usize,
    /// Connections of one address, or of one IPv6 network of 64 bits; half of all without a number.
    /// Trusted proxies have no such limit.
    pub max_connections_per_address: Option<usize>,
    /// The file descriptors that it shares with other listeners; without, it has as many as it needs.
    pub descriptors: Option<DescriptorShare>,
    /// How long a new connection may take until its first request is complete.
    pub header_timeout: Duration,
    /// How long a connection may wait for its next request.
    pub idle_timeout: Duration,
    /// How long requests in flight may take when the listener stops.
    pub drain_timeout: Duration,
}

impl Default for ListenerOptions {
    fn default() -> Self {
        Self {
            tls: None,
            trusted_proxies: TrustedProxies::default(),
            refuse_peers: Vec::new(),
            allowed_hosts: None,
            max_connections: 10_000,
            max_connections_per_address: None,
            descriptors: None,
            header_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(75),
            drain_timeout: Duration::from_secs(30),
        }
    }
}

impl ListenerOptions {
    /// Whether a request may name this host.
    pub fn allows_host(&self, authority: &str) -> bool {
        let allowed = self.allowed_hosts.as_ref();
        allowed.is_none_or(|hosts| hosts.allows(authority))
    }

    /// The connections of a listener with these options, all of which end with `stop`.
    pub(crate) fn admission(&self, stop: &CancellationToken) -> Arc<Admission> {
        let half = self.max_connections.div_ceil(2);
        let per_address = self.max_connections_per_address.unwrap_or(half);
        Admission::new(
            self.max_connections,
            per_address,
            self.descriptors.clone(),
            self.trusted_proxies.clone(),
            stop.clone(),
        )
    }
}

pub trait HttpService<B>:
    Service<Request<Incoming>, Response = Response<B>, Error = Infallible> + Send + Sync + 'static
{
}
impl<S, B> HttpService<B> for S where
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible>
        + Send
        + Sync
        + 'static
{
}

/// The body of a response.
pub trait HttpBody: Body<Data = Bytes, Error: Into<BoxError>> + Send + Unpin + 'static {}
impl<B> HttpBody for B where B: Body<Data = Bytes, Error: Into<BoxError>> + Send + Unpin + 'static {}

/// Any error.
pub type BoxError = Box<dyn Error + Send + Sync>;

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

/// Binds an address that several sockets of this process will share.
///
/// Fails when another process has it: sharing is for us, not for a second server that was started by
/// mistake and would get half of the connections.
pub fn bind_shared(address: SocketAddr) -> io::Result<std::net::TcpListener> {
    drop(bind_socket(address, false)?);
    bind_socket(address, true)
}

/// Binds a shared address once more.
pub fn bind_reuseport(address: SocketAddr) -> io::Result<std::net::TcpListener> {
    bind_socket(address, true)
}

fn bind_socket(address: SocketAddr, shared: bool) -> io::Result<std::net::TcpListener> {
    let socket = Socket::new(
        Domain::for_address(address),
        Type::STREAM,
        Some(Protocol::TCP),
    )?;
    socket.set_reuse_address(true)?;
    if shared {
        socket.set_reuse_port(true)?;
    }
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// A new connection: its stream, its peer and its slot.
type Accepted = (TcpStream, SocketAddr, ConnectionSlot);

/// The next connection, once there is a free slot for it. Those of refused peers, and of addresses that
/// have their share, are closed at once.
pub(crate) async fn accept(
    socket: &TcpListener,
    admission: &Arc<Admission>,
    refused: &[IpRange],
) -> Accepted {
    loop {
        match socket.accept().await {
            Ok((_, peer)) if refused.iter().any(|range| range.contains(peer.ip())) => {
                tracing::debug!(%peer, "closed a connection of a peer that is not served");
            }
            Ok((stream, peer)) => {
                let Some(slot) = admission.admit(peer.ip()).await else {
                    tracing::debug!(%peer, "closed a connection of an address that has its share");
                    continue;
                };
                tune(&stream);
                return (stream, peer, slot);
            }
            Err(error) if is_connection_error(&error) => {}
            Err(error) => {
                tracing::warn!(%error, "cannot accept connections, trying again");
                tokio::time::sleep(ACCEPT_RETRY_DELAY).await;
            }
        }
    }
}

/// Errors of a connection that ended before we took it; the listener itself is well.
fn is_connection_error(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(
        error.kind(),
        ConnectionAborted | ConnectionRefused | ConnectionReset
    )
}

/// Failing to tune a socket is no reason to refuse it.
fn tune(stream: &TcpStream) {
    // Without it small chunks of a stream wait for the client's delayed acknowledgement.
    let _ = stream.set_nodelay(true);
    #[cfg(target_os = "linux")]
    let _ = socket2::SockRef::from(stream).set_tcp_user_timeout(Some(WRITE_TIMEOUT));
}
