//! Forwards connections to the real server, notes the requests that pass, and cuts or delays them on demand.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// Longer than any head of a request.
const HEAD_BYTES: usize = 2048;

#[derive(Debug)]
pub(crate) struct Forwarder {
    port: u16,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    server: String,
    is_cut: AtomicBool,
    is_stalled: AtomicBool,
    has_ended: AtomicBool,
    delay_millis: AtomicU64,
    /// How many bytes may still pass, in both directions together, before everything is cut.
    allowance: AtomicU64,
    connections: Mutex<Vec<TcpStream>>,
    /// Methods and targets.
    requests: Mutex<Vec<String>>,
    /// Requests whose target contains this are not forwarded; their connections end.
    refused: Mutex<Option<String>>,
}

impl Forwarder {
    pub(crate) fn start(server: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let shared = Arc::new(Shared {
            server: server.to_owned(),
            is_cut: AtomicBool::new(false),
            is_stalled: AtomicBool::new(false),
            has_ended: AtomicBool::new(false),
            delay_millis: AtomicU64::new(0),
            allowance: AtomicU64::new(u64::MAX),
            connections: Mutex::default(),
            requests: Mutex::default(),
            refused: Mutex::default(),
        });
        let accepting = Arc::clone(&shared);
        thread::spawn(move || accepting.accept(&listener));
        Self { port, shared }
    }

    pub(crate) fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Ends all connections, and new ones at once.
    pub(crate) fn cut(&self) {
        self.shared.is_cut.store(true, Ordering::SeqCst);
        self.shared.end_connections();
    }

    /// Cuts as soon as this many more bytes have passed.
    pub(crate) fn cut_after(&self, bytes: u64) {
        self.shared.allowance.store(bytes, Ordering::SeqCst);
    }

    /// Ends every connection that asks for a target with this in it.
    pub(crate) fn refuse(&self, part_of_target: &str) {
        *self.shared.refused.lock().unwrap() = Some(part_of_target.to_owned());
    }

    /// Takes everything and forwards nothing.
    pub(crate) fn stall(&self) {
        self.shared.is_stalled.store(true, Ordering::SeqCst);
    }

    pub(crate) fn restore(&self) {
        self.shared.allowance.store(u64::MAX, Ordering::SeqCst);
        self.shared.is_cut.store(false, Ordering::SeqCst);
        if self.shared.is_stalled.swap(false, Ordering::SeqCst) {
            self.shared.end_connections();
        }
    }

    /// Holds each piece of a request back for this long.
    pub(crate) fn delay(&self, delay: Duration) {
        let millis = u64::try_from(delay.as_millis()).unwrap();
        self.shared.delay_millis.store(millis, Ordering::SeqCst);
    }

    /// The requests so far, as `PUT /bucket/key?query`.
    pub(crate) fn requests(&self) -> Vec<String> {
        self.shared.requests.lock().unwrap().clone()
    }

    pub(crate) fn forget(&self) {
        self.shared.requests.lock().unwrap().clear();
    }

    /// How many requests of a method there were for objects, records left aside.
    pub(crate) fn count(&self, method: &str) -> usize {
        let is_counted = |request: &&String| {
            request.starts_with(&format!("{method} "))
                && ["/packs/", "/files/"].iter().any(|it| request.contains(it))
        };
        self.requests().iter().filter(is_counted).count()
    }
}

impl Drop for Forwarder {
    fn drop(&mut self) {
        self.shared.has_ended.store(true, Ordering::SeqCst);
        self.cut();
        // Wakes the thread that accepts.
        let _ = TcpStream::connect(("127.0.0.1", self.port));
    }
}

impl Shared {
    fn accept(self: &Arc<Self>, listener: &TcpListener) {
        for client in listener.incoming() {
            if self.has_ended.load(Ordering::SeqCst) {
                return;
            }
            let Ok(client) = client else { continue };
            if self.is_cut.load(Ordering::SeqCst) {
                continue;
            }
            let Ok(server) = TcpStream::connect(&self.server) else {
                continue;
            };
            for connection in [&client, &server] {
                connection.set_nodelay(true).unwrap();
                let mut connections = self.connections.lock().unwrap();
                connections.push(connection.try_clone().unwrap());
            }
            let ends = [
                (
                    client.try_clone().unwrap(),
                    server.try_clone().unwrap(),
                    true,
                ),
                (server, client, false),
            ];
            for (from, to, is_request) in ends {
                let shared = Arc::clone(self);
                thread::spawn(move || shared.forward(from, to, is_request));
            }
        }
    }

    fn forward(&self, mut from: TcpStream, mut to: TcpStream, is_request: bool) {
        let mut buffer = vec![0; 64 << 10];
        let mut scanner = Scanner::default();
        loop {
            let count = match from.read(&mut buffer) {
                Ok(0) => break,
                Ok(count) => count,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(_) => break,
            };
            if self.is_stalled.load(Ordering::SeqCst) {
                continue;
            }
            if is_request {
                let found = scanner.scan(&buffer[..count]);
                if found.iter().any(|request| self.is_refused(request)) {
                    break;
                }
                self.requests.lock().unwrap().extend(found);
                let millis = self.delay_millis.load(Ordering::SeqCst);
                thread::sleep(Duration::from_millis(millis));
            }
            if !self.may_pass(count as u64) || to.write_all(&buffer[..count]).is_err() {
                break;
            }
        }
        let _ = from.shutdown(Shutdown::Both);
        let _ = to.shutdown(Shutdown::Both);
    }

    fn is_refused(&self, request: &str) -> bool {
        let refused = self.refused.lock().unwrap();
        refused.as_ref().is_some_and(|it| request.contains(it))
    }

    fn may_pass(&self, count: u64) -> bool {
        let left = self.allowance.load(Ordering::SeqCst);
        if left == u64::MAX {
            return true;
        }
        if left < count {
            self.is_cut.store(true, Ordering::SeqCst);
            self.end_connections();
            return false;
        }
        self.allowance.store(left - count, Ordering::SeqCst);
        true
    }

    fn end_connections(&self) {
        for connection in self.connections.lock().unwrap().drain(..) {
            let _ = connection.shutdown(Shutdown::Both);
        }
    }
}

/// Finds the first lines of requests in a stream, wherever it is cut into pieces.
#[derive(Default)]
struct Scanner {
    tail: Vec<u8>,
}

impl Scanner {
    fn scan(&mut self, piece: &[u8]) -> Vec<String> {
        const END: &[u8] = b" HTTP/1.1\r\n";
        let mut found = Vec::new();
        self.tail.extend_from_slice(piece);
        let mut begin = 0;
        for at in memchr::memmem::find_iter(&self.tail, END) {
            let line = &self.tail[begin.max(at.saturating_sub(HEAD_BYTES))..at];
            let start = ["PUT /", "GET /", "POST /", "HEAD /", "DELETE /"]
                .iter()
                .filter_map(|method| memchr::memmem::rfind(line, method.as_bytes()))
                .max();
            if let Some(start) = start {
                found.push(String::from_utf8_lossy(&line[start..]).into_owned());
            }
            begin = at + END.len();
        }
        let keep = begin.max(self.tail.len().saturating_sub(HEAD_BYTES));
        self.tail.drain(..keep);
        found
    }
}
