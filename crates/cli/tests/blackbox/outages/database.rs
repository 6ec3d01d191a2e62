//! PostgreSQL servers of a test: one that can be ended and started again, and one that follows it.

use super::installation::Database;
use crate::support::{Reaped, TIMEOUT};
use estrade_testkit::free_port;
use std::ffi::OsStr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

pub(super) struct Server {
    directory: TempDir,
    pub(super) port: u16,
    process: Option<Reaped>,
}

/// How it is ended.
#[derive(Debug, Clone, Copy)]
pub(super) enum Shutdown {
    /// Ends its connections, and writes everything down.
    Fast,
    /// As a crash: the next start repairs.
    Immediate,
}

impl Server {
    /// A new one, as durable as it is by default.
    pub(super) fn create() -> Self {
        let mut server = Self::empty();
        let data = server.data();
        let data = data.to_str().unwrap();
        let options = [
            "--username=postgres",
            "--auth=trust",
            "--encoding=UTF8",
            "--locale=C",
        ];
        server.run(
            "initdb",
            ["--no-sync", "--pgdata", data].iter().chain(&options),
        );
        server.start();
        server
    }

    /// One that follows another, which waits for it before it acknowledges a commit.
    pub(super) async fn create_standby(primary: &Self) -> Self {
        let mut server = Self::empty();
        let data = server.data();
        let from = format!(
            "--dbname=host=127.0.0.1 port={} user=postgres application_name=standby",
            primary.port
        );
        let to = format!("--pgdata={}", data.display());
        let options = [
            "--write-recovery-conf",
            "--checkpoint=fast",
            "--wal-method=stream",
        ];
        server.run(
            "pg_basebackup",
            [&*from, &*to, "--no-sync"].iter().chain(&options),
        );
        server.start();
        let alter = "ALTER SYSTEM SET synchronous_standby_names = 'standby'";
        primary.column(alter).await;
        primary.column("SELECT pg_reload_conf()").await;
        let follows = "SELECT COUNT(*) FROM pg_stat_replication WHERE sync_state = 'sync'";
        let began = Instant::now();
        while primary.number(follows).await == 0 {
            assert!(began.elapsed() < TIMEOUT, "it does not follow");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        server
    }

    fn empty() -> Self {
        let directory = TempDir::new().unwrap();
        if is_root() {
            let owner = Command::new("chown")
                .arg("postgres:")
                .arg(directory.path())
                .status();
            assert!(owner.unwrap().success());
        }
        Self {
            directory,
            port: free_port(),
            process: None,
        }
    }

    fn data(&self) -> PathBuf {
        self.directory.path().join("data")
    }

    /// The address of a database on it.
    pub(super) fn url(&self) -> String {
        format!("postgres://postgres@127.0.0.1:{}/postgres", self.port)
    }

    pub(super) fn start(&mut self) {
        let settings = [
            "listen_addresses=127.0.0.1".to_owned(),
            format!("port={}", self.port),
            format!(
                "unix_socket_directories={}",
                self.directory.path().display()
            ),
            "max_connections=100".into(),
        ];
        let data = self.data();
        let mut command = as_postgres("postgres", self.directory.path());
        command.arg("-D").arg(data);
        for setting in settings {
            command.args(["-c", &setting]);
        }
        let log = self.directory.path().join("log");
        let log = std::fs::File::options()
            .create(true)
            .append(true)
            .open(log)
            .unwrap();
        let child = command.stdout(Stdio::null()).stderr(log).spawn().unwrap();
        self.process = Some(Reaped(child));
        let began = Instant::now();
        while !self.is_ready() {
            assert!(
                began.elapsed() < TIMEOUT,
                "PostgreSQL does not start: {}",
                self.log()
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn is_ready(&self) -> bool {
        let port = self.port.to_string();
        let mut ask = as_postgres("pg_isready", self.directory.path());
        let ask = ask.args(["--quiet", "--host=127.0.0.1", "--port", &port]);
        ask.status().unwrap().success()
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.directory.path().join("log")).unwrap_or_default()
    }

    pub(super) fn stop(&mut self, how: Shutdown) {
        let mut process = self.process.take().unwrap();
        let signal = match how {
            Shutdown::Fast => "INT",
            Shutdown::Immediate => "QUIT",
        };
        let kill = format!("kill -{signal} {}", process.0.id());
        assert!(
            Command::new("sh")
                .args(["-c", &kill])
                .status()
                .unwrap()
                .success()
        );
        process.wait();
    }

    /// Lets one that follows take writes from now on, and wait for nobody.
    pub(super) async fn promote(&self) {
        let reset = "ALTER SYSTEM SET synchronous_standby_names = ''";
        self.column(reset).await;
        self.column("SELECT pg_reload_conf()").await;
        self.column("SELECT pg_promote(wait => true)").await;
    }

    fn run<S: AsRef<OsStr>>(&mut self, program: &str, args: impl IntoIterator<Item = S>) {
        let mut command = as_postgres(program, self.directory.path());
        let output = command.args(args).output().unwrap();
        assert!(
            output.status.success(),
            "{program}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if self.process.is_some() {
            self.stop(Shutdown::Immediate);
        }
    }
}

impl Database for Server {
    async fn column(&self, sql: &str) -> Vec<String> {
        let server: tokio_postgres::Config = self.url().parse().unwrap();
        let (client, connection) = server.connect(tokio_postgres::NoTls).await.unwrap();
        let mut tasks = tokio::task::JoinSet::new();
        tasks.spawn(connection);
        let messages = client.simple_query(sql).await.unwrap();
        let row = |message| match message {
            tokio_postgres::SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
            _ => None,
        };
        messages.into_iter().filter_map(row).collect()
    }
}

fn is_root() -> bool {
    std::fs::metadata("/proc/self").unwrap().uid() == 0
}

/// A program of PostgreSQL, which refuses to run as root. Debian keeps it out of PATH.
fn as_postgres(program: &str, directory: &Path) -> Command {
    let versions = std::fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten();
    let mut found: Vec<_> = versions
        .map(|version| version.unwrap().path().join("bin").join(program))
        .filter(|path| path.exists())
        .collect();
    found.sort();
    let program = found.pop().unwrap_or_else(|| program.into());
    let mut command = if is_root() {
        let mut command = Command::new("setpriv");
        command
            .args([
                "--reuid=postgres",
                "--regid=postgres",
                "--init-groups",
                "--",
            ])
            .arg(program);
        command
    } else {
        Command::new(program)
    };
    command.current_dir(directory).stdin(Stdio::null());
    command
}
