//! An installation under measurement: a data directory and the server on it.

use crate::child::{self, Child};
use crate::cores::Cores;
use crate::load::{Sample, Traffic};
use crate::suite::Bench;
use crate::{http, load};
use anyhow::{Context, ensure};
use rusqlite::Connection;
use serde_json::{Value, json};
use std::fs;
use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Measured limits would be the configured ones; and all load comes from one address.
const CONFIG: &str =
    "[limits]\nrequests_per_second = 0\nkeys = 0\nprojects = 0\nconnections_per_address = 10000\n";

/// A data directory.
pub(crate) struct Site {
    pub(crate) directory: PathBuf,
}

impl Site {
    /// A new one, without data.
    pub(crate) fn new(bench: &Bench<'_>, name: &str) -> anyhow::Result<Self> {
        let directory = bench.options.work.join(name);
        fs::create_dir_all(&directory)?;
        fs::write(directory.join("estrade.toml"), CONFIG)?;
        Ok(Self { directory })
    }

    /// The same with a database elsewhere.
    pub(crate) fn with_database(bench: &Bench<'_>, name: &str, url: &str) -> anyhow::Result<Self> {
        Self::with_settings(bench, name, &format!("database_url = {url:?}\n"))
    }

    /// The same with some settings before the usual ones.
    pub(crate) fn with_settings(
        bench: &Bench<'_>,
        name: &str,
        settings: &str,
    ) -> anyhow::Result<Self> {
        let site = Self::new(bench, name)?;
        let config = format!("{settings}{CONFIG}");
        fs::write(site.directory.join("estrade.toml"), config)?;
        Ok(site)
    }

    /// Sets the password of an account.
    pub(crate) fn set_password(
        &self,
        bench: &Bench<'_>,
        email: &str,
        password: &str,
    ) -> anyhow::Result<()> {
        let mut child = Command::new(&bench.options.server)
            .args(["account", "password", "--password-stdin", "--email", email])
            .arg("--config")
            .arg(self.directory.join("estrade.toml"))
            .arg("--data-dir")
            .arg(self.directory.join("data"))
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()?;
        let mut input = child.stdin.take().context("no input")?;
        input.write_all(password.as_bytes())?;
        drop(input);
        let status = child.wait()?;
        ensure!(status.success(), "setting a password: {status}");
        Ok(())
    }

    /// The database file.
    pub(crate) fn database(&self) -> PathBuf {
        self.directory.join("data/estrade.db")
    }

    /// Opens the database file.
    pub(crate) fn open(&self) -> anyhow::Result<Connection> {
        Ok(Connection::open(self.database())?)
    }

    /// The id of the account that the first start made.
    pub(crate) fn account(&self) -> anyhow::Result<String> {
        let sql = "SELECT id FROM accounts WHERE email = 'admin@localhost'";
        Ok(self.open()?.query_row(sql, [], |row| row.get(0))?)
    }

    /// Starts a server on the server's cores and waits until it is ready.
    pub(crate) fn serve(&self, bench: &Bench<'_>) -> anyhow::Result<Running> {
        self.serve_on(&bench.options.server, &bench.cores)
    }

    /// The same with another build.
    pub(crate) fn serve_build(&self, build: &Path, bench: &Bench<'_>) -> anyhow::Result<Running> {
        self.serve_on(build, &bench.cores)
    }

    /// The same on all cores.
    pub(crate) fn serve_everywhere(&self, bench: &Bench<'_>) -> anyhow::Result<Running> {
        self.serve_on(&bench.options.server, &bench.cores.shared())
    }

    fn serve_on(&self, build: &Path, cores: &Cores) -> anyhow::Result<Running> {
        let (platform, ai, edge) = (
            child::free_address()?,
            child::free_address()?,
            child::free_address()?,
        );
        let log = fs::File::create(self.directory.join("server.log"))?;
        let mut command = Command::new(build);
        command
            .arg("serve")
            .arg("--config")
            .arg(self.directory.join("estrade.toml"))
            .arg("--data-dir")
            .arg(self.directory.join("data"))
            .args(["--platform-listen", &platform.to_string()])
            .args(["--ai-listen", &ai.to_string()])
            .args(["--edge-listen", &edge.to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log);
        let began = Instant::now();
        let mut child = cores.as_server(|| Child::start("estrade", &mut command))?;
        let ready = child.wait_until_ready(platform, "/readyz");
        let ready = ready.with_context(|| said(&self.directory.join("server.log")))?;
        // Only the first node of an installation writes one.
        let token = fs::read_to_string(self.directory.join("data/admin.token"));
        let token = token.unwrap_or_default();
        Ok(Running {
            child,
            platform,
            ai,
            edge,
            token: token.trim().to_owned(),
            took: ready.duration_since(began),
            cores: *cores,
        })
    }
}

/// The end of a log, for a person who has to find out.
fn said(log: &Path) -> String {
    let text = fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().rev().take(5).collect();
    lines.into_iter().rev().collect::<Vec<_>>().join("\n")
}

/// A running server.
pub(crate) struct Running {
    pub(crate) child: Child,
    pub(crate) platform: SocketAddr,
    pub(crate) ai: SocketAddr,
    pub(crate) edge: SocketAddr,
    pub(crate) token: String,
    /// From its start until it was ready.
    pub(crate) took: Duration,
    cores: Cores,
}

impl Running {
    /// Measures one window on one of its listeners.
    pub(crate) fn measure(
        &self,
        address: SocketAddr,
        span: Duration,
        traffic: &mut dyn Traffic,
    ) -> anyhow::Result<Sample> {
        load::measure(&self.cores, address, span, traffic, &|| self.child.cpu())
    }

