//! Bound sockets and the connections that they accept.

use crate::admission::{Admission, ConnectionSlot};
use estrade_http1::server::WRITE_TIMEOUT;
use estrade_model::ip_range::IpRange;
use socket2::{Domain, Protocol, Socket, Type};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};

/// Connections that the kernel holds for us while we are busy.
const BACKLOG: i32 = 4096;
/// Pause after a failed accept, so that running out of file descriptors does not spin a core.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(100);

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

pub(crate) fn bind_socket(address: SocketAddr, shared: bool) -> io::Result<std::net::TcpListener> {
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
pub(crate) type Accepted = (TcpStream, SocketAddr, ConnectionSlot);

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
