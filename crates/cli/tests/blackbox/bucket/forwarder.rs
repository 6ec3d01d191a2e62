//! A bucket of the S3 server that `./test` starts, and a forwarder before it that can be cut.

use crate::support::{Home, random};
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

/// Passes connections on to a server. Cut, it closes those that are open and every new one.
pub(crate) struct Forwarder {
    url: String,
    is_cut: Arc<watch::Sender<bool>>,
    _tasks: JoinSet<()>,
}

impl Forwarder {
    pub(crate) async fn start(endpoint: &str) -> Self {
        let target = endpoint.strip_prefix("http://").unwrap().to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let is_cut = Arc::new(watch::Sender::new(false));
        let mut tasks = JoinSet::new();
        tasks.spawn(accept(listener, target, Arc::clone(&is_cut)));
        Self {
            url,
            is_cut,
            _tasks: tasks,
        }
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    pub(crate) fn cut(&self) {
        self.is_cut.send_replace(true);
    }

    pub(crate) fn mend(&self) {
        self.is_cut.send_replace(false);
    }
}

async fn accept(listener: TcpListener, target: String, is_cut: Arc<watch::Sender<bool>>) {
    let mut connections = JoinSet::new();
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        while connections.try_join_next().is_some() {}
        let (target, mut is_cut) = (target.clone(), is_cut.subscribe());
        connections.spawn(async move {
            tokio::select! {
                biased;
                _ = is_cut.wait_for(|is_cut| *is_cut) => {}
                () = forward(stream, &target) => {}
            }
        });
    }
}

async fn forward(mut client: TcpStream, target: &str) {
    // A broken connection is one that ends.
    if let Ok(mut server) = TcpStream::connect(target).await {
        let _ = copy_bidirectional(&mut client, &mut server).await;
    }
}
