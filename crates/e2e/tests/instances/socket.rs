//! A client of the shell's WebSocket.

use estrade_testkit::{Api, TestApp};
use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::{Error, Message};
use tokio_tungstenite::{WebSocketStream, client_async};

/// How long a test waits for anything.
const TIMEOUT: Duration = Duration::from_secs(20);

/// A WebSocket that is open.
pub(crate) struct Socket(pub(crate) WebSocketStream<TcpStream>);

/// How a WebSocket ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Closed {
    pub(crate) code: u16,
    pub(crate) reason: String,
}

impl Socket {
    /// Connects; an error is the status of the refusal.
    pub(crate) async fn open(
        app: &TestApp,
        query: &str,
        headers: &[(&'static str, &str)],
    ) -> Result<Self, u16> {
        let address = app.address(Api::Platform);
        let url = format!("ws://{address}/v1/exec?{query}");
        let mut request = url.into_client_request().unwrap();
        for (name, value) in headers {
            request.headers_mut().insert(*name, value.parse().unwrap());
        }
        let stream = TcpStream::connect(address).await.unwrap();
        match timeout(TIMEOUT, client_async(request, stream))
            .await
            .unwrap()
        {
            Ok((socket, response)) => {
                assert_eq!(response.status(), 101);
                // Never the one with the token.
                let agreed = response.headers().get("sec-websocket-protocol");
                assert!(agreed.is_none_or(|it| it == "estrade" || it == "estrade.streams"));
                assert!(response.headers().contains_key("x-request-id"));
                Ok(Self(socket))
            }
            Err(Error::Http(response)) => Err(response.status().as_u16()),
            Err(error) => panic!("{error}"),
        }
    }

    pub(crate) async fn send(&mut self, frame: Value) {
        self.0.send(Message::text(frame.to_string())).await.unwrap();
    }

    pub(crate) async fn send_bytes(&mut self, bytes: &[u8]) {
        let message = Message::binary(bytes.to_vec());
        self.0.send(message).await.unwrap();
    }

    pub(crate) async fn start(&mut self, columns: u16, rows: u16) {
        let start = json!({"action": "start", "cols": columns, "rows": rows});
        self.send(start).await;
    }

    pub(crate) async fn type_in(&mut self, text: &str) {
        self.send(json!({"type": "input", "data": text})).await;
    }

    async fn next(&mut self) -> Option<Result<Message, Error>> {
        timeout(TIMEOUT, self.0.next())
            .await
            .expect("a frame in time")
    }

    /// Everything that is shown until this text is.
    pub(crate) async fn read_until(&mut self, expected: &str) -> String {
        let mut shown = Vec::new();
        loop {
            match self.next().await {
                Some(Ok(Message::Binary(bytes))) => shown.extend_from_slice(&bytes),
                Some(Ok(Message::Ping(_))) => {}
                other => panic!("{other:?} after {:?}", String::from_utf8_lossy(&shown)),
            }
            let text = String::from_utf8_lossy(&shown);
            if text.contains(expected) {
                return text.into_owned();
            }
        }
    }

    /// Everything that is still shown, and how it ends.
    pub(crate) async fn read_to_end(mut self) -> (String, Closed) {
        let mut shown = Vec::new();
        loop {
            match self.next().await {
                Some(Ok(Message::Binary(bytes))) => shown.extend_from_slice(&bytes),
                Some(Ok(Message::Ping(_))) => {}
                Some(Ok(Message::Close(Some(frame)))) => {
                    let closed = Closed {
                        code: frame.code.into(),
                        reason: frame.reason.as_str().to_owned(),
                    };
                    return (String::from_utf8_lossy(&shown).into_owned(), closed);
                }
                other => panic!("{other:?} after {:?}", String::from_utf8_lossy(&shown)),
            }
        }
    }

    /// How it ends.
    pub(crate) async fn closed(self) -> Closed {
        self.read_to_end().await.1
    }
}
