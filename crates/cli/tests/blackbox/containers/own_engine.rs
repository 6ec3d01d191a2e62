//! A Docker Engine that belongs to one test.

use estrade_testkit::{Docker, eventually_or};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;

/// An engine that leaves the firewall alone, which belongs to the engine of the other tests.
pub(super) struct OwnEngine {
    directory: TempDir,
    process: Child,
}

impl OwnEngine {
    pub(super) async fn start() -> Self {
        // Short, because it holds sockets.
        let directory = tempfile::Builder::new()
            .prefix("estrade-dk.")
            .tempdir_in("/tmp");
        let directory = directory.unwrap();
        let process = spawn(&directory);
        let engine = Self { directory, process };
        engine.wait().await;
        engine
    }

    pub(super) fn socket(&self) -> PathBuf {
        self.directory.path().join("sock")
    }

    async fn wait(&self) {
        let log = self.directory.path().join("log");
        let log = || std::fs::read_to_string(&log).unwrap_or_default();
        eventually_or(
            || format!("the engine starts\n{}", log()),
            || async { self.is_up() },
        )
        .await;
    }

    fn is_up(&self) -> bool {
        let ask = || -> io::Result<String> {
            let mut stream = UnixStream::connect(self.socket())?;
            stream.write_all(b"GET /_ping HTTP/1.0\r\n\r\n")?;
            let mut response = String::new();
            stream.read_to_string(&mut response)?;
            Ok(response)
        };
        ask().is_ok_and(|response| response.ends_with("OK"))
    }

    /// Gives it the image that tests run.
    pub(super) fn import_base(&self) {
        let tar = std::env::var("ESTRADE_TEST_IMAGE").unwrap_or_else(|_| {
            panic!("ESTRADE_TEST_IMAGE is not set: run `./test tests`, or set it to the tar of tests/docker/base-image")
        });
        let mut tar = File::open(&tar).unwrap_or_else(|error| panic!("{tar}: {error}"));
        let (name, tag) = Docker::BASE.split_once(':').unwrap();
        let length = tar.metadata().unwrap().len();
        let mut stream = UnixStream::connect(self.socket()).unwrap();
        let head = format!(
            "POST /images/create?fromSrc=-&repo={name}&tag={tag} HTTP/1.0\r\nContent-Length: {length}\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).unwrap();
        io::copy(&mut tar, &mut stream).unwrap();
        let mut response = String::new();
        stream.read_to_string(&mut response).unwrap();
        assert!(response.contains("sha256:"), "{response}");
    }

    /// Ends it in the middle of whatever it does. What it started goes on.
    pub(super) fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    pub(super) async fn start_again(&mut self) {
        // Of processes that are gone; in a container nobody may have buried them.
        for left in ["pid", "exec/containerd/containerd.pid"] {
            let _ = std::fs::remove_file(self.directory.path().join(left));
        }
        self.process = spawn(&self.directory);
        self.wait().await;
    }
}

fn spawn(directory: &TempDir) -> Child {
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let mut log = File::options();
    let log = log.create(true).append(true).open(path("log")).unwrap();
    let search = std::env::var("PATH").unwrap_or_default();
    Command::new("dockerd")
        .args(["--data-root", &path("data"), "--exec-root", &path("exec")])
        .args([
            "--pidfile",
            &path("pid"),
            "-H",
            &format!("unix://{}", path("sock")),
        ])
        .args(["--bridge=none", "--iptables=false", "--ip-masq=false"])
        .env("PATH", format!("{search}:/usr/sbin:/sbin"))
        .stdin(Stdio::null())
        .stdout(log.try_clone().unwrap())
        .stderr(log)
        .spawn()
        .unwrap_or_else(|error| {
            panic!("dockerd: {error}; install docker.io, and run the tests as root")
        })
}

/// Orderly, so that nothing of it is left: containers, mounts.
impl Drop for OwnEngine {
    fn drop(&mut self) {
        let pid = rustix::process::Pid::from_child(&self.process);
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        let _ = self.process.wait();
        // What the engine had mounted when it was killed.
        let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        let ours = self.directory.path().to_str().unwrap_or_default();
        let paths = mounts
            .lines()
            .rev()
            .filter_map(|line| line.split(' ').nth(1));
        for path in paths.filter(|path| path.starts_with(ours)) {
            let _ = Command::new("umount").args(["-l", "--", path]).status();
        }
    }
}
