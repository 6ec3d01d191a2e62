//! Who runs on which core.
//!
//! Load and server on the same core would measure the scheduler. The load has the last core, the
//! server all others; what a server costs is then visible in both its rate and its CPU time.

use anyhow::Context;
use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// The cores of this process, divided.
#[derive(Clone, Copy)]
pub(crate) struct Cores {
    all: CpuSet,
    server: CpuSet,
    load: CpuSet,
}

impl Cores {
    /// Divides what this process may use; with one core, or when told so, nothing is divided.
    pub(crate) fn divide(shared: bool) -> anyhow::Result<Self> {
        let all = sched_getaffinity(None).context("cannot read which cores are ours")?;
        let last = (0..CpuSet::MAX_CPU).rev().find(|core| all.is_set(*core));
        let (mut server, mut load) = (all, CpuSet::new());
        if let (Some(last), false) = (last, shared || all.count() < 2) {
            server.unset(last);
            load.set(last);
        } else {
            load = all;
        }
        Ok(Self { all, server, load })
    }

    /// The same cores for both.
    pub(crate) fn shared(&self) -> Self {
        let all = self.all;
        Self {
            all,
            server: all,
            load: all,
        }
    }

    /// Runs `start` so that the process it starts has the server's cores.
    pub(crate) fn as_server<T>(
        &self,
        start: impl FnOnce() -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        self.within(&self.server, start)
    }

    /// Runs `start` so that the process it starts shares the core of the load.
    pub(crate) fn as_load_process<T>(
        &self,
        start: impl FnOnce() -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        self.within(&self.load, start)
    }

    /// Moves a process that others started to the core of the load.
    pub(crate) fn keep_with_load(&self, id: u32) -> anyhow::Result<()> {
        let pid = i32::try_from(id).ok().and_then(Pid::from_raw);
        sched_setaffinity(pid, &self.load).context("cannot choose the cores of a process")
    }

    /// Runs the load on its own core.
    pub(crate) fn as_load<T>(&self, work: impl FnOnce() -> anyhow::Result<T>) -> anyhow::Result<T> {
        self.within(&self.load, work)
    }

    /// Whether the load has a core to itself.
    pub(crate) fn are_divided(&self) -> bool {
        self.load != self.all
    }

    /// Cores of the server and of the load.
    pub(crate) fn count(&self) -> (u32, u32) {
        (self.server.count(), self.load.count())
    }

    fn within<T>(
        &self,
        cores: &CpuSet,
        work: impl FnOnce() -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        sched_setaffinity(None, cores).context("cannot choose cores")?;
        let outcome = work();
        sched_setaffinity(None, &self.all).context("cannot choose cores")?;
        outcome
    }
}
