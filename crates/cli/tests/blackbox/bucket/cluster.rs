//! Two nodes that share a database and a bucket, and what visitors and administrators ask them.

use super::forwarder::{Bucket, Forwarder};
use crate::support::{ApiResponse, Home, Postgres, Server, TIMEOUT, text};
use estrade_testkit::{eventually_or, free_port};
use reqwest::Method;
use serde_json::{Value, json};
use std::cell::RefCell;
use std::process::Command;
use std::time::{Duration, Instant};

/// A server with a port for its sites.
pub(crate) struct Node {
    pub(super) home: Home,
    /// Where it listens.
    address: String,
    edge: u16,
    /// The network namespace that it runs in.
    namespace: Option<String>,
    server: Option<Server>,
}

impl Node {
    pub(crate) fn new(home: Home) -> Self {
        Self {
            home,
            address: "127.0.0.1".into(),
            edge: free_port(),
            namespace: None,
            server: None,
        }
    }

    /// Lets it run in a network namespace, with this address.
    pub(crate) fn within(mut self, namespace: &str, address: &str) -> Self {
        self.namespace = Some(namespace.into());
        self.address = address.into();
        self
    }

    pub(crate) fn start(&mut self, token: Option<&str>) {
        let (api, edge) = (
            format!("{}:0", self.address),
            format!("{}:{}", self.address, self.edge),
        );
        let serve = [
            "serve",
            "--platform-listen",
            &api,
            "--ai-listen",
            &api,
            "--edge-listen",
        ];
        let args = serve.into_iter().chain([&*edge]);
        let command = match &self.namespace {
            None => self.home.command(args),
            Some(namespace) => {
                let estrade = ["netns", "exec", namespace, env!("CARGO_BIN_EXE_estrade")];
                let args = estrade.into_iter().chain(args);
                self.home.prepare(Command::new("ip"), args)
            }
        };
        let mut server = Server::start_by(&self.home, command);
        if let Some(token) = token {
            token.clone_into(&mut server.token);
        }
        self.server = Some(server);
    }

    pub(crate) fn restart(&mut self) {
        let token = self.token();
        self.stop();
        self.start(Some(&token));
    }

    pub(crate) fn stop(&mut self) {
        self.server.take().unwrap().stop();
    }

    /// Ends it in the middle of whatever it does.
    pub(crate) fn kill(&mut self) {
        self.server.take().unwrap().kill();
    }

    pub(crate) fn is_running(&self) -> bool {
        self.server.is_some()
    }

    pub(crate) fn server(&self) -> &Server {
        self.server.as_ref().unwrap()
    }

    pub(crate) fn token(&self) -> String {
        self.server().token.clone()
    }

    pub(crate) fn request(
        &self,
        method: Method,
        project: &str,
        path: &str,
    ) -> reqwest::RequestBuilder {
        let url = format!("http://{}:{}{path}", self.address, self.edge);
        let host = format!("{project}.localhost:{}", self.edge);
        let request = self.server().client.request(method, url);
        request.header("host", host)
    }

    /// What a visitor gets: the status and the body.
    pub(crate) async fn visit(&self, project: &str, path: &str) -> (u16, String) {
        let response = self.request(Method::GET, project, path).send();
        let response = response.await.unwrap();
        let status = response.status().as_u16();
        (status, response.text().await.unwrap())
    }

    pub(crate) async fn deploy(&self, project: &str, files: Value) -> ApiResponse {
        let path = format!("/v2/projects/{project}/releases");
        let body = json!({"files": files});
        self.server().platform(Method::POST, &path, body).await
    }

    /// Deploys and waits until it serves; the release.
    pub(crate) async fn deploy_site(&self, project: &str, files: Value) -> String {
        let made = self.deploy(project, files).await;
        let release = text(&made.assert(201).json()["releaseID"]);
        self.await_ready(&release).await;
        release
    }

    pub(crate) async fn await_ready(&self, release: &str) {
        let path = format!("/v1/releases/{release}?wait=READY&timeout=15");
        let read = self.server().platform(Method::GET, &path, Value::Null);
        let read = read.await.assert(200).json();
        let release = &read["release"];
        let log = self.server().log();
        assert_eq!(release["state"], "READY", "{read}\n{log}");
    }

    /// Waits until visitors get this.
    pub(crate) async fn await_content(&self, project: &str, path: &str, expected: &str) {
        let found = RefCell::new(None);
        eventually_or(
            || format!("{:?}\n{}", found.borrow(), self.server().log()),
            || async {
                let now = self.visit(project, path).await;
                let is_so = now == (200, expected.to_owned());
                found.replace(Some((now.0, now.1.len())));
                is_so
            },
        )
        .await;
    }

    /// Waits until `/readyz` says this of the storage; it must say that the node is ready all the time.
    pub(crate) async fn await_storage(&self, expected: &str) {
        let deadline = Instant::now() + TIMEOUT;
        loop {
            let path = "/readyz";
            let ready = self.server().platform(Method::GET, path, Value::Null).await;
            let ready = ready.assert(200).json();
            if ready["storage"] == expected {
                return;
            }
            assert!(
                Instant::now() < deadline,
                "{ready}\n{}",
                self.server().log()
            );
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    pub(crate) async fn metric(&self, name: &str) -> u64 {
        let metrics = self.server().platform(Method::GET, "/metrics", Value::Null);
        let metrics = metrics.await.assert(200).text.clone();
        let line = metrics.lines().find(|line| {
            line.strip_prefix(name)
                .is_some_and(|rest| rest.starts_with(' '))
        });
        let line = line.unwrap_or_else(|| panic!("{name} is not in {metrics}"));
        line.rsplit_once(' ').unwrap().1.parse().unwrap()
    }
}

/// Two nodes that share everything but their data directories.
pub(super) struct Cluster {
    database: Postgres,
    _key: tempfile::TempDir,
    pub(super) forwarder: Forwarder,
    pub(super) a: Node,
    pub(super) b: Node,
}

impl Cluster {
    pub(super) async fn start() -> Self {
        let (database, bucket) = (Postgres::create().await, Bucket::of_test());
        let forwarder = Forwarder::start(&bucket.endpoint).await;
        let key = tempfile::TempDir::new().unwrap();
        let path = key.path().join("master.key");
        let home = || {
            let home = bucket.configure(Home::new(), &forwarder.url());
            Node::new(
                home.with("ESTRADE_DATABASE_URL", &*database.url)
                    .with("ESTRADE_MASTER_KEY_FILE", path.to_str().unwrap()),
            )
        };
        let (mut a, mut b) = (home(), home());
        a.start(None);
        b.start(Some(&a.token()));
        Self {
            database,
            _key: key,
            forwarder,
            a,
            b,
        }
    }

    pub(super) async fn stop(mut self) {
        self.a.stop();
        self.b.stop();
        self.database.drop().await;
    }
}
