//! A relay between the client and the server that writes down the requests.

use anyhow::Context;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

/// Longest head of a request.
const MAX_HEADERS: usize = 32;

/// The relay; its threads end with the process.
pub(super) struct Relay {
    pub(super) address: SocketAddr,
    requests: Arc<Mutex<Vec<String>>>,
}

impl Relay {
    /// Starts one in front of a server.
    pub(super) fn start(server: SocketAddr) -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let requests = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&requests);
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let seen = Arc::clone(&seen);
                // A connection that breaks is seen by the client, which then fails.
                thread::spawn(move || pass_on(client, server, &seen));
            }
        });
        Ok(Self { address, requests })
    }

    /// The requests so far, as `METHOD PATH`.
    pub(super) fn requests(&self) -> Vec<String> {
        let requests = self.requests.lock();
        requests.unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn pass_on(
    mut client: TcpStream,
    server: SocketAddr,
    seen: &Mutex<Vec<String>>,
) -> anyhow::Result<()> {
    let mut server = TcpStream::connect(server)?;
    let (mut back, mut from) = (client.try_clone()?, server.try_clone()?);
    thread::spawn(move || {
        // Either end may close; the client then fails by itself.
        let _ = std::io::copy(&mut from, &mut back);
        let _ = back.shutdown(Shutdown::Write);
    });
    let mut requests = Requests::default();
    let mut chunk = [0; 16 * 1024];
    loop {
        let length = client.read(&mut chunk)?;
        if length == 0 {
            return Ok(server.shutdown(Shutdown::Write)?);
        }
        let piece = &chunk[..length];
        // Written down before the server can answer: what was answered was counted.
        let found = requests.push(piece)?;
        let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.extend(found);
        drop(seen);
        server.write_all(piece)?;
    }
}

/// Finds the heads of requests in what a connection carries.
#[derive(Default)]
struct Requests {
    head: Vec<u8>,
    /// Bytes of the current body that are still to come.
    body: usize,
}

impl Requests {
    fn push(&mut self, mut piece: &[u8]) -> anyhow::Result<Vec<String>> {
        let mut found = Vec::new();
        while !piece.is_empty() {
            let of_body = self.body.min(piece.len());
            self.body -= of_body;
            piece = &piece[of_body..];
            if piece.is_empty() {
                break;
            }
            let before = self.head.len();
            self.head.extend_from_slice(piece);
            let Some((request, head, body)) = parse(&self.head)? else {
                break;
            };
            found.push(request);
            piece = &piece[head - before..];
            self.body = body;
            self.head.clear();
        }
        Ok(found)
    }
}

/// A whole head at the start of some bytes: what is asked for, and how long its head and its body are.
fn parse(bytes: &[u8]) -> anyhow::Result<Option<(String, usize, usize)>> {
    let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let mut request = httparse::Request::new(&mut headers);
    let httparse::Status::Complete(head) = request.parse(bytes)? else {
        return Ok(None);
    };
    let (method, path) = (request.method.unwrap_or(""), request.path.unwrap_or(""));
    let is_named = |name: &str| {
        let mut headers = request.headers.iter();
        headers.find(|header| header.name.eq_ignore_ascii_case(name))
    };
    anyhow::ensure!(
        is_named("transfer-encoding").is_none(),
        "{method} {path} has a body of unknown length"
    );
    let body = match is_named("content-length") {
        Some(length) => std::str::from_utf8(length.value)?
            .parse()
            .context("a length that is no number")?,
        None => 0,
    };
    Ok(Some((format!("{method} {path}"), head, body)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_found_however_they_are_split() {
        let text =
            b"POST /a HTTP/1.1\r\nContent-Length: 4\r\n\r\nGET GET /b HTTP/1.1\r\nhost: x\r\n\r\n";
        for size in 1..=text.len() {
            let mut requests = Requests::default();
            let pieces = text.chunks(size).map(|piece| requests.push(piece).unwrap());
            let found: Vec<String> = pieces.flatten().collect();
            assert_eq!(found, ["POST /a", "GET /b"], "{size}");
        }
        let unknown = b"PUT /a HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n";
        assert!(Requests::default().push(unknown).is_err());
    }
}
