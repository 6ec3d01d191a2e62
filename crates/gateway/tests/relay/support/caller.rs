//! Someone who calls.

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use std::net::SocketAddr;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::task::JoinSet;

/// A caller; every call has its own connection.
pub(crate) struct Caller {
    address: SocketAddr,
    key: String,
}

/// A response with its whole body.
#[derive(Debug)]
pub(crate) struct WholeResponse {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl WholeResponse {
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers
            .get(name)
            .map_or("", |value| value.to_str().unwrap())
    }

    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }
}

/// A response that is still coming. Dropping it closes the connection.
pub(crate) struct Coming {
    pub(crate) response: Response<Incoming>,
    _connection: JoinSet<()>,
}

impl Coming {
    /// The next part; none at the end.
    pub(crate) async fn next(&mut self) -> Option<Result<String, hyper::Error>> {
        let frame = self.response.body_mut().frame().await?;
        Some(frame.map(|frame| String::from_utf8(frame.into_data().unwrap().to_vec()).unwrap()))
    }

    /// Everything that is left, and whether it ended well.
    pub(crate) async fn rest(&mut self) -> (String, bool) {
        let mut all = String::new();
        while let Some(part) = self.next().await {
            match part {
                Ok(part) => all.push_str(&part),
                Err(_) => return (all, false),
            }
        }
        (all, true)
    }
}

impl Caller {
    pub(crate) fn new(address: SocketAddr, key: &str) -> Self {
        Self {
            address,
            key: key.to_owned(),
        }
    }

    /// A connection that is reset when it is dropped: who closes it otherwise may still read.
    async fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).await.unwrap();
        stream.set_zero_linger().unwrap();
        stream
    }

    /// Calls, and waits for the head of the response.
    pub(crate) async fn begin(&self, request: Request<Full<Bytes>>) -> Coming {
        let stream = self.connect().await;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .unwrap();
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let _ = connection.await;
        });
        let response = sender.send_request(request).await.unwrap();
        Coming {
            response,
            _connection: tasks,
        }
    }

    pub(crate) fn request(&self, method: Method, path: &str, body: &str) -> Request<Full<Bytes>> {
        let mut request = Request::new(Full::new(Bytes::copy_from_slice(body.as_bytes())));
        *request.method_mut() = method;
        *request.uri_mut() = path.parse().unwrap();
        let headers = request.headers_mut();
        headers.insert("host", "gateway".parse().unwrap());
        if !self.key.is_empty() {
            headers.insert(
                "authorization",
                format!("Bearer {}", self.key).parse().unwrap(),
            );
        }
        headers.insert("cookie", "session=1".parse().unwrap());
        request
    }

    pub(crate) async fn call(&self, request: Request<Full<Bytes>>) -> WholeResponse {
        let coming = self.begin(request).await;
        let Coming {
            response,
            _connection: connection,
        } = coming;
        let (parts, body) = response.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        drop(connection);
        WholeResponse {
            status: parts.status,
            headers: parts.headers,
            body,
        }
    }

    pub(crate) async fn post(&self, path: &str, body: &str) -> WholeResponse {
        self.call(self.request(Method::POST, path, body)).await
    }

    pub(crate) async fn chat(&self, body: &str) -> WholeResponse {
        self.post("/v1/chat/completions", body).await
    }

    pub(crate) async fn stream(&self, body: &str) -> Coming {
        self.begin(self.request(Method::POST, "/v1/chat/completions", body))
            .await
    }

    /// A connection on which a request was sent, as it is.
    pub(crate) async fn raw(&self, text: &str) -> TcpStream {
        let mut stream = self.connect().await;
        stream.set_nodelay(true).unwrap();
        stream.write_all(text.as_bytes()).await.unwrap();
        stream
    }

    /// A chat request as it is on the wire.
    pub(crate) fn raw_chat(&self, body: &str) -> String {
        format!(
            "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\ncontent-length: {}\r\n\r\n{body}",
            self.key,
            body.len()
        )
    }
}
