//! Instances: an application that answers with what it was asked, and others that do as they like.

use bytes::Bytes;
use estrade_mock_upstream::{Action, MockUpstream, send};
use http::{Request, Response};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use std::convert::Infallible;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

pub(crate) type AppBody = BoxBody<Bytes, std::io::Error>;

/// An application that runs until this is dropped.
pub(crate) struct App {
    pub(crate) address: SocketAddr,
    pub(crate) connections: Arc<AtomicUsize>,
    _tasks: JoinSet<()>,
}

impl App {
    /// Answers requests with what `response` makes of them.
    pub(crate) async fn start<F, Fut>(response: F) -> Self
    where
        F: Fn(Request<Incoming>) -> Fut + Clone + Send + Sync + 'static,
        Fut: Future<Output = Response<AppBody>> + Send + 'static,
    {
        let socket = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = socket.local_addr().unwrap();
        let connections = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&connections);
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut open = JoinSet::new();
            while let Ok((stream, _)) = socket.accept().await {
                count.fetch_add(1, Ordering::SeqCst);
                stream.set_nodelay(true).unwrap();
                let response = response.clone();
                let service = service_fn(move |request| {
                    let response = response(request);
                    async move { Ok::<_, Infallible>(response.await) }
                });
                open.spawn(async move {
                    let http = hyper::server::conn::http1::Builder::new();
                    let connection = http.serve_connection(TokioIo::new(stream), service);
                    drop(connection.with_upgrades().await);
                });
            }
        });
        Self {
            address,
            connections,
            _tasks: tasks,
        }
    }

    /// Always says the same.
    pub(crate) async fn saying(text: &'static str) -> Self {
        Self::start(move |_| async move { Response::new(whole(text)) }).await
    }

    /// Answers with the body of the request.
    pub(crate) async fn echo() -> Self {
        Self::start(|request| async move {
            let body = request.into_body().map_err(std::io::Error::other);
            Response::new(body.boxed())
        })
        .await
    }

    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

pub(crate) fn whole(text: impl Into<Bytes>) -> AppBody {
    Full::new(text.into())
        .map_err(|never| match never {})
        .boxed()
}

/// A response with a length.
pub(crate) fn ok(text: &str) -> Action {
    let length = text.len();
    send(format!(
        "HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n{text}"
    ))
}

/// Answers every request in the same way.
pub(crate) async fn always(acts: Vec<Action>) -> MockUpstream {
    MockUpstream::new(move |_| acts.clone()).await
}

/// An address at which nobody is.
pub(crate) async fn nowhere() -> SocketAddr {
    let socket = TcpListener::bind("127.0.0.1:0").await.unwrap();
    socket.local_addr().unwrap()
}
