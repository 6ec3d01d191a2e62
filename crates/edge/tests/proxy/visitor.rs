//! A visitor that writes its requests as they are, and notices when a response is cut.

use crate::stage::HOST;
use std::fmt::Write;
use std::io;
use std::net::SocketAddr;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

/// What came back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Page {
    pub(crate) status: u16,
    /// Names in lower case, as often as they came.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Page {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|it| it.0 == name);
        found.map(|it| &*it.1)
    }

    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }
}

/// One connection to the edge.
pub(crate) struct Visitor {
    pub(crate) stream: TcpStream,
    host: String,
    read: Vec<u8>,
}

impl Visitor {
    pub(crate) async fn connect(address: SocketAddr, host: &str) -> Self {
        Self::over(TcpStream::connect(address).await.unwrap(), host)
    }

    /// The same from another address of this machine.
    pub(crate) async fn connect_from(from: [u8; 4], address: SocketAddr, host: &str) -> Self {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind((from, 0).into()).unwrap();
        Self::over(socket.connect(address).await.unwrap(), host)
    }

    fn over(stream: TcpStream, host: &str) -> Self {
        stream.set_nodelay(true).unwrap();
        Self {
            stream,
            host: host.to_owned(),
            read: Vec::new(),
        }
    }

    pub(crate) async fn get(&mut self, path: &str) -> Page {
        self.request("GET", path, &[], b"").await.unwrap()
    }

    /// Sends a request and reads its response; an error when that is not complete.
    pub(crate) async fn request(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> io::Result<Page> {
        self.send(method, path, headers, body).await;
        self.response(method).await
    }

    /// Sends a request; with a length when it has a body.
    pub(crate) async fn send(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) {
        let line = |(name, value): &(&str, &str)| format!("{name}: {value}\r\n");
        let mut lines: String = headers.iter().map(line).collect();
        if !body.is_empty() {
            write!(lines, "Content-Length: {}\r\n", body.len()).unwrap();
        }
        let host = &self.host;
        let head = format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\n{lines}\r\n");
        self.send_raw(&[head.as_bytes(), body].concat()).await;
    }

    pub(crate) async fn send_raw(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).await.unwrap();
    }

    /// Reads one response.
    pub(crate) async fn response(&mut self, method: &str) -> io::Result<Page> {
        let (status, headers) = self.head().await?;
        let mut page = Page {
            status,
            headers,
            body: Vec::new(),
        };
        if method == "HEAD" || matches!(status, 101 | 204 | 304) {
            return Ok(page);
        }
        if page.header("transfer-encoding") == Some("chunked") {
            while let Some(chunk) = self.chunk().await? {
                page.body.extend(chunk);
            }
        } else if let Some(length) = page.header("content-length") {
            page.body = self.exactly(length.parse().unwrap()).await?;
        } else {
            while self.more().await.is_ok() {}
            page.body = std::mem::take(&mut self.read);
        }
        Ok(page)
    }

    /// Reads the head of a response.
    pub(crate) async fn head(&mut self) -> io::Result<(u16, Vec<(String, String)>)> {
        let head = loop {
            if let Some(end) = memchr::memmem::find(&self.read, b"\r\n\r\n") {
                break self.read.drain(..end + 4).collect::<Vec<u8>>();
            }
            self.more().await?;
        };
        let head = String::from_utf8(head).unwrap();
        let mut lines = head.split("\r\n");
        let status = lines.next().and_then(|line| line.split(' ').nth(1));
        let lines = lines.filter_map(|line| line.split_once(": "));
        let headers = lines.map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()));
        Ok((status.unwrap().parse().unwrap(), headers.collect()))
    }

    /// Reads one chunk; none for the last one.
    pub(crate) async fn chunk(&mut self) -> io::Result<Option<Vec<u8>>> {
        let end = loop {
            if let Some(end) = memchr::memmem::find(&self.read, b"\r\n") {
                break end;
            }
            self.more().await?;
        };
        let line: Vec<u8> = self.read.drain(..end + 2).collect();
        let size = std::str::from_utf8(&line[..end]).unwrap();
        let size = usize::from_str_radix(size, 16).unwrap();
        let mut chunk = self.exactly(size + 2).await?;
        assert_eq!(chunk.split_off(size), b"\r\n");
        Ok((size > 0).then_some(chunk))
    }

    pub(crate) async fn exactly(&mut self, length: usize) -> io::Result<Vec<u8>> {
        while self.read.len() < length {
            self.more().await?;
        }
        Ok(self.read.drain(..length).collect())
    }

    async fn more(&mut self) -> io::Result<()> {
        match self.stream.read_buf(&mut self.read).await? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(()),
        }
    }

    /// Whether the edge has closed the connection and sent nothing else.
    pub(crate) async fn is_closed(&mut self) -> bool {
        self.read.is_empty() && self.more().await.is_err()
    }
}

/// A visitor that speaks HTTP/2.
pub(crate) struct Modern {
    client: reqwest::Client,
    address: SocketAddr,
}

impl Modern {
    pub(crate) fn new(address: SocketAddr) -> Self {
        let client = reqwest::Client::builder().no_proxy();
        let client = client.http2_prior_knowledge().resolve(HOST, address);
        Self {
            client: client.build().unwrap(),
            address,
        }
    }

    pub(crate) fn request(&self, method: reqwest::Method, path: &str) -> reqwest::RequestBuilder {
        let url = format!("http://{HOST}:{}{path}", self.address.port());
        self.client.request(method, url)
    }
}
