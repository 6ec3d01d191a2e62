//! A provider that does what a script says.

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
pub(crate) enum Act {
    /// Sends bytes.
    Send(Vec<u8>),
    /// Waits.
    Sleep(Duration),
    /// Waits until it is told to go on.
    Wait(Arc<Notify>),
    /// Closes the connection.
    Close,
    /// Waits for the other end to close.
    AwaitClose,
}

pub(crate) fn send(text: impl Into<String>) -> Act {
    Act::Send(text.into().into_bytes())
}

/// An answer with a length.
pub(crate) fn json(status: u16, body: &str) -> Vec<Act> {
    let length = body.len();
    vec![send(format!(
        "HTTP/1.1 {status} Whatever\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\
         server: acme\r\nset-cookie: a=b\r\nopenai-organization: org-7\r\nx-ratelimit-limit-requests: 3\r\n\r\n{body}"
    ))]
}

/// The head of a stream.
pub(crate) fn stream_head() -> Act {
    send("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
}

/// A chunk.
pub(crate) fn chunk(text: &str) -> Act {
    send(format!("{:x}\r\n{text}\r\n", text.len()))
}

/// An event that says something, as a chunk.
pub(crate) fn event(content: &str) -> Act {
    chunk(&event_text(content))
}

pub(crate) fn event_text(content: &str) -> String {
    format!("data: {{\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"{content}\"}}}}]}}\n\n")
}

pub(crate) fn usage_event(prompt: u64, completion: u64) -> Act {
    chunk(&format!(
        "data: {{\"choices\":[],\"usage\":{{\"prompt_tokens\":{prompt},\"completion_tokens\":{completion}}}}}\n\n"
    ))
}

/// The end of a stream.
pub(crate) fn done() -> Act {
    send("e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n")
}

/// What it was asked.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) head: String,
    pub(crate) body: String,
}

type Script = dyn Fn(usize) -> Vec<Act> + Send + Sync;

#[derive(Default)]
struct Seen {
    asked: Mutex<Vec<Asked>>,
    connections: AtomicUsize,
    closed: AtomicUsize,
    changed: Notify,
}

/// A provider on a socket.
pub(crate) struct Scripted {
    pub(crate) address: SocketAddr,
    seen: Arc<Seen>,
    _tasks: JoinSet<()>,
}

impl Scripted {
    /// Answers each request with what the script says of its number.
    pub(crate) async fn new(script: impl Fn(usize) -> Vec<Act> + Send + Sync + 'static) -> Self {
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

    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.seen.asked.lock().unwrap().clone()
    }

    pub(crate) fn connections(&self) -> usize {
        self.seen.connections.load(Ordering::SeqCst)
    }

    pub(crate) fn open(&self) -> usize {
        self.connections() - self.seen.closed.load(Ordering::SeqCst)
    }

    /// Waits until so many of its connections are open.
    pub(crate) async fn until_open(&self, count: usize) -> bool {
        let wait = async {
            while self.open() != count {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(2), wait)
            .await
            .is_ok()
    }
}

async fn act(mut stream: TcpStream, script: &Script, seen: &Seen) {
    let mut buffer = Vec::new();
    while let Some(asked) = read_request(&mut stream, &mut buffer).await {
        let number = {
            let mut all = seen.asked.lock().unwrap();
            all.push(asked);
            all.len() - 1
        };
        for act in script(number) {
            match act {
                Act::Send(bytes) => {
                    if stream.write_all(&bytes).await.is_err() {
                        return;
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
