//! Servers as child processes: started, measured through /proc, and stopped by their own id.

use crate::http;
use crate::random::Random;
use anyhow::{Context, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::{SocketAddr, TcpListener};
use std::process::{ChildStdout, Command};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// How long a server may take to start or to stop.
const TIMEOUT: Duration = Duration::from_secs(30);

/// A running server; killed when dropped.
pub(crate) struct Child {
    process: std::process::Child,
    name: String,
}

impl Child {
    /// Starts a command.
    pub(crate) fn start(name: &str, command: &mut Command) -> anyhow::Result<Self> {
        let process = command
            .spawn()
            .with_context(|| format!("cannot start {name}"))?;
        Ok(Self {
            process,
            name: name.to_owned(),
        })
    }

    /// The process id.
    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }

    /// What the process prints, if that was asked for at its start.
    pub(crate) fn output(&mut self) -> Option<ChildStdout> {
        self.process.stdout.take()
    }

    /// Waits until `GET path` answers 200; returns when that was.
    pub(crate) fn wait_until_ready(
        &mut self,
        address: SocketAddr,
        path: &str,
    ) -> anyhow::Result<Instant> {
        let began = Instant::now();
        loop {
            if http::get(address, path, None).is_ok_and(|response| response.status == 200) {
                return Ok(Instant::now());
            }
            if let Some(status) = self.process.try_wait()? {
                bail!("{} ended while it started: {status}", self.name);
            }
            ensure!(began.elapsed() < TIMEOUT, "{} does not start", self.name);
            sleep(Duration::from_millis(2));
        }
    }

    /// Waits until somebody listens on the address.
    pub(crate) fn wait_until_listening(&mut self, address: SocketAddr) -> anyhow::Result<()> {
        let began = Instant::now();
        while std::net::TcpStream::connect(address).is_err() {
            if let Some(status) = self.process.try_wait()? {
                bail!("{} ended while it started: {status}", self.name);
            }
            ensure!(began.elapsed() < TIMEOUT, "{} does not start", self.name);
            sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    /// CPU time that the process and its children have used, in user and system mode.
    pub(crate) fn cpu(&self) -> anyhow::Result<Duration> {
        let own = cpu_of(self.id())?;
        let children = format!("/proc/{0}/task/{0}/children", self.id());
        let children = fs::read_to_string(children).unwrap_or_default();
        let ids = children.split_ascii_whitespace().map(str::parse::<u32>);
        ids.map(|id| cpu_of(id?))
            .sum::<anyhow::Result<Duration>>()
            .map(|sum| own + sum)
    }

    /// Resident memory in bytes.
    pub(crate) fn memory(&self) -> anyhow::Result<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = line.and_then(|line| line.trim().strip_suffix(" kB"));
        Ok(kib
            .context("/proc/PID/status has no VmRSS")?
            .parse::<u64>()?
            * 1024)
    }

    /// Asks the process to end and waits for it.
    pub(crate) fn stop(mut self) -> anyhow::Result<()> {
        let pid = i32::try_from(self.id()).ok().and_then(Pid::from_raw);
        kill_process(pid.context("no process id")?, Signal::TERM)?;
        let began = Instant::now();
        while began.elapsed() < TIMEOUT {
            if let Some(status) = self.process.try_wait()? {
                ensure!(status.success(), "{} ended with {status}", self.name);
                return Ok(());
            }
            sleep(Duration::from_millis(5));
        }
        bail!("{} does not stop", self.name)
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if matches!(self.process.try_wait(), Ok(None)) {
            // Nothing more can be done about a process that cannot even be killed.
            let _ = self.process.kill();
            let _ = self.process.wait();
        }
    }
}

/// To the nanosecond: `/proc/PID/stat` counts in hundredths of a second, which is too much for a window of two.
fn cpu_of(id: u32) -> anyhow::Result<Duration> {
    let pid = nix::unistd::Pid::from_raw(i32::try_from(id)?);
    let clock =
        nix::time::clock_getcpuclockid(pid).context("cannot find the clock of a process")?;
    Ok(clock
        .now()
        .context("cannot read the clock of a process")?
        .into())
}

/// An address on loopback that nobody listens on at the moment. Not one that the system chooses: those it also
/// gives to clients, maybe before anybody listens there.
pub(crate) fn free_address() -> anyhow::Result<SocketAddr> {
    let seed = RandomState::new().build_hasher().finish();
    let mut random = Random::new(seed);
    for _ in 0..100 {
        let port = 10_000 + u16::try_from(random.next() % 20_000)?;
        if let Ok(socket) = TcpListener::bind(("127.0.0.1", port)) {
            return Ok(socket.local_addr()?);
        }
    }
    bail!("no port is free")
}
