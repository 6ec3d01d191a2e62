//! Sockets to providers: name resolution, TCP, TLS.

use crate::upstream::Upstream;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout;
use tokio_rustls::client::TlsStream;

/// How long an address may take to accept before the next one is tried beside it.
const NEXT_ADDRESS_DELAY: Duration = Duration::from_millis(250);

/// Socket with or without TLS.
pub(crate) enum Stream {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl Stream {
    pub(super) async fn connect(upstream: &Upstream) -> io::Result<Self> {
        let addresses = lookup_host((&*upstream.host, upstream.port)).await?;
        let stream = reach(addresses).await?;
        stream.set_nodelay(true)?;
        let Some((connector, name)) = &upstream.tls else {
            return Ok(Self::Plain(stream));
        };
        let stream = connector.connect(name.clone(), stream).await?;
        Ok(Self::Tls(Box::new(stream)))
    }
}

/// Happy Eyeballs: connects to the first address that accepts. Each one gets a head start on the next, so that an address
/// that does not respond cannot use up the connect timeout of all.
async fn reach(mut addresses: impl Iterator<Item = SocketAddr>) -> io::Result<TcpStream> {
    let mut last = io::Error::from(io::ErrorKind::NotFound);
    let mut tried = FuturesUnordered::new();
    loop {
        match addresses.next() {
            Some(address) => tried.push(TcpStream::connect(address)),
            None if tried.is_empty() => return Err(last),
            None => {}
        }
        match timeout(NEXT_ADDRESS_DELAY, tried.next()).await {
            Ok(Some(Ok(stream))) => return Ok(stream),
            Ok(Some(Err(error))) => last = error,
            Ok(None) | Err(_) => {}
        }
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_read(cx, buffer),
            Self::Tls(stream) => Pin::new(stream).poll_read(cx, buffer),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write_vectored(cx, parts),
            Self::Tls(stream) => Pin::new(stream).poll_write_vectored(cx, parts),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(_) => Poll::Ready(Ok(())),
            Self::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::{TcpListener, TcpSocket};

    #[tokio::test]
    async fn a_silent_address_does_not_take_the_time_of_the_next() {
        // A socket whose queue is full lets nobody in and says nothing.
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let silent = socket.listen(1).unwrap();
        let address = silent.local_addr().unwrap();
        let mut waiting = Vec::new();
        while let Ok(Ok(stream)) = timeout(NEXT_ADDRESS_DELAY, TcpStream::connect(address)).await {
            waiting.push(stream);
            assert!(waiting.len() < 100, "it lets everybody in");
        }
        let good = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let good = (good.local_addr().unwrap(), good);
        let reached = timeout(4 * NEXT_ADDRESS_DELAY, reach([address, good.0].into_iter())).await;
        let stream = reached.unwrap().unwrap();
        assert_eq!(stream.peer_addr().unwrap(), good.0);
        let nobody = timeout(4 * NEXT_ADDRESS_DELAY, reach([address].into_iter())).await;
        assert!(nobody.is_err(), "it waits for as long as it may");
        assert!(reach(std::iter::empty()).await.is_err());
    }
}