    /// Measures one window on the platform listener with one request at a time.
    pub(crate) fn measure_alone(
        &self,
        span: Duration,
        traffic: &mut dyn Traffic,
    ) -> anyhow::Result<Sample> {
        load::measure_relay(&self.cores, self.platform, 1, span, traffic, &|| {
            self.child.cpu()
        })
    }

    /// Makes AI keys with the names `k0000000`, `k0000001`, … over HTTP, and returns their tokens.
    pub(crate) fn create_keys(&self, count: usize) -> anyhow::Result<Vec<String>> {
        let mut keys = NewKeys::new(&self.token, "k", count);
        load::send_all(self.ai, &mut keys)?;
        ensure!(keys.tokens.len() == count, "not every key was made");
        Ok(keys.tokens)
    }

    /// Deploys files and waits until they are live; returns the release.
    pub(crate) fn deploy(&self, project: &str, files: &[(&str, &str)]) -> anyhow::Result<String> {
        let file = |(path, data): &(&str, &str)| json!({"path": path, "data": data});
        let body = json!({"files": files.iter().map(file).collect::<Vec<_>>()});
        self.deploy_body(project, &body)
    }

    /// The same with a whole body.
    pub(crate) fn deploy_body(&self, project: &str, body: &Value) -> anyhow::Result<String> {
        let path = format!("/v2/projects/{project}/releases");
        let response = http::post(self.platform, &path, &self.token, body)?;
        let text = String::from_utf8_lossy(&response.body);
        ensure!(response.status == 201, "status {}: {text}", response.status);
        let made = response.json()?;
        let release = made["releaseID"].as_str().context("no release")?.to_owned();
        let path = format!("/v1/releases/{release}?wait=READY&timeout=60");
        let read = http::get(self.platform, &path, Some(&self.token))?.json()?;
        ensure!(read["release"]["state"] == "READY", "{read}");
        Ok(release)
    }

    /// Makes one static project.
    pub(crate) fn create_project(&self, name: &str) -> anyhow::Result<()> {
        self.create(name, "static", "nano")
    }

    /// Makes one project.
    pub(crate) fn create(&self, name: &str, platform: &str, plan: &str) -> anyhow::Result<()> {
        let body = json!({"name": name, "platform": platform, "planID": plan});
        let response = http::post(self.platform, "/v1/projects", &self.token, &body)?;
        let text = String::from_utf8_lossy(&response.body);
        ensure!(response.status == 200, "status {}: {text}", response.status);
        Ok(())
    }
}

/// Keys to be made, each with a name of its own.
pub(crate) struct NewKeys {
    head: String,
    prefix: &'static str,
    asked: usize,
    left: usize,
    /// How many were made.
    pub(crate) made: u64,
    keep: bool,
    tokens: Vec<String>,
}

impl NewKeys {
    fn new(token: &str, prefix: &'static str, count: usize) -> Self {
        Self {
            head: format!(
                "POST /v1/keys HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {token}\r\n\
                 content-type: application/json\r\ncontent-length: "
            ),
            prefix,
            asked: 0,
            left: count,
            made: 0,
            keep: true,
            tokens: Vec::new(),
        }
    }

    /// Keys without end, whose tokens nobody needs.
    pub(crate) fn endless(token: &str, prefix: &'static str) -> Self {
        Self {
            keep: false,
            ..Self::new(token, prefix, usize::MAX)
        }
    }
}

impl Traffic for NewKeys {
    fn request(&mut self, out: &mut Vec<u8>) -> bool {
        if self.left == 0 {
            return false;
        }
        self.left -= 1;
        let body = format!(
            r#"{{"name":"{}{:07}","workspaces":["main"]}}"#,
            self.prefix, self.asked
        );
        self.asked += 1;
        out.extend_from_slice(self.head.as_bytes());
        out.extend_from_slice(format!("{}\r\n\r\n{body}", body.len()).as_bytes());
        true
    }

    fn response(&mut self, status: u16, body: &[u8]) -> anyhow::Result<()> {
        #[derive(serde::Deserialize)]
        struct Created {
            key: String,
        }
        ensure!(status == 201, "status {status} instead of 201");
        self.made += 1;
        if self.keep {
            self.tokens
                .push(serde_json::from_slice::<Created>(body)?.key);
        } else {
            ensure!(body.starts_with(b"{"), "a created key is an object");
        }
        Ok(())
    }
}
