//! One request at a time, for setting up and for checking responses.

use anyhow::{Context, ensure};
use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

const TIMEOUT: Duration = Duration::from_secs(30);

/// A response.
pub(crate) struct Response {
    pub(crate) status: u16,
    head: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Response {
    /// The value of a header.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers(name).next()
    }

    /// Every value of a header.
    pub(crate) fn headers(&self, name: &str) -> impl Iterator<Item = &str> {
        let found = self.head.iter().filter(move |(own, _)| own == name);
        found.map(|(_, value)| value.as_str())
    }

    /// The body as JSON.
    pub(crate) fn json(&self) -> anyhow::Result<serde_json::Value> {
        serde_json::from_slice(&self.body).context("the response is not JSON")
    }
}

/// The text of a request, ready to be sent.
pub(crate) fn request(method: &str, path: &str, token: Option<&str>, body: Option<&str>) -> String {
    let mut text = format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\n");
    if let Some(token) = token {
        // Writing to a string cannot fail.
        let _ = write!(text, "authorization: Bearer {token}\r\n");
    }
    if let Some(body) = body {
        let length = body.len();
        let _ = write!(
            text,
            "content-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
        );
    } else {
        text.push_str("\r\n");
    }
    text
}

/// `GET path`.
pub(crate) fn get(
    address: SocketAddr,
    path: &str,
    token: Option<&str>,
) -> anyhow::Result<Response> {
    send(address, &request("GET", path, token, None))
}

/// `POST path` with JSON.
pub(crate) fn post(
    address: SocketAddr,
    path: &str,
    token: &str,
    body: &serde_json::Value,
) -> anyhow::Result<Response> {
    send(
        address,
        &request("POST", path, Some(token), Some(&body.to_string())),
    )
}

/// `PUT path` with bytes that are text, ready to be sent.
pub(crate) fn upload(path: &str, token: &str, content: &str) -> String {
    let length = content.len();
    format!(
        "PUT {path} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {token}\r\n\
         content-type: application/octet-stream\r\ncontent-length: {length}\r\n\r\n{content}"
    )
}

/// Sends a request on a connection of its own.
pub(crate) fn send(address: SocketAddr, request: &str) -> anyhow::Result<Response> {
    Connection::open(address)?.exchange(request)
}

/// A connection with one request at a time.
pub(crate) struct Connection(TcpStream);

impl Connection {
    /// Connects.
    pub(crate) fn open(address: SocketAddr) -> anyhow::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.set_nodelay(true)?;
        Ok(Self(stream))
    }

    /// Sends a request and reads its response.
    pub(crate) fn exchange(&mut self, request: &str) -> anyhow::Result<Response> {
        self.write(request)?;
        self.read()
    }

    /// Sends a request.
    pub(crate) fn write(&mut self, request: &str) -> anyhow::Result<()> {
        Ok(self.0.write_all(request.as_bytes())?)
    }

    /// Reads a response.
    pub(crate) fn read(&mut self) -> anyhow::Result<Response> {
        let mut received = Vec::new();
        let mut chunk = [0; 16 * 1024];
        loop {
            if let Some(found) = parse(&received)? {
                let body = received.split_off(found.head);
                ensure!(body.len() == found.body, "more bytes than announced");
                return Ok(Response {
                    status: found.status,
                    head: headers(&received)?,
                    body,
                });
            }
            let read = self.0.read(&mut chunk)?;
            ensure!(read > 0, "the connection ended within a response");
            received.extend_from_slice(&chunk[..read]);
        }
    }
}

/// A whole response within some bytes: its status, and how long its head and body are.
pub(crate) struct Found {
    pub(crate) status: u16,
    pub(crate) head: usize,
    pub(crate) body: usize,
}

/// The response at the start of `bytes`, once it is whole.
pub(crate) fn parse(bytes: &[u8]) -> anyhow::Result<Option<Found>> {
    let mut headers = [httparse::EMPTY_HEADER; 32];
    let mut response = httparse::Response::new(&mut headers);
    let httparse::Status::Complete(head) = response.parse(bytes)? else {
        return Ok(None);
    };
    let length = response
        .headers
        .iter()
        .find(|header| header.name.eq_ignore_ascii_case("content-length"))
        .context("the response has no content-length")?;
    let body = std::str::from_utf8(length.value)?.parse()?;
    let status = response.code.context("the response has no status")?;
    let whole = bytes.len() >= head + body;
    Ok(whole.then_some(Found { status, head, body }))
}

fn headers(bytes: &[u8]) -> anyhow::Result<Vec<(String, String)>> {
    let mut headers = [httparse::EMPTY_HEADER; 32];
    let mut response = httparse::Response::new(&mut headers);
    response.parse(bytes)?;
    let pair = |header: &httparse::Header<'_>| {
        let value = String::from_utf8_lossy(header.value).into_owned();
        (header.name.to_ascii_lowercase(), value)
    };
    Ok(response.headers.iter().map(pair).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_response_is_found_when_all_of_it_is_there() {
        let text = b"HTTP/1.1 201 Created\r\nContent-Length: 2\r\n\r\n{}";
        let found = parse(text).unwrap().unwrap();
        assert_eq!((found.status, found.body), (201, 2));
        assert_eq!(&text[found.head..], b"{}");
        for end in 0..text.len() {
            assert!(parse(&text[..end]).unwrap().is_none(), "{end}");
        }
        assert!(parse(b"HTTP/1.1 200 OK\r\n\r\n").is_err());
    }
}
