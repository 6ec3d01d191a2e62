//! A client of the edge that writes its requests as they are, and keeps its connection.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// What came back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    pub status: u16,
    /// Names in lower case; lines of one name joined.
    pub headers: HashMap<String, String>,
    pub body: Vec<u8>,
}

impl Page {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(String::as_str)
    }

    /// The body as text.
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("text")
    }
}

/// One connection to a server.
pub struct EdgeClient {
    stream: TcpStream,
    host: String,
    read: Vec<u8>,
}

impl EdgeClient {
    /// Connects; every request is for this host.
    pub async fn connect(address: SocketAddr, host: &str) -> Self {
        let stream = TcpStream::connect(address).await.expect("a connection");
        stream.set_nodelay(true).expect("an option");
        Self {
            stream,
            host: host.to_owned(),
            read: Vec::new(),
        }
    }

    pub async fn get(&mut self, path: &str) -> Page {
        self.request("GET", path, &[]).await
    }

    /// `GET` with headers.
    pub async fn get_with(&mut self, path: &str, headers: &[(&str, &str)]) -> Page {
        self.request("GET", path, headers).await
    }

    /// Sends a request and reads its response.
    pub async fn request(&mut self, method: &str, path: &str, headers: &[(&str, &str)]) -> Page {
        self.try_ask(method, path, headers)
            .await
            .unwrap_or_else(|error| panic!("{method} {path} {headers:?}: {error}"))
    }

    /// The same, when the connection may break.
    pub async fn try_ask(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
    ) -> io::Result<Page> {
        let line = |(name, value): &(&str, &str)| format!("{name}: {value}\r\n");
        let lines: Vec<String> = headers.iter().map(line).collect();
        let lines = lines.concat();
        let host = &self.host;
        let request = format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\n{lines}\r\n");
        self.send(request.as_bytes()).await?;
        self.read_response(method).await
    }

    /// Sends bytes as they are.
    pub async fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes).await
    }

    /// Reads one response.
    pub async fn read_response(&mut self, method: &str) -> io::Result<Page> {
        let head = loop {
            if let Some(end) = self.read.windows(4).position(|four| four == b"\r\n\r\n") {
                break self.read.drain(..end + 4).collect::<Vec<u8>>();
            }
            self.more().await?;
        };
        let head = String::from_utf8(head).expect("a head in ASCII");
        let mut lines = head.split("\r\n");
        let status = lines.next().and_then(|line| line.split(' ').nth(1));
        let status: u16 = status.and_then(|text| text.parse().ok()).expect("a status");
        let mut headers: HashMap<String, String> = HashMap::new();
        for (name, value) in lines.filter_map(|line| line.split_once(": ")) {
            headers
                .entry(name.to_ascii_lowercase())
                .and_modify(|earlier| *earlier = format!("{earlier}, {value}"))
                .or_insert_with(|| value.to_owned());
        }
        let length = headers
            .get("content-length")
            .and_then(|text| text.parse().ok());
        let length = if method == "HEAD" || status == 304 {
            0
        } else {
            length.unwrap_or(0)
        };
        while self.read.len() < length {
            self.more().await?;
        }
        let body = self.read.drain(..length).collect();
        Ok(Page {
            status,
            headers,
            body,
        })
    }

    async fn more(&mut self) -> io::Result<()> {
        match self.stream.read_buf(&mut self.read).await? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(()),
        }
    }
}
