//! A WebSocket as far as tests need one: short texts, one at a time.

use estrade_testkit::TestApp;
use std::io;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

pub(crate) struct WebSocket(TcpStream);

impl WebSocket {
    /// Opens `/echo` of a project.
    pub(crate) async fn open(app: &TestApp, project: &str) -> Self {
        let mut stream = TcpStream::connect(app.edge()).await.unwrap();
        let request = format!(
            "GET /echo HTTP/1.1\r\nHost: {project}.localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await.unwrap());
        }
        let head = String::from_utf8(head).unwrap().to_ascii_lowercase();
        assert!(head.starts_with("http/1.1 101 "), "{head}");
        // The response to the key of the example in RFC 6455.
        assert!(head.contains("s3pplmbitxaq9kygzzhzrbk+xoo="), "{head}");
        Self(stream)
    }

    /// Sends a text and returns what comes back.
    pub(crate) async fn echo(&mut self, text: &str) -> io::Result<String> {
        let length = u8::try_from(text.len()).unwrap();
        assert!(length < 126);
        // A mask of zeros leaves the text as it is.
        let head = [0x81, 0x80 | length, 0, 0, 0, 0];
        self.0
            .write_all(&[&head[..], text.as_bytes()].concat())
            .await?;
        let (kind, length) = (self.0.read_u8().await?, self.0.read_u8().await?);
        assert_eq!(kind, 0x81);
        let mut response = vec![0; length.into()];
        self.0.read_exact(&mut response).await?;
        Ok(String::from_utf8(response).unwrap())
    }

    /// Closes it, as a browser does.
    pub(crate) async fn close(mut self) {
        self.0.write_all(&[0x88, 0x80, 0, 0, 0, 0]).await.unwrap();
    }
}
