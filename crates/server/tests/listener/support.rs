//! A small server with one route per behaviour, and a client that writes raw bytes.

use axum::extract::{Extension, Request, State};
use axum::routing::{get, post};
use axum::{Router, body::Body as RawBody};
use estrade_listener::peer::PeerAddr;
use estrade_listener::{Listener, ListenerOptions};
use estrade_server::body::{Body, BodyRules};
use estrade_server::body_reader::BodyLimits;
use estrade_server::error::PlatformError;
use estrade_server::metrics::Metrics;
use estrade_server::middleware::{Middleware, finish_router};
use estrade_server::spool::SpoolRoom;
use serde::Deserialize;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// Far above what a response takes: a limit for one that never comes.
const READ_TIMEOUT: Duration = Duration::from_secs(20);

/// A listener that is being served.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    pub(crate) shutdown: CancellationToken,
    pub(crate) serving: JoinHandle<()>,
    pub(crate) metrics: Metrics,
    pub(crate) spool: TempDir,
    pub(crate) held: Arc<Held>,
}

/// A request to `/held`: it says when it has come, and its response waits for a word.
#[derive(Default)]
pub(crate) struct Held {
    pub(crate) arrived: Notify,
    pub(crate) go: Notify,
}

#[derive(Deserialize)]
struct New {
    name: String,
    #[serde(default)]
    count: u8,
}

impl Server {
    pub(crate) async fn start() -> Self {
        Self::start_with(ListenerOptions::default()).await
    }

    pub(crate) async fn start_with(options: ListenerOptions) -> Self {
        let listener = Listener::bind(([127, 0, 0, 1], 0).into(), options)
            .await
            .unwrap();
        let (address, shutdown, metrics) = (
            listener.local_addr(),
            CancellationToken::new(),
            Metrics::new(),
        );
        let (spool, held) = (tempfile::tempdir().unwrap(), Arc::<Held>::default());
        let router = router(&spool, Arc::clone(&held));
        let middleware = Middleware::<PlatformError>::new(router, metrics.listener("test"));
        let serving = tokio::spawn(listener.serve(middleware.into_service(), shutdown.clone()));
        Self {
            address,
            shutdown,
            serving,
            metrics,
            spool,
            held,
        }
    }

    pub(crate) async fn connect(&self) -> Client {
        Client(TcpStream::connect(self.address).await.unwrap())
    }

    /// A connection from another address of this machine.
    pub(crate) async fn connect_from(&self, address: &str) -> Client {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        let address: std::net::IpAddr = address.parse().unwrap();
        socket.bind((address, 0).into()).unwrap();
        Client(socket.connect(self.address).await.unwrap())
    }

    /// One request on its own connection; the whole response as text.
    pub(crate) async fn send(&self, request: impl AsRef<[u8]>) -> String {
        let mut client = self.connect().await;
        client.write(request).await;
        client.read_to_end().await
    }

    /// A JSON body to a path.
    pub(crate) async fn post(&self, path: &str, body: impl AsRef<[u8]>) -> String {
        let body = body.as_ref();
        let mut request = format!(
            "POST {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
            body.len()
        )
        .into_bytes();
        request.extend_from_slice(body);
        self.send(request).await
    }

    pub(crate) async fn get(&self, path: &str) -> String {
        self.send(get_request(path)).await
    }
}

pub(crate) fn get_request(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
}

/// A client that says exactly what it is told.
pub(crate) struct Client(pub(crate) TcpStream);

impl Client {
    pub(crate) async fn write(&mut self, bytes: impl AsRef<[u8]>) {
        self.0.write_all(bytes.as_ref()).await.unwrap();
    }

    /// Everything until the server closes; a reset counts as the end.
    pub(crate) async fn read_to_end(&mut self) -> String {
        let mut bytes = Vec::new();
        let read = self.0.read_to_end(&mut bytes);
        let _ = tokio::time::timeout(READ_TIMEOUT, read).await.unwrap();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// One response that ends with this text.
    pub(crate) async fn read_until(&mut self, end: &str) -> String {
        let mut bytes = Vec::new();
        while !String::from_utf8_lossy(&bytes).ends_with(end) {
            let read = tokio::time::timeout(READ_TIMEOUT, self.0.read_buf(&mut bytes)).await;
            assert!(
                read.unwrap().unwrap() > 0,
                "closed early: {}",
                String::from_utf8_lossy(&bytes)
            );
        }
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

fn router(spool: &TempDir, held: Arc<Held>) -> Router {
    let impatient = BodyRules {
        limits: BodyLimits {
            idle: Duration::from_millis(200),
            ..BodyLimits::default()
        },
        any_type: true,
    };
    let router = Router::new()
        .route("/things", post(create))
        .route("/impatient", post(create).layer(Extension(impatient)))
        .route(
            "/things/{id}",
            get(|| async { "thing" }).delete(|| async { "gone" }),
        )
        .route(
            "/peer",
            get(|Extension(PeerAddr(ip)): Extension<PeerAddr>| async move { ip.to_string() }),
        )
        .route("/unread", post(|| async { "not interested" }))
        .route("/large", get(|| async { "large ".repeat(1000) }))
        .route(
            "/panic",
            get(|| async { assert!(std::hint::black_box(false), "a handler's mistake") }),
        )
        .route(
            "/slow",
            get(|| async {
                tokio::time::sleep(Duration::from_millis(400)).await;
                "slow but done"
            }),
        )
        .route(
            "/held",
            get(move || async move {
                held.arrived.notify_one();
                held.go.notified().await;
                "held but done"
            }),
        )
        .route("/upload", post(upload))
        .with_state(SpoolRoom::new(spool.path().to_owned(), 4));
    finish_router::<PlatformError, ()>(router)
}

async fn create(Body(new): Body<New, PlatformError>) -> String {
    format!("{} {}", new.name, new.count)
}

async fn upload(
    State(room): State<SpoolRoom>,
    request: Request<RawBody>,
) -> Result<String, PlatformError> {
    let spool = room.receive(request, BodyLimits::at_most(16 << 20)).await?;
    Ok(format!(
        "{} bytes, on disk: {}",
        spool.length(),
        spool.is_on_disk()
    ))
}
