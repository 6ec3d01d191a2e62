//! A server on loopback that answers by a script: for what a good server does not do.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// A request as it came.
#[derive(Debug, Clone)]
pub(super) struct Request {
    pub(super) line: String,
    pub(super) head: String,
    pub(super) body: String,
}

impl Request {
    /// The value of a header, empty without.
    pub(super) fn header(&self, name: &str) -> String {
        let found = self.head.lines().find_map(|line| {
            let (key, value) = line.split_once(':')?;
            key.eq_ignore_ascii_case(name)
                .then(|| value.trim().to_owned())
        });
        found.unwrap_or_default()
    }
}

/// What is answered.
pub(super) enum Reply {
    Json(u16, String),
    /// A body in pieces, a moment apart, until the connection is closed.
    Pieces(Vec<Vec<u8>>),
    /// The connection is closed in the middle of the body.
    CutOff,
    /// The connection is closed without an answer.
    HangUp,
    /// Nothing, for longer than any test takes.
    Silence,
}

impl Reply {
    pub(super) fn status(status: u16) -> Self {
        Self::Json(status, String::new())
    }

    pub(super) fn json(status: u16, body: &str) -> Self {
        Self::Json(status, body.to_owned())
    }
}

/// The server; its threads end with the test's process.
pub(super) struct ScriptedServer {
    address: SocketAddr,
    requests: Arc<Mutex<Vec<Request>>>,
}

impl ScriptedServer {
    pub(super) fn start(script: impl Fn(&Request) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let requests = Arc::new(Mutex::new(Vec::new()));
        let (script, seen) = (Arc::new(script), Arc::clone(&requests));
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (script, seen) = (Arc::clone(&script), Arc::clone(&seen));
                std::thread::spawn(move || serve(stream, script.as_ref(), &seen));
            }
        });
        Self { address, requests }
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(super) fn requests(&self) -> Vec<Request> {
        self.requests.lock().unwrap().clone()
    }
}

fn serve(stream: TcpStream, script: &dyn Fn(&Request) -> Reply, seen: &Mutex<Vec<Request>>) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut head = String::new();
    loop {
        match reader.read_line(&mut head) {
            Ok(0) | Err(_) => return,
            Ok(_) if head.ends_with("\r\n\r\n") => break,
            Ok(_) => {}
        }
    }
    let mut request = Request {
        line: head.lines().next().unwrap_or_default().to_owned(),
        head,
        body: String::new(),
    };
    let length: u64 = request.header("content-length").parse().unwrap_or_default();
    let mut body = Vec::new();
    reader.take(length).read_to_end(&mut body).unwrap();
    request.body = String::from_utf8_lossy(&body).into_owned();
    seen.lock().unwrap().push(request.clone());
    let mut stream = stream;
    match script(&request) {
        Reply::HangUp => {}
        Reply::CutOff => {
            let text = "HTTP/1.1 200 Scripted\r\ncontent-length: 1000\r\n\r\n{\"projects\":";
            let _ = stream.write_all(text.as_bytes());
        }
        Reply::Pieces(pieces) => {
            let head = b"HTTP/1.1 200 Scripted\r\nconnection: close\r\n\r\n".to_vec();
            for piece in std::iter::once(head).chain(pieces) {
                let _ = stream.write_all(&piece);
                std::thread::sleep(std::time::Duration::from_millis(100));
            }
        }
        Reply::Silence => std::thread::sleep(std::time::Duration::from_hours(1)),
        Reply::Json(status, body) => {
            let length = body.len();
            let head = format!(
                "HTTP/1.1 {status} Scripted\r\ncontent-type: application/json\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n"
            );
            let _ = stream.write_all(format!("{head}{body}").as_bytes());
        }
    }
}
