//! The client under measurement: the same binary as the server, with a home directory of its own.

use crate::installation::Running;
use anyhow::{Context, ensure};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

/// Somebody who deploys to one project.
pub(super) struct Client<'r> {
    binary: &'r Path,
    home: PathBuf,
    server: &'r Running,
    project: String,
}

impl<'r> Client<'r> {
    /// For a project that is there.
    pub(super) fn new(binary: &'r Path, home: PathBuf, server: &'r Running, project: &str) -> Self {
        Self {
            binary,
            home,
            server,
            project: project.to_owned(),
        }
    }

    /// `estrade deploy FOLDER`, with the platform API at this address.
    pub(super) fn command(&self, folder: &Path, platform: SocketAddr) -> Command {
        let mut command = Command::new(self.binary);
        command
            .arg("deploy")
            .arg(folder)
            .args(["--project", &self.project, "--quiet"])
            .env_clear()
            .env("HOME", &self.home)
            .env("ESTRADE_URL", format!("http://{platform}"))
            .env("ESTRADE_TOKEN", &self.server.token)
            .stdin(Stdio::null());
        command
    }

    /// Starts it.
    pub(super) fn start(&self, folder: &Path) -> anyhow::Result<Child> {
        let mut command = self.command(folder, self.server.platform);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().context("cannot start estrade deploy")
    }

    /// Runs it to its end; milliseconds.
    pub(super) fn deploy(&self, folder: &Path) -> anyhow::Result<f64> {
        time(&mut self.command(folder, self.server.platform))
    }

    /// The same by way of a relay.
    pub(super) fn deploy_through(&self, folder: &Path, relay: SocketAddr) -> anyhow::Result<()> {
        time(&mut self.command(folder, relay)).map(drop)
    }
}

/// Runs a command, which must succeed; milliseconds from before its start until its end was noticed.
pub(super) fn time(command: &mut Command) -> anyhow::Result<f64> {
    let began = Instant::now();
    let output = command.output();
    let took = began.elapsed().as_secs_f64() * 1000.0;
    let name = command.get_program().to_string_lossy().into_owned();
    let output = output.with_context(|| format!("cannot start {name}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{name}: {}: {said}", output.status);
    Ok(took)
}
