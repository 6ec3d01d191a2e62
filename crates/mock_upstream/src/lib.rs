//! For tests only: an OpenAI-like upstream on a real socket that does what a script says, and counts
//! who asks it.

#![expect(clippy::unwrap_used, reason = "a failed step is a failed test")]
#![expect(
    clippy::missing_panics_doc,
    reason = "every function here panics when something is not as it should be"
)]

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::JoinSet;

/// One thing that it does.
#[derive(Clone, Debug)]
pub enum Act {
    /// Sends bytes.
    Send(Vec<u8>),
    /// Sends the same bytes so many times, for as long as the other end takes them.
    Flood(Vec<u8>, u64),
    /// Waits.
    Sleep(Duration),
    /// Waits until it is told to go on.
    Wait(Arc<Notify>),
    /// Closes the connection.
    Close,
    /// Waits for the other end to close.
    AwaitClose,
}

/// Sends a text.
pub fn send(text: impl Into<String>) -> Act {
    Act::Send(text.into().into_bytes())
}

/// An answer with a length.
pub fn json(status: u16, body: &str) -> Vec<Act> {
    let length = body.len();
    vec![send(format!(
        "HTTP/1.1 {status} Whatever\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\
         server: acme\r\nset-cookie: a=b\r\nopenai-organization: org-7\r\nx-ratelimit-limit-requests: 3\r\n\r\n{body}"
    ))]
}

/// The head of a stream.
pub fn stream_head() -> Act {
    send("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
}

/// A chunk.
pub fn chunk(text: &str) -> Act {
    send(format!("{:x}\r\n{text}\r\n", text.len()))
}

/// An event that says something, as a chunk.
pub fn event(content: &str) -> Act {
    chunk(&event_text(content))
}

/// The same as it is inside its chunk.
pub fn event_text(content: &str) -> String {
    format!("data: {{\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"{content}\"}}}}]}}\n\n")
}

/// The event that says what the stream has used.
pub fn usage_event(prompt: u64, completion: u64) -> Act {
    chunk(&format!(
        "data: {{\"choices\":[],\"usage\":{{\"prompt_tokens\":{prompt},\"completion_tokens\":{completion}}}}}\n\n"
    ))
}

/// The end of a stream.
pub fn done() -> Act {
    send("e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n")
}

/// What it was asked.
#[derive(Clone, Debug)]
pub struct Asked {
    /// Request line and headers.
    pub head: String,
    /// The body.
    pub body: String,
}

type Script = dyn Fn(usize, &Asked) -> Vec<Act> + Send + Sync;

#[derive(Default)]
struct Seen {
    asked: Mutex<Vec<Asked>>,
    connections: AtomicUsize,
    closed: AtomicUsize,
    changed: Notify,
}

/// A provider on a socket.
pub struct Scripted {
    /// Where it listens.
    pub address: SocketAddr,
    seen: Arc<Seen>,
    _tasks: JoinSet<()>,
}

impl Scripted {
    /// Answers each request with what the script says of its number.
    pub async fn new(script: impl Fn(usize) -> Vec<Act> + Send + Sync + 'static) -> Self {
        Self::by(move |number, _| script(number)).await
    }

    /// Answers each request with what the script says of its number and of what it asks.
    pub async fn by(script: impl Fn(usize, &Asked) -> Vec<Act> + Send + Sync + 'static) -> Self {
        let socket = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = socket.local_addr().unwrap();
        let seen = Arc::new(Seen::default());
        let (script, noted) = (Arc::new(script) as Arc<Script>, Arc::clone(&seen));
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = socket.accept().await {
                stream.set_nodelay(true).unwrap();
                noted.connections.fetch_add(1, Ordering::SeqCst);
                let (script, seen) = (Arc::clone(&script), Arc::clone(&noted));
                connections.spawn(async move {
                    act(stream, &*script, &seen).await;
                    seen.closed.fetch_add(1, Ordering::SeqCst);
                    seen.changed.notify_waiters();
                });
            }
        });
        Self {
            address,
            seen,
            _tasks: tasks,
        }
    }

    /// What it was asked so far.
    pub fn asked(&self) -> Vec<Asked> {
        self.seen.asked.lock().unwrap().clone()
    }

    /// How often it was asked.
    pub fn count(&self) -> usize {
        self.seen.asked.lock().unwrap().len()
    }

    /// How many connections were opened to it.
    pub fn connections(&self) -> usize {
        self.seen.connections.load(Ordering::SeqCst)
    }

    /// How many of them are still open.
    pub fn open(&self) -> usize {
        self.connections() - self.seen.closed.load(Ordering::SeqCst)
    }

    /// Waits until so many of its connections are open.
    pub async fn until_open(&self, count: usize) -> bool {
        let wait = async {
            while self.open() != count {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(30), wait)
            .await
            .is_ok()
    }
}

async fn act(mut stream: TcpStream, script: &Script, seen: &Seen) {
    let mut buffer = Vec::new();
    while let Some(asked) = read_request(&mut stream, &mut buffer).await {
        let number = {
            let mut all = seen.asked.lock().unwrap();
            all.push(asked.clone());
            all.len() - 1
        };
        for act in script(number, &asked) {
            match act {
                Act::Send(bytes) => {
                    if stream.write_all(&bytes).await.is_err() {
                        return;
                    }
                }
                Act::Flood(bytes, times) => {
                    for _ in 0..times {
                        if stream.write_all(&bytes).await.is_err() {
                            return;
                        }
                    }
                }
                Act::Sleep(span) => tokio::time::sleep(span).await,
                Act::Wait(until) => until.notified().await,
                Act::Close => return,
                Act::AwaitClose => {
                    let mut byte = [0];
                    let _ = stream.read(&mut byte).await;
                    return;
                }
            }
        }
    }
}

async fn read_request(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> Option<Asked> {
    loop {
        if let Some(end) = memchr::memmem::find(buffer, b"\r\n\r\n") {
            let head = String::from_utf8(buffer[..end].to_vec()).unwrap();
            let length: usize = head
                .lines()
                .find_map(|line| line.strip_prefix("content-length: "))
                .map_or(0, |length| length.parse().unwrap());
            if buffer.len() >= end + 4 + length {
                let rest = buffer.split_off(end + 4 + length);
                let body = String::from_utf8(buffer[end + 4..].to_vec()).unwrap();
                *buffer = rest;
                return Some(Asked { head, body });
            }
        }
        if stream.read_buf(buffer).await.ok()? == 0 {
            return None;
        }
    }
}
