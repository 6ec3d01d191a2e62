//! A bucket of the S3 server that `./test` starts, and a forwarder before it that can be cut.

use crate::support::{Home, random};
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// A prefix of its own for one test, in a bucket that all tests share.
pub(crate) struct Bucket {
    pub(crate) endpoint: String,
    pub(crate) secret_access_key: String,
    access_key_id: String,
    url: String,
}

impl Bucket {
    pub(crate) fn of_test() -> Self {
        let variable = |name: &str| {
            std::env::var(name)
                .unwrap_or_else(|_| panic!("{name} is not set: run the tests with ./test"))
        };
        Self {
            endpoint: variable("ESTRADE_TEST_S3_ENDPOINT"),
            access_key_id: variable("ESTRADE_TEST_S3_KEY"),
            secret_access_key: variable("ESTRADE_TEST_S3_SECRET"),
            url: format!(
                "s3://{}/blackbox-{:016x}",
                variable("ESTRADE_TEST_S3_BUCKET"),
                random()
            ),
        }
    }

    /// Points a home to it, through this endpoint, with a small cache.
    pub(crate) fn configure(&self, home: Home, endpoint: &str) -> Home {
        let variables = self.variables(endpoint);
        let home = home.with("ESTRADE_BLOBS_URL", &*self.url);
        let with = |home: Home, (name, value): (&str, String)| home.with(name, value);
        variables
            .into_iter()
            .fold(home, with)
            .with("ESTRADE_BLOBS_CACHE_MB", "64")
            .with("ESTRADE_LIMITS_RELEASE_BYTES", (16 << 20).to_string())
    }
}

impl Bucket {
    /// How it is reached through this endpoint.
    pub(crate) fn variables(&self, endpoint: &str) -> [(&'static str, String); 3] {
        [
            ("ESTRADE_BLOBS_ENDPOINT", endpoint.to_owned()),
            ("ESTRADE_BLOBS_ACCESS_KEY_ID", self.access_key_id.clone()),
            (
                "ESTRADE_BLOBS_SECRET_ACCESS_KEY",
                self.secret_access_key.clone(),
            ),
        ]
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }
}

/// What becomes of connections.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Line {
    Up,
    /// Those that are open end, and every new one.
    Cut,
    /// Nothing is passed on, and nothing ends.
    Stalled,
}

/// Passes connections on to a server.
pub(crate) struct Forwarder {
    address: SocketAddr,
    line: Arc<watch::Sender<Line>>,
    _tasks: JoinSet<()>,
}

impl Forwarder {
    /// Before a server on this machine, `http://HOST:PORT` or `HOST:PORT`.
    pub(crate) async fn start(endpoint: &str) -> Self {
        Self::bind("127.0.0.1", endpoint).await
    }

    /// The same on another address.
    pub(crate) async fn bind(address: &str, endpoint: &str) -> Self {
        let target = endpoint.trim_start_matches("http://").to_owned();
        let listener = TcpListener::bind((address, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let line = Arc::new(watch::Sender::new(Line::Up));
        let mut tasks = JoinSet::new();
        tasks.spawn(accept(listener, target, Arc::clone(&line)));
        Self {
            address,
            line,
            _tasks: tasks,
        }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Ends all connections, and every new one.
    pub(crate) fn cut(&self) {
        self.line.send_replace(Line::Cut);
    }

    /// Takes every byte and every connection, and answers nothing.
    pub(crate) fn stall(&self) {
        self.line.send_replace(Line::Stalled);
    }

    pub(crate) fn mend(&self) {
        self.line.send_replace(Line::Up);
    }
}

async fn accept(listener: TcpListener, target: String, line: Arc<watch::Sender<Line>>) {
    let mut connections = JoinSet::new();
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        while connections.try_join_next().is_some() {}
        let (target, mut line) = (target.clone(), line.subscribe());
        connections.spawn(async move {
            let mut stream = stream;
            tokio::select! {
                biased;
                _ = line.wait_for(|line| *line != Line::Up) => {}
                () = forward(&mut stream, &target) => {}
            }
            // Open for as long as nothing is passed on.
            let _ = line.wait_for(|line| *line != Line::Stalled).await;
        });
    }
}

async fn forward(client: &mut TcpStream, target: &str) {
    // A broken connection is one that ends.
    if let Ok(mut server) = TcpStream::connect(target).await {
        let _ = copy_bidirectional(client, &mut server).await;
    }
}
