//! The life of a connection: TLS handshake, requests, graceful shutdown.

use crate::linger::Lingering;
use crate::tracked::TrackedService;
use crate::{
    BoxError, ConnectionHandle, ConnectionSlot, Handshake, HttpBody, HttpService, ListenerOptions,
};
use estrade_http1::server::StrictHeads;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// How long a connection without a request may take to close.
const CLOSE_GRACE: Duration = Duration::from_secs(1);

/// Request heads larger than this are refused; also the read buffer's limit.
const MAX_HEAD: usize = 64 * 1024;
/// Concurrent streams of one HTTP/2 connection.
const MAX_STREAMS: u32 = 200;
/// Send buffer of one stream. Bounds the memory that a client can hold by requesting large responses
/// without reading them.
const MAX_SEND_BUFFER: usize = 64 * 1024;
/// A silent HTTP/2 connection is sent a PING after this long…
const PING_INTERVAL: Duration = Duration::from_secs(30);
/// …and dropped when the PING is not acknowledged for this long.
const PING_TIMEOUT: Duration = Duration::from_secs(20);
/// How long handlers have to notice that their connection was aborted.
const CUT_OFF_GRACE: Duration = Duration::from_secs(1);

/// All connections of a listener. Clones share them.
#[derive(Clone)]
pub struct Connections {
    shared: Arc<Shared>,
    tracker: TaskTracker,
}

struct Shared {
    http: auto::Builder<Spawner>,
    tls: Option<Handshake>,
    options: ListenerOptions,
    shutdown: CancellationToken,
}

/// Executor for HTTP/2 streams; the tracker lets `drain` wait for them.
#[derive(Clone)]
struct Spawner(TaskTracker);

impl<F> hyper::rt::Executor<F> for Spawner
where
    F: Future<Output = ()> + Send + 'static,
{
    fn execute(&self, task: F) {
        self.0.spawn(task);
    }
}

impl Connections {
    pub fn new(
        options: ListenerOptions,
        tls: Option<Handshake>,
        shutdown: CancellationToken,
    ) -> Self {
        let tracker = TaskTracker::new();
        let mut http = auto::Builder::new(Spawner(tracker.clone()));
        http.http1()
            .timer(TokioTimer::new())
            // hyper counts the wait for the next request as part of reading its head.
            .header_read_timeout(options.idle_timeout)
            // hyper's default limit of 100 headers stays: with an explicit limit it would initialise a
            // buffer of that size for each request.
            .max_buf_size(MAX_HEAD);
        http.http2()
            .timer(TokioTimer::new())
            .max_concurrent_streams(MAX_STREAMS)
            .max_send_buf_size(MAX_SEND_BUFFER)
            .max_header_list_size(u32::try_from(MAX_HEAD).unwrap_or(u32::MAX))
            .keep_alive_interval(PING_INTERVAL)
            .keep_alive_timeout(PING_TIMEOUT);
        let shared = Arc::new(Shared {
            http,
            tls,
            options,
            shutdown,
        });
        Self { shared, tracker }
    }

    /// Serves a connection in its own task, which releases the slot when it ends.
    pub fn open<S, B>(&self, stream: TcpStream, peer: SocketAddr, slot: ConnectionSlot, service: S)
    where
        S: HttpService<B>,
        S::Future: Send + 'static,
        B: HttpBody,
    {
        let shared = Arc::clone(&self.shared);
        self.track(async move {
            shared
                .serve(stream, peer.ip(), service, slot.handle())
                .await;
            drop(slot);
        });
    }

    /// Spawns a task that [`drain`](Self::drain) waits for.
    pub fn track(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.tracker.spawn(task);
    }

    /// Serves the rest of a connection; earlier requests on it may have been served by the fast path.
    pub async fn serve_http<I, S, B>(
        &self,
        io: I,
        peer: IpAddr,
        service: S,
        handle: &Arc<ConnectionHandle>,
    ) where
        I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
        S: HttpService<B>,
        S::Future: Send + 'static,
        B: HttpBody,
    {
        self.shared.serve_http(io, peer, service, handle).await;
    }

