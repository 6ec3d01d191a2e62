//! For tests only: an OpenAI-like upstream on a real socket that runs a script for each request, and records
//! requests and connections.

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

/// One step of a script.
#[derive(Clone, Debug)]
pub enum Action {
    Send(Vec<u8>),
    /// Sends the same bytes so many times, for as long as the other end takes them.
    Flood(Vec<u8>, u64),
    Sleep(Duration),
    /// Waits until it is told to go on.
    Wait(Arc<Notify>),
    Close,
    /// Waits for the other end to close.
    AwaitClose,
}
pub fn send(text: impl Into<String>) -> Action {
    Action::Send(text.into().into_bytes())
}

/// A response with a length.
pub fn json(status: u16, body: &str) -> Vec<Action> {
    let length = body.len();
    vec![send(format!(
        "HTTP/1.1 {status} Whatever\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\
         server: acme\r\nset-cookie: a=b\r\nopenai-organization: org-7\r\nx-ratelimit-limit-requests: 3\r\n\r\n{body}"
    ))]
}

/// The head of a stream.
pub fn stream_head() -> Action {
    send("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
}
pub fn chunk(text: &str) -> Action {
    send(format!("{:x}\r\n{text}\r\n", text.len()))
}

/// An event that says something, as a chunk.
pub fn event(content: &str) -> Action {
    chunk(&event_text(content))
}

/// The same as it is inside its chunk.
pub fn event_text(content: &str) -> String {
    format!("data: {{\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"{content}\"}}}}]}}\n\n")
}

/// The event that says what the stream has used.
pub fn usage_event(prompt: u64, completion: u64) -> Action {
    chunk(&format!(
        "data: {{\"choices\":[],\"usage\":{{\"prompt_tokens\":{prompt},\"completion_tokens\":{completion}}}}}\n\n"
    ))
}

/// The end of a stream.
pub fn done() -> Action {
    send("e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n")
}

/// A request that it received.
#[derive(Clone, Debug)]
pub struct ReceivedRequest {
    /// Request line and headers.
    pub head: String,
    pub body: String,
}

type Script = dyn Fn(usize, &ReceivedRequest) -> Vec<Action> + Send + Sync;

#[derive(Default)]
struct Observed {
    requests: Mutex<Vec<ReceivedRequest>>,
    connections: AtomicUsize,
    closed: AtomicUsize,
    changed: Notify,
}

/// A provider on a socket.
pub struct MockUpstream {
    pub address: SocketAddr,
    observed: Arc<Observed>,
    _tasks: JoinSet<()>,
}

impl MockUpstream {
    /// Answers each request with what the script says of its number.
    pub async fn new(script: impl Fn(usize) -> Vec<Action> + Send + Sync + 'static) -> Self {
        Self::with_script(move |number, _| script(number)).await
    }

    /// Answers each request with what the script says of its number and of what it asks.
    pub async fn with_script(
        script: impl Fn(usize, &ReceivedRequest) -> Vec<Action> + Send + Sync + 'static,
    ) -> Self {
        let socket = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = socket.local_addr().unwrap();
        let observed = Arc::new(Observed::default());
        let (script, recorder) = (Arc::new(script) as Arc<Script>, Arc::clone(&observed));
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = socket.accept().await {
                stream.set_nodelay(true).unwrap();
                recorder.connections.fetch_add(1, Ordering::SeqCst);
                let (script, observed) = (Arc::clone(&script), Arc::clone(&recorder));
                connections.spawn(async move {
                    run_script(stream, &*script, &observed).await;
                    observed.closed.fetch_add(1, Ordering::SeqCst);
                    observed.changed.notify_waiters();
                });
            }
        });
        Self {
            address,
            observed,
            _tasks: tasks,
        }
    }

    /// The requests that it received so far.
    pub fn requests(&self) -> Vec<ReceivedRequest> {
        self.observed.requests.lock().unwrap().clone()
    }

    /// How many requests it received.
    pub fn count(&self) -> usize {
        self.observed.requests.lock().unwrap().len()
    }

    /// How many connections were opened to it.
    pub fn connections(&self) -> usize {
        self.observed.connections.load(Ordering::SeqCst)
    }

    /// How many of them are still open.
    pub fn open(&self) -> usize {
        self.connections() - self.observed.closed.load(Ordering::SeqCst)
    }

    /// Waits until so many of its connections are open.
    pub async fn wait_for_open(&self, count: usize) -> bool {
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

async fn run_script(mut stream: TcpStream, script: &Script, observed: &Observed) {
    let mut buffer = Vec::new();
    while let Some(request) = read_request(&mut stream, &mut buffer).await {
        let number = {
            let mut all = observed.requests.lock().unwrap();
            all.push(request.clone());
            all.len() - 1
        };
        for action in script(number, &request) {
            match action {
                Action::Send(bytes) => {
                    if stream.write_all(&bytes).await.is_err() {
                        return;
                    }
                }
                Action::Flood(bytes, times) => {
                    for _ in 0..times {
                        if stream.write_all(&bytes).await.is_err() {
                            return;
                        }
                    }
                }
                Action::Sleep(span) => tokio::time::sleep(span).await,
                Action::Wait(until) => until.notified().await,
                Action::Close => return,
                Action::AwaitClose => {
                    let mut byte = [0];
                    let _ = stream.read(&mut byte).await;
                    return;
                }
            }
        }
    }
}

async fn read_request(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> Option<ReceivedRequest> {
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
                return Some(ReceivedRequest { head, body });
            }
        }
        if stream.read_buf(buffer).await.ok()? == 0 {
            return None;
        }
    }
}