    /// Waits until every connection has ended; each of them bounds its own shutdown.
    pub async fn drain(self) {
        self.tracker.close();
        let longest = self.shared.options.drain_timeout + CUT_OFF_GRACE;
        if timeout(longest, self.tracker.wait()).await.is_err() {
            tracing::warn!("requests were still running when the time to finish was over");
        }
    }
}

impl Shared {
    async fn serve<S, B>(
        &self,
        stream: TcpStream,
        peer: IpAddr,
        service: S,
        handle: &Arc<ConnectionHandle>,
    ) where
        S: HttpService<B>,
        S::Future: Send + 'static,
        B: HttpBody,
    {
        let stream = Lingering::new(stream, handle);
        let Some(tls) = &self.tls else {
            return self.serve_http(stream, peer, service, handle).await;
        };
        let handshake = timeout(self.options.header_timeout, tls.accept(stream));
        let outcome = tokio::select! {
            outcome = handshake => outcome,
            () = handle.close().cancelled() => return,
        };
        match outcome {
            Ok(Ok(Some(stream))) => self.serve_http(stream, peer, service, handle).await,
            Ok(Ok(None)) => {}
            Ok(Err(error)) => tracing::debug!(%error, "tls handshake failed"),
            Err(_) => tracing::debug!("tls handshake took too long"),
        }
    }

    async fn serve_http<I, S, B>(
        &self,
        io: I,
        peer: IpAddr,
        service: S,
        handle: &Arc<ConnectionHandle>,
    ) where
        I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
        S: HttpService<B>,
        S::Future: Send + 'static,
        B: HttpBody,
    {
        let service = TrackedService::new(service, peer, &self.options, Arc::clone(handle));
        let requests = Arc::clone(service.requests());
        let upgraded = Arc::clone(&requests);
        let io = TokioIo::new(StrictHeads::new(io, move || upgraded.is_upgraded()));
        let mut connection = pin!(self.http.serve_connection_with_upgrades(io, service));
        let mut closed = pin!(handle.close().cancelled());
        // hyper has no idle timeout for an HTTP/2 connection without streams.
        let mut idle = pin!(sleep(self.options.idle_timeout));
        // hyper starts its header timeout only once it knows the HTTP version, so never for a silent client.
        let mut first_request = pin!(sleep(self.options.header_timeout));
        let mut waiting = true;
        loop {
            tokio::select! {
                biased;
                outcome = connection.as_mut() => return ended(outcome),
                () = closed.as_mut() => break,
                () = idle.as_mut() => {
                    let since = handle.idle_since().unwrap_or_else(Instant::now);
                    let due = since + self.options.idle_timeout;
                    if due <= Instant::now() {
                        break;
                    }
                    idle.as_mut().reset(due);
                }
                () = first_request.as_mut(), if waiting => {
                    if !requests.have_begun() {
                        tracing::debug!("no request came in time");
                        return;
                    }
                    waiting = false;
                }
            }
        }
        connection.as_mut().graceful_shutdown();
        let end = Instant::now() + self.options.drain_timeout;
        // hyper's graceful shutdown waits for the acknowledgement of its last PING and for the rest of a
        // partial request head. A client without a request gets only `CLOSE_GRACE`, not the drain timeout:
        // it would hold a slot that new connections wait for.
        let is_idle = || handle.idle_since().is_some() || !requests.have_begun();
        if !self.shutdown.is_cancelled() && is_idle() {
            let grace = timeout(CLOSE_GRACE, connection.as_mut()).await;
            match grace {
                Ok(outcome) => return ended(outcome),
                Err(_) if is_idle() => {
                    return tracing::debug!("a connection was cut off because it did not close");
                }
                // A request came in the meantime.
                Err(_) => {}
            }
        }
        match timeout_at(end, connection).await {
            Ok(outcome) => ended(outcome),
            Err(_) if self.shutdown.is_cancelled() => {
                tracing::warn!("a connection was cut off because its request did not end");
            }
            Err(_) => tracing::debug!("a connection was cut off because it did not close"),
        }
    }
}

/// Aborted connections and malformed requests are routine, so they are logged at debug level only.
fn ended(outcome: Result<(), BoxError>) {
    if let Err(error) = outcome {
        tracing::debug!(error, "connection ended");
    }
}
